/* What compaction takes for granted: folios and LRU lists, migration, daemons that sleep. */
#include <ucontext.h>

/* A folio is its first page; what else is known of it is in `folios`. */
struct folio {
	union {
		struct list_head lru;
		struct page page;
	};
};

/* As the model's records of page frames. */
struct model_folio {
	int32_t object, offset, sibling;
	int8_t place, kind;
	uint8_t scans, writes;
	int8_t skip, referenced;
	int16_t slab;
};

/* By page frame: an allocation's record at its first page, its order plus one, 0 elsewhere. */
static struct model_folio *folios;
static u8 *heads;
static long frames;
static int64_t *pressure;

#undef pfn_valid
#define pfn_valid(pfn) ((pfn) < (unsigned long)frames)

static inline struct page *pfn_to_online_page(unsigned long pfn)
{
	return pfn_valid(pfn) && pfn_to_page(pfn)->zone ? pfn_to_page(pfn) : NULL;
}

/* The first page of the allocation that a page is part of; itself if it is part of none. */
static inline struct page *compound_head(struct page *page)
{
	unsigned long pfn = page_to_pfn(page);

	for (int order = 0; order <= MAX_BUDDY_ORDER; order++) {
		unsigned long first = pfn >> order << order;

		if (heads[first])
			return heads[first] > order ? pfn_to_page(first) : page;
	}
	return page;
}

#define HEAD_OF(page) heads[page_to_pfn(page)]
#define PageCompound(page) (HEAD_OF(compound_head(page)) > 1)
#define compound_order(page) ((unsigned int)(HEAD_OF(page) ? HEAD_OF(page) - 1 : 0))
#define PageHuge(page) false
#define PageIsolated(page) false
#define PageMovableOpsIsolated(page) false
#define isolate_movable_page(...) false
#define isolate_movable_ops_page(...) false
#define isolate_or_dissolve_huge_page(...) 0
#define isolate_or_dissolve_huge_folio(...) 0
#define page_folio(page) ((struct folio *)compound_head(page))
#define folio_page_idx(folio, page) 0
#define folio_test_hugetlb(folio) false
#define folio_get_nontail_page(page) (HEAD_OF(page) ? (struct folio *)(page) : NULL)

struct address_space_operations { void *migrate_folio; };
struct address_space { const struct address_space_operations *a_ops; };
struct lruvec { spinlock_t lru_lock; };

static struct lruvec the_lruvec;

#define folio_order(folio) compound_order(&(folio)->page)
#define folio_nr_pages(folio) (1L << folio_order(folio))
#define folio_test_large(folio) (folio_order(folio) > 0)
#define folio_mapping(folio) NULL
#define folio_ref_count(folio) 1
#define folio_mapcount(folio) 0
#define folio_put(folio) ((void)0)
#define folio_test_lru(folio) PageLRU(&(folio)->page)
#define folio_test_unevictable(folio) false
#define folio_test_writeback(folio) false
#define folio_test_dirty(folio) false
#define folio_trylock(folio) true
#define folio_unlock(folio) ((void)0)
#define folio_lruvec(folio) (&the_lruvec)
#define folio_is_file_lru(folio) 0
#define folio_memcg(folio) NULL
#define lruvec_memcg(lruvec) NULL
#define lruvec_memcg_debug(...) ((void)0)
#define lruvec_del_folio(...) ((void)0)
#define node_stat_mod_folio(...) ((void)0)
#define unlock_page_lruvec_irqrestore(...) ((void)0)
#define lruvec_unlock_irqrestore(...) ((void)0)
#define mapping_inaccessible(mapping) false
#define rcu_read_lock() ((void)0)
#define rcu_read_unlock() ((void)0)
#define node_page_state(...) 0UL
#define wake_throttle_isolated(pgdat) ((void)0)
#define reclaim_throttle(...) ((void)0)
#define zone_reclaimable_pages(zone) 0UL
#define ISOLATE_ASYNC_MIGRATE 0x4
#define ISOLATE_UNEVICTABLE 0x8

/* A changed tree may go on for ever: a task is killed once it asked so often in one operation. */
#define ASKED_MOST (1L << 18)
static long times_asked;
#define fatal_signal_pending(task) (++times_asked > ASKED_MOST)

#define need_resched() false
#define MR_COMPACTION 0
#define ENOMEM 12
#define EAGAIN 11
#define EINTR 4
#define EBUSY 16
#define post_alloc_hook(...) ((void)0)
#define set_page_refcounted(page) ((void)0)
#define page_rmappable_folio(page) ((struct folio *)(page))
#define alloc_hooks(call) (call)

/* 6.1 isolates pages, not folios, and splits what is isolated as targets. */
#define compound_nr(page) (1L << compound_order(page))
#define thp_nr_pages(page) compound_nr(page)
#define total_mapcount(page) 0
#define get_page_unless_zero(page) true
#define put_page(page) ((void)0)
#define page_mapping(page) NULL
#define page_is_file_lru(page) 0
#define PageUnevictable(page) false
#define PageWriteback(page) false
#define PageDirty(page) false
#define trylock_page(page) true
#define unlock_page(page) ((void)0)
#define TestClearPageLRU(page) folio_test_clear_lru((struct folio *)(page))
#define SetPageLRU(page) folio_set_lru((struct folio *)(page))
#define del_page_from_lru_list(...) ((void)0)
#define mod_node_page_state(...) ((void)0)
#define split_page(page, order) ((void)0)

#define folio_put_testzero(folio) true
#define round_down(value, size) ((value) & ~((__typeof__(value))(size) - 1))

#define lru_add_drain() ((void)0)
#define lru_add_drain_all() ((void)0)
#define psi_memstall_enter(flags) ((void)(flags))
#define psi_memstall_leave(flags) ((void)(flags))
#define delayacct_compact_start() ((void)0)
#define delayacct_compact_end() ((void)0)
#define fs_reclaim_acquire(mask) ((void)0)
#define fs_reclaim_release(mask) ((void)0)
#define memalloc_noreclaim_save() 0
#define memalloc_noreclaim_restore(flags) ((void)(flags))

static inline bool list_is_first(const struct list_head *entry, const struct list_head *list)
{
	return entry->prev == list;
}

static inline bool list_is_last(const struct list_head *entry, const struct list_head *list)
{
	return entry->next == list;
}

/* Move what lies between a list's head and `end` to an empty list. */
static inline void list_cut_before(struct list_head *cut, struct list_head *list,
				   struct list_head *end)
{
	INIT_LIST_HEAD(cut);
	while (list->next != end) {
		struct list_head *entry = list->next;

		list->next = entry->next;
		entry->next->prev = list;
		link_behind(entry, cut->prev);
	}
}

static inline void list_cut_position(struct list_head *cut, struct list_head *list,
				     struct list_head *last)
{
	list_cut_before(cut, list, last->next);
}

static inline void list_splice_tail(struct list_head *from, struct list_head *list)
{
	while (!list_empty(from)) {
		struct list_head *entry = from->next;

		from->next = entry->next;
		entry->next->prev = from;
		link_behind(entry, list->prev);
	}
}

static inline void list_splice(struct list_head *from, struct list_head *list)
{
	list_splice_tail(from, list->next);
}

#define list_for_each_entry_reverse(entry, list, member)                                           \
	for (entry = list_last_entry(list, __typeof__(*entry), member); &entry->member != (list);  \
	     entry = list_entry(entry->member.prev, __typeof__(*entry), member))

/* Counters under the kernel's names are words of the model's. */
enum vm_event_item {
	COMPACTSTALL = PR_COMPACT_STALL,
	COMPACTFAIL = PR_COMPACT_FAIL,
	COMPACTSUCCESS = PR_COMPACT_SUCCESS,
	COMPACTMIGRATE_SCANNED = PR_COMPACT_MIGRATE_SCANNED,
	COMPACTFREE_SCANNED = PR_COMPACT_FREE_SCANNED,
	COMPACTISOLATED = PR_COMPACT_ISOLATED,
	KCOMPACTD_WAKE = PR_COMPACT_DAEMON_WAKE,
	KCOMPACTD_MIGRATE_SCANNED = PR_COMPACT_DAEMON_MIGRATE_SCANNED,
	KCOMPACTD_FREE_SCANNED = PR_COMPACT_DAEMON_FREE_SCANNED,
};

#undef count_vm_event
#define count_vm_event(item) (pressure[item]++)
#define count_compact_event(item) (pressure[item]++, wake_late(item))
#define count_compact_events(item, delta) (pressure[item] += (delta))

static void wake_late(int item);

#ifdef HAS_split_map_pages
typedef struct page moved_t;
#else
typedef struct folio moved_t;
#endif
typedef moved_t *get_target_t(moved_t *source, unsigned long data);
typedef void put_target_t(moved_t *target, unsigned long data);

static int migrate_pages(struct list_head *from, get_target_t get, put_target_t put,
			 unsigned long data, int mode, int reason, unsigned int *succeeded);
static void putback_movable_pages(struct list_head *list);
static bool folio_test_clear_lru(struct folio *folio);
static void folio_set_lru(struct folio *folio);
static void lru_add_drain_cpu_zone(struct zone *zone);
static void __free_pages(struct page *page, unsigned int order);

/* Daemons: each has a stack of its own, and is left when it sleeps. */
struct daemon {
	ucontext_t context;
	char *stack;
	bool is_asleep, is_woken;
	long left;
};

static struct daemon *daemons;
static ucontext_t the_machine;

#define DAEMON_OF(queue) (&daemons[container_of(queue, pg_data_t, kcompactd_wait)->node_id])
#define wq_has_sleeper(queue) (DAEMON_OF(queue)->is_asleep)
#define wake_up_interruptible(queue) ((void)(DAEMON_OF(queue)->is_woken = true))
#define kthread_should_stop() false
#define msecs_to_jiffies(milliseconds) ((long)(milliseconds))
#define MAX_SCHEDULE_TIMEOUT LONG_MAX
#define set_freezable() ((void)0)
#define cpumask_empty(mask) true
#define set_cpus_allowed_ptr(...) ((void)0)
#define pgdat_kswapd_lock(pgdat) ((void)0)
#define pgdat_kswapd_unlock(pgdat) ((void)0)
#define task_is_running(task) (pgdat->kswapd_active)
#define PF_KCOMPACTD 0x10

static long sleep_for(struct daemon *daemon, long left);

#define wait_event_freezable_timeout(queue, condition, timeout)                                    \
	({                                                                                         \
		long time_left = (timeout);                                                        \
		while (!(condition) && time_left > 0)                                              \
			time_left = sleep_for(DAEMON_OF(&(queue)), time_left);                     \
		(condition) ? max(time_left, 1L) : 0L;                                             \
	})
