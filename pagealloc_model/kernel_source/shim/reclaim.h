/*
 * What stands around mm/vmscan.c: LRU lists' bookkeeping, who sleeps and wakes, and what a look at
 * a folio finds. No memory cgroups, no slab, no writeback, no multi-generational LRU.
 */

static struct in_use *in_use;
static struct model_folio *folios;
static unsigned long vm_events[NR_VM_EVENT_ITEMS];
static struct task_struct *current_task = &the_task;
static struct task_struct kswapd_task;
static ucontext_t main_context;
static int request_zone, swap_pages, throttled;
static int vm_swappiness;

#undef current
#define current current_task
#define HZ 250
#define GFP_IO_AND_FS (__GFP_IO | __GFP_FS)
#define gfp_zone(mask) ((enum zone_type)request_zone)
static int sysctl_extfrag_threshold;
#define PF_KSWAPD 0x10000
#define PF_LOCAL_THROTTLE 0x20000
#define PF_USER_WORKER 0x40000
#ifndef MAX_SWAPPINESS
#define MAX_SWAPPINESS 200
#endif
#define laptop_mode 0
#define buffer_heads_over_limit false
#define vm_total_pages 0
#define total_swap_pages swap_pages
#define get_nr_swap_pages() swap_pages
#define can_demote(...) false
#define numa_demotion_enabled false

#undef next_memory_node
#define next_memory_node(node) node_with_memory_behind(node)

static int node_with_memory_behind(int node);

/* Counters. */
#define count_vm_events(item, number) (vm_events[item] += (number))
#define __count_vm_events(item, number) count_vm_events(item, number)
#define count_vm_event(item) count_vm_events(item, 1)
#define __count_vm_event(item) count_vm_events(item, 1)
#define __count_zid_vm_events(item, type, number)                                                  \
	(vm_events[item##_NORMAL - ZONE_NORMAL + (type)] += (number))
#define mod_node_page_state(node, item, number)                                                    \
	((node)->vm_stat[item].counter += (number))
#define __mod_node_page_state(node, item, number) mod_node_page_state(node, item, number)
#define mod_lruvec_state(lruvec, item, number)                                                     \
	mod_node_page_state(lruvec_pgdat(lruvec), item, number)
#define __mod_lruvec_state(lruvec, item, number) mod_lruvec_state(lruvec, item, number)
#define node_page_state(node, item) ((unsigned long)(node)->vm_stat[item].counter)
#define lruvec_page_state(lruvec, item) node_page_state(lruvec_pgdat(lruvec), item)
#define lruvec_page_state_monotonic(lruvec, item) 0UL
#define __count_memcg_events(...) ((void)0)
#define count_memcg_events(...) ((void)0)
#define memcg_memory_event(...) ((void)0)

/* Memory cgroups: there is one list of each kind for a node. */
#define lruvec_pgdat(lruvec) container_of(lruvec, struct pglist_data, __lruvec)
#define lruvec_memcg(lruvec) NULL
#define mem_cgroup_lruvec(memcg, node) (&(node)->__lruvec)
#define mem_cgroup_iter(...) NULL
#define mem_cgroup_iter_break(...) ((void)0)
#define mem_cgroup_protection(root, memcg, least, low, ...) (*(least) = *(low) = 0)
#define mem_cgroup_calculate_protection(...) ((void)0)
#define mem_cgroup_below_min(...) false
#define mem_cgroup_below_low(...) false
#define mem_cgroup_flush_stats(...) ((void)0)
#define mem_cgroup_flush_stats_ratelimited(...) ((void)0)
#define mem_cgroup_online(memcg) true
#define mem_cgroup_disabled() true
#define mem_cgroup_size(memcg) 0UL
#define mem_cgroup_get_nr_swap_pages(memcg) swap_pages
#define mem_cgroup_get_zone_lru_size(...) 0UL
#define mem_cgroup_swappiness(memcg) vm_swappiness
#define mem_cgroup_uncharge_list(...) ((void)0)
#define mem_cgroup_uncharge_folios(...) ((void)0)
#define mem_cgroup_soft_limit_reclaim(...) 0
#define memcg1_soft_limit_reclaim(...) 0
#define lru_gen_enabled() false
#define lru_gen_switching() false
#define lru_gen_age_node(...) ((void)0)
#define lru_gen_shrink_node(...) ((void)0)
#define lru_gen_shrink_lruvec(...) ((void)0)

/* What reclaim does beside freeing pages of the lists. */
#define shrink_slab(...) 0
#define vmpressure(...) ((void)0)
#define vmpressure_prio(...) ((void)0)
#define flush_reclaim_state(...) ((void)0)
#define set_task_reclaim_state(...) ((void)0)
#define snapshot_refaults(...) ((void)0)
#define workingset_age_nonresident(...) ((void)0)
#define lru_note_cost(...) ((void)0)
#define lru_note_cost_unlock_irq(...) ((void)0)
#define handle_reclaim_writeback(...) ((void)0)
#define wakeup_flusher_threads(...) ((void)0)
#define reclaim_throttle(...) ((void)0)
#define psi_memstall_enter(...) ((void)0)
#define psi_memstall_leave(...) ((void)0)
#define __fs_reclaim_acquire(...) ((void)0)
#define __fs_reclaim_release(...) ((void)0)
#define delayacct_freepages_start() ((void)0)
#define delayacct_freepages_end() ((void)0)
#define lru_add_drain() ((void)0)
#define blk_start_plug(plug) ((void)(plug))
#define blk_finish_plug(plug) ((void)(plug))
#define cond_resched_tasks_rcu_qs() ((void)0)
#define current_gfp_context(mask) (mask)
#define current_is_khugepaged() false
#define fatal_signal_pending(task) false
#define cpuset_zone_allowed(...) true
#undef cpumask_of_node
#define cpumask_of_node(node) NULL
#define cpumask_empty(mask) true
#define set_cpus_allowed_ptr(...) ((void)0)
#define set_freezable() ((void)0)
#define freezing(task) false
#define kthread_should_stop() false
#define kthread_freezable_should_stop(was_frozen) (*(was_frozen) = false)
#define try_to_freeze() false
#define atomic_set(place, value) ((place)->counter = (value))
#define atomic_inc_return(place) (++(place)->counter)
#define atomic_xchg(place, value)                                                                  \
	({                                                                                         \
		int old_count = (place)->counter;                                                  \
		(place)->counter = (value);                                                        \
		old_count;                                                                         \
	})
#define div_u64(dividend, divisor) ((dividend) / (divisor))
#define div64_u64(dividend, divisor) ((dividend) / (divisor))
#define DIV64_U64_ROUND_UP(dividend, divisor) (((dividend) + (divisor) - 1) / (divisor))
#define int_sqrt(value) root_of(value)
#define lruvec_lock_irq(lruvec) ((void)0)
#define lruvec_unlock_irq(lruvec) ((void)0)
#define BUG() BUG_ON(true)
#define BUILD_BUG() ((void)0)
#define VM_BUG_ON_FOLIO(condition, folio) __assert_not(condition, #condition)

static inline unsigned long root_of(unsigned long value)
{
	unsigned long root = 0;

	while ((root + 1) * (root + 1) <= value)
		root++;
	return root;
}

/* Folios: all of a list are on it, evictable and freed for good when they are let go. */
#define lru_to_folio(list) list_entry((list)->prev, struct folio, lru)
#define prefetchw_prev_lru_folio(...) ((void)0)
#define folio_page(folio, number) (&(folio)->page + (number))
#define folio_pfn(folio) page_to_pfn(&(folio)->page)
#define folio_facts(folio) (in_use + folio_pfn(folio))
#define folio_nr_pages(folio) (1UL << (folio_facts(folio)->order_plus_one - 1))
#define folio_zone(folio) page_zone(&(folio)->page)
#define folio_zonenum(folio) zone_idx(folio_zone(folio))
#define folio_test_lru(folio) folio_facts(folio)->is_listed
#define folio_set_lru(folio) (folio_facts(folio)->is_listed = 1)
#define folio_test_clear_lru(folio)                                                                \
	({                                                                                         \
		bool was_listed = folio_test_lru(folio);                                           \
		folio_facts(folio)->is_listed = 0;                                                 \
		was_listed;                                                                        \
	})
#define folio_test_active(folio) folio_facts(folio)->active
#define folio_clear_active(folio) (folio_facts(folio)->active = 0)
#define folio_set_workingset(folio) ((void)0)
#define folio_is_file_lru(folio) (folios[folio_pfn(folio)].kind == PR_FILE)
#define folio_mapped(folio) false
#define folio_evictable(folio) true
#define folio_putback_lru(folio) ((void)0)
#define folio_needs_release(folio) false
#define folio_has_private(folio) false
#define folio_get_private(folio) false
#define folio_trylock(folio) false
#define folio_unlock(folio) ((void)0)
#define filemap_release_folio(...) ((void)0)
#define folio_try_get(folio) true
#define folio_put(folio) ((void)0)
#define folio_put_testzero(folio) false
#define __folio_clear_lru_flags(folio) ((void)0)
#define folio_unqueue_deferred_split(folio) ((void)0)
#define folio_test_large(folio) false
#define destroy_large_folio(folio) ((void)0)
#define folio_batch_init(batch) ((batch)->nr = 0)
#define folio_batch_add(batch, folio) 1
#define folio_referenced(...) 0
#define is_exec_file_folio(...) false
#define free_unref_folios(batch) ((void)0)
#define free_unref_page_list(list) ((void)0)
#define folio_matches_lruvec(folio, lruvec) true
#define folio_lruvec_relock_irq(folio, lruvec) lruvec_of(folio)
#define VM_EXEC 0
#define shrink_folio_list(list, node, sc, stat, ...) look_at_folios(list, sc, stat)

#define list_move(entry, list)                                                                     \
	do {                                                                                       \
		list_del(entry);                                                                   \
		list_add(entry, list);                                                             \
	} while (0)

static inline void list_splice(struct list_head *list, struct list_head *head)
{
	if (list_empty(list))
		return;
	list->prev->next = head->next;
	head->next->prev = list->prev;
	head->next = list->next;
	list->next->prev = head;
}

#define lruvec_of(folio) (&folio_zone(folio)->zone_pgdat->__lruvec)

static inline int list_of(struct folio *folio)
{
	return 2 * folio_is_file_lru(folio) + folio_test_active(folio);
}

static inline void update_lru_size(struct lruvec *lruvec, enum lru_list lru, int type, long pages)
{
	pg_data_t *node = lruvec_pgdat(lruvec);

	node->vm_stat[NR_LRU_BASE + lru].counter += pages;
	node->node_zones[type].vm_stat[NR_ZONE_LRU_BASE + lru].counter += pages;
}

static inline void lruvec_add_folio(struct lruvec *lruvec, struct folio *folio)
{
	list_add(&folio->lru, &lruvec->lists[list_of(folio)]);
	update_lru_size(lruvec, list_of(folio), folio_zonenum(folio), folio_nr_pages(folio));
	folio_facts(folio)->is_listed = 1;
}

static unsigned int look_at_folios(struct list_head *list, struct scan_control *sc,
				   struct reclaim_stat *stat);

/* Who sleeps, and who wakes it: each node's kswapd is a context of its own. */
#define DEFINE_WAIT(name) int name __attribute__((unused))
#define TASK_INTERRUPTIBLE 0
#define TASK_UNINTERRUPTIBLE 0
#define waitqueue_active(queue) ((queue)->unused)
#define prepare_to_wait(queue, wait, state) ((queue)->unused = 1)
#define finish_wait(queue, wait) ((queue)->unused = 0)
#define wake_up(queue) ((void)0)
#define wake_up_all(queue) ((void)0)
#define wake_up_interruptible(queue) wake_kswapd_of(container_of(queue, pg_data_t, kswapd_wait))
#define schedule_timeout(ticks) kswapd_sleeps(NAPPING)
#define schedule() ((void)kswapd_sleeps(ASLEEP))
#define wait_event_interruptible_timeout(queue, condition, ticks) (throttled++)
#define wait_event_killable(queue, condition) (throttled++)
#define reset_isolation_suitable(node) ((void)0)
#define wakeup_kcompactd(node, order, highest) note_kcompactd_wake(node, order, highest)

static long kswapd_sleeps(enum kswapd_sleep how);
static void wake_kswapd_of(pg_data_t *node);
static void note_kcompactd_wake(pg_data_t *node, int order, int highest);
