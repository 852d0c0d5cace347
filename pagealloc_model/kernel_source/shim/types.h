/* Types that the kernel's own types are made of, and what stands for struct page. */

struct zone;
struct zswap_lruvec_state { int unused; };
struct model_page;

/* Locks never wait; zone->lock knows its zone, so that its holds can be told apart and counted. */
typedef struct { struct zone *zone; } spinlock_t;

#define PAGE_IS_BUDDY 1
#define PAGE_IS_MOVABLE 2
#define PAGE_FLAGS_CHECK_AT_PREP 0

/* The kernel's page flags, of which only assertions ask; later trees wrap them. */
#ifdef HAS_memdesc_zonenum
typedef struct { u16 f; } page_flags_t;
#else
typedef u16 page_flags_t;
#endif

/* `index` is where 6.1 keeps the type of a page on a per-CPU list; `zone` is a zone's number + 1. */
struct page {
	union {
		struct list_head lru;
		struct list_head buddy_list;
		struct list_head pcp_list;
	};
	unsigned int private;
	int index;
	page_flags_t flags;
	u16 marks;
	u16 zone;
};

static struct page *mem_map;

#define page_to_pfn(page) ((unsigned long)((page)-mem_map))
#define pfn_to_page(pfn) (mem_map + (pfn))
#define pfn_valid(pfn) true
#define page_private(page) ((page)->private)
#define set_page_private(page, value) ((page)->private = (value))
#define PageBuddy(page) (note_look(__func__), ((page)->marks & PAGE_IS_BUDDY) != 0)
#ifdef SHIM_SHARED
/* Pages of the model's reclaim and compaction, which see at once what is free; else NULL. */
static struct model_page *shared_pages;
static void note_buddy(struct page *page);
static void note_change(struct zone *zone);
static void note_wake(int node, int order, int highest);
static void share_in(void);
static bool is_kswapd_busy(int node);
static int64_t *pressure_of_node(int node);
#else
#define shared_pages NULL
#define note_buddy(page) ((void)0)
#define note_change(zone) ((void)0)
#define note_wake(node, order, highest) ((void)0)
#define share_in() ((void)0)
#endif

#define __mark_buddy(page, marks_now)                                                              \
	do {                                                                                       \
		struct page *marked = (page);                                                      \
		marked->marks = marks_now;                                                         \
		if (shared_pages)                                                                  \
			note_buddy(marked);                                                        \
	} while (0)
#define __SetPageBuddy(page) __mark_buddy(page, marked->marks | PAGE_IS_BUDDY)
#define __ClearPageBuddy(page) __mark_buddy(page, marked->marks & ~PAGE_IS_BUDDY)
#define PageLRU(page) (((page)->marks & PAGE_IS_MOVABLE) != 0)
#define __PageMovable(page) false
#define page_has_movable_ops(page) false
#define page_count(page) 0
#define page_is_guard(page) false
#define set_page_guard(...) false
#define clear_page_guard(...) ((void)0)
#define page_reported(page) false
#define __ClearPageReported(page) ((void)0)
#define page_reporting_notify_free(order) ((void)0)
#define is_shuffle_order(order) false
#define shuffle_pick_tail() false
#define bad_range(zone, page) false
#define check_new_pages(page, order) false
#define check_pcp_refill(page, order) false
#define check_new_pcp(page, order) false
#define bulkfree_pcp_prepare(page) false
#define free_pages_prepare(...) true
#define __free_pages_prepare(...) true
#define free_pcp_prepare(...) true
#define prep_new_page(...) ((void)0)
#define prep_compound_page(...) ((void)0)
#define pageblock_order SHIM_PAGEBLOCK_ORDER
#define page_group_by_mobility_disabled 0
#define deferred_pages_enabled() false
#define add_page_to_zone_llist(...) ((void)0)
#define is_pmd_order(order) ((order) == HPAGE_PMD_ORDER)
#define _deferred_grow_zone(...) false
#define cond_accept_memory(...) false

/* Work under zone->lock: what is split, merged, put on a free list and looked at (S11.1). */
static long splits, merges, inserts, looks;
static bool is_freeing;

static inline __attribute__((always_inline)) void note_look(const char *function)
{
	if (!__builtin_strcmp(function, "prep_move_freepages_block") ||
	    !__builtin_strcmp(function, "__move_freepages_block") ||
	    !__builtin_strcmp(function, "move_freepages"))
		looks++;
}

static inline bool is_buddy(struct list_head *entry)
{
	return list_entry(entry, struct page, lru)->marks & PAGE_IS_BUDDY;
}

/* A buddy is marked before it is put on a list when it was freed, afterwards when it was split. */
static inline void list_add(struct list_head *entry, struct list_head *list)
{
	if (is_buddy(entry))
		inserts++;
	else
		splits++;
	link_behind(entry, list);
}

static inline void list_add_tail(struct list_head *entry, struct list_head *list)
{
	if (is_buddy(entry))
		inserts++;
	link_behind(entry, list->prev);
}

static inline void list_del(struct list_head *entry)
{
	if (is_freeing && is_buddy(entry))
		merges++;
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
}
