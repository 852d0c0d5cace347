/* Types that mm/vmscan.c names: folios, tasks that sleep, what a node keeps for reclaim. */
#include <ucontext.h>

struct folio {
	union {
		struct list_head lru;
		struct page page;
	};
};

#ifdef HAS_kswapd_test_hopeless
typedef atomic_t failure_count_t;
#else
typedef int failure_count_t;
#endif

typedef unsigned long vm_flags_t;
typedef struct { unsigned long bits; } vma_flags_t;
struct mem_cgroup;
struct reclaim_state { unsigned long reclaimed, reclaimed_slab; };
struct blk_plug { int unused; };
struct folio_batch { int nr; };
struct mem_cgroup_reclaim_cookie { struct pglist_data *pgdat; };

/* What a task's kswapd is about to do: it is a context that runs until it sleeps. */
enum kswapd_sleep { ASLEEP = PR_ASLEEP, AWAKE = PR_RUNNING, NAPPING = PR_NAPPING };

struct reclaim_of_node {
	ucontext_t context;
	char *stack;
	enum kswapd_sleep sleep;
	bool woken;
	int kcompactd_order, kcompactd_highest;
};

/* An allocated page by its first frame: its order and one, 0 for none; its LRU list. */
struct in_use { u8 order_plus_one, active, is_listed; };

/* The model's record of a folio (see `FOLIO`). */
struct model_folio {
	int32_t object, offset, sibling;
	int8_t place, kind;
	uint8_t scans, writes;
	int8_t skip, referenced;
	int16_t slab;
};
