/* The machine: nodes, zones, page frames' zones, pageblock types, counters. */

typedef struct pglist_data {
	struct zone node_zones[MAX_NR_ZONES];
	struct zonelist node_zonelists[MAX_ZONELISTS];
	int node_id;
	int nr_zones;
	bool kswapd_active;
	int kswapd_highest;
	wait_queue_head_t kswapd_wait, kcompactd_wait;
	struct task_struct *kswapd, *kcompactd;
	int kcompactd_max_order;
	enum zone_type kcompactd_highest_zoneidx;
	bool proactive_compact_trigger;
	unsigned long node_present_pages;
	unsigned long totalreserve_pages;
	struct per_cpu_nodestat *per_cpu_nodestats;
	atomic_long_t vm_stat[NR_VM_NODE_STAT_ITEMS];
#ifdef SHIM_RECLAIM
	struct reclaim_of_node reclaim;
	struct lruvec __lruvec;
	wait_queue_head_t pfmemalloc_wait, reclaim_wait[NR_VMSCAN_THROTTLE];
	atomic_t nr_writeback_throttled;
	failure_count_t kswapd_failures;
	int kswapd_order;
	enum zone_type kswapd_highest_zoneidx;
	unsigned long flags;
#endif
} pg_data_t;

static pg_data_t *nodes;
static int nr_online_nodes;
static int *cpu_node;
static cpumask_t *node_cpus;
static unsigned long totalreserve_pages;

/* By the model's zone number; a zone that the machine lacks has no number. */
static struct zone **zones;
static int nr_zones;

#ifdef SHIM_SHARED
#define waitqueue_active(queue)                                                                    \
	(!is_kswapd_busy(container_of(queue, pg_data_t, kswapd_wait)->node_id))
#define kswapd_test_hopeless(node)                                                                 \
	(pressure_of_node((node)->node_id)[PR_KSWAPD_FAILURES] >= PR_RETRIES_MAX)
#define kswapd_clear_hopeless(node, reason)                                                        \
	((void)(pressure_of_node((node)->node_id)[PR_KSWAPD_FAILURES] = 0))
#elif !defined(SHIM_RECLAIM)
#define waitqueue_active(queue) (!container_of(queue, pg_data_t, kswapd_wait)->kswapd_active)
#define kswapd_test_hopeless(node) false
#define kswapd_clear_hopeless(node, reason) ((void)0)
#endif
#define NODE_DATA(node) (&nodes[node])
#define numa_node_id() cpu_node[this_cpu]
#define cpu_to_node(cpu) cpu_node[cpu]
#define cpumask_of_node(node) (&node_cpus[node])
#define first_online_node 0
#define next_online_node(node) ((node) + 1 < nr_online_nodes ? (node) + 1 : MAX_NUMNODES)
#define next_memory_node(node) next_online_node(node)
#define node_distance(a, b) 0
#define node_isset(node, mask) true
#define node_reclaim_enabled() false
#define node_reclaim(...) 0
#define NODE_RECLAIM_NOSCAN -2
#define NODE_RECLAIM_FULL -1
#define node_dirty_ok(node) true
#define cpusets_enabled() false
#define __cpuset_zone_allowed(...) true
#define sysctl_numa_balancing_mode 0
#define NUMA_BALANCING_MEMORY_TIERING 2

#define for_each_managed_zone_pgdat(zone, node, number, highest)                                   \
	for ((number) = 0, (zone) = (node)->node_zones; (number) <= (highest);                     \
	     (number)++, (zone)++)                                                                 \
		if (managed_zone(zone))

#define page_zone(page) (zones[(page)->zone - 1])
#define page_zonenum(page) zone_idx(page_zone(page))
#define page_zone_id(page) ((page)->zone)
#define page_to_nid(page) zone_to_nid(page_zone(page))
#define for_each_populated_zone(zone)                                                              \
	for (int zone_number = 0; zone_number < nr_zones; zone_number++)                           \
		if (((zone) = zones[zone_number]), populated_zone(zone))

static unsigned long *pageblock_bits;
static int pageblock_types_set;
static unsigned long *first_types_set, *last_types_set;

#define get_pageblock_bitmap(...) pageblock_bits
#define pfn_to_bitidx(page, pfn) (((pfn) >> pageblock_order) * NR_PAGEBLOCK_BITS)

static inline bool set_pageblock_word(unsigned long *place, unsigned long word)
{
	*place = word;
	pageblock_types_set++;
	if (!first_types_set || place < first_types_set)
		first_types_set = place;
	if (!last_types_set || place > last_types_set)
		last_types_set = place;
	return true;
}

#define try_cmpxchg(place, old, word) set_pageblock_word(place, word)
#define cmpxchg(place, old, word) (set_pageblock_word(place, word), (old))

#ifndef SHIM_RECLAIM
#define __count_vm_events(...) ((void)0)
#define __count_vm_event(...) ((void)0)
#define count_vm_events(...) ((void)0)
#define count_vm_event(...) ((void)0)
#define __count_zid_vm_events(...) ((void)0)
#endif
#define zone_statistics(...) ((void)0)

/* The page set locked last: the one that a drain under way empties. */
static struct per_cpu_pages *last_pcp;

/* Each site of zone->lock finds its number once, by the function it is in. */
#define spin_lock(taken)                                                                           \
	do {                                                                                       \
		static int site = -1;                                                              \
		if (!(taken)->zone) {                                                              \
			last_pcp = container_of(taken, struct per_cpu_pages, lock);                \
		} else {                                                                           \
			if (site < 0)                                                              \
				site = site_of_function(__func__);                                 \
			begin_hold((taken)->zone, site, __LINE__);                                         \
		}                                                                                  \
	} while (0)
#define spin_unlock(taken)                                                                         \
	do {                                                                                       \
		if ((taken)->zone)                                                                 \
			end_hold((taken)->zone);                                                   \
	} while (0)
#define spin_trylock(taken) ({ spin_lock(taken); 1; })
#define spin_lock_irqsave(taken, saved) ((void)(saved), ({ spin_lock(taken); }))
#define spin_unlock_irqrestore(taken, saved) spin_unlock(taken)
#define spin_trylock_irqsave(taken, saved) ((void)(saved), spin_trylock(taken))
#define spin_lock_irq(taken) spin_lock(taken)
#define spin_unlock_irq(taken) spin_unlock(taken)
#define spin_lock_init(taken) ((taken)->zone = NULL)

/* A lock held up to the end of the block. */
#define guard(kind) guard_##kind
#define guard_spinlock_irqsave(wanted)                                                             \
	spinlock_t *guarded __attribute__((cleanup(unlock_guarded))) = (wanted);                   \
	spin_lock(guarded)

static int site_of_function(const char *function);
static void begin_hold(struct zone *zone, int site, int line);
static void end_hold(struct zone *zone);

static inline void unlock_guarded(spinlock_t **guarded)
{
	spin_unlock(*guarded);
}

static void note_moved(struct list_head *entry);
static void note_zone_locked(struct page *page, unsigned int order, int migratetype);
static void note_pcpu_drain(struct page *page, unsigned int order, int migratetype);
static void note_extfrag(struct page *page, int alloc_order, int fallback_order,
			 int alloc_migratetype, int fallback_migratetype);

/* The line of the tree that a row of the log is about. */
static int source_line;

#define trace_mm_page_alloc_zone_locked(page, order, migratetype, ...)                             \
	(source_line = __LINE__, note_zone_locked(page, order, migratetype))
#define trace_mm_page_pcpu_drain(page, order, migratetype)                                         \
	(source_line = __LINE__, note_pcpu_drain(page, order, migratetype))

/* The model has no event of a capture from a block of another type. */
#define trace_mm_page_alloc_extfrag(page, order, fallback_order, migratetype, fallback_type)       \
	do {                                                                                       \
		source_line = __LINE__;                                                            \
		if (__builtin_strcmp(__func__, "compaction_capture"))                              \
			note_extfrag(page, order, fallback_order, migratetype, fallback_type);     \
	} while (0)

#ifndef SHIM_RECLAIM
static void wakeup_kswapd(struct zone *zone, gfp_t gfp_mask, int order, enum zone_type highest);
#endif

static inline void list_move_tail(struct list_head *entry, struct list_head *list)
{
	note_moved(entry);
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
	inserts++;
	link_behind(entry, list->prev);
}
