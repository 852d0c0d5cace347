/* The model's state into the kernel's structures, and back. */

struct model_page {
	int32_t next, prev;
	int8_t order, where;
	int16_t tag;
};

struct model_block {
	int8_t migratetype, zone;
};

static struct model_block *model_blocks;
static char *percpu_area;
static unsigned long *remembered_boost;
static int kernel_type[AT_ZONE_TYPES_MAX];
static long frames;

/* The kernel's number of a zone type; they are configured to be those of the machine. */
static int type_of_name(int64_t name)
{
	static const int types[] = {
#ifdef CONFIG_ZONE_DMA
		ZONE_DMA,
#else
		-1,
#endif
		ZONE_DMA32,
		ZONE_NORMAL,
#ifdef CONFIG_HIGHMEM
		ZONE_HIGHMEM,
#else
		-1,
#endif
		ZONE_MOVABLE,
#ifdef CONFIG_ZONE_DEVICE
		ZONE_DEVICE,
#else
		-1,
#endif
	};

	return types[name];
}

/* Largest type of the model that is no higher than one of the kernel's. */
static int model_type_below(int type)
{
	int found = 0;

	for (int each = 0; each < st[AT_ZONE_TYPES]; each++)
		if (kernel_type[each] <= type)
			found = each;
	return found;
}

static void load_free_lists(struct zone *zone, int64_t *words, struct model_page *pages)
{
	for (int order = 0; order < MAX_BUDDY_ORDER + 1; order++)
		for (int type = 0; type < MIGRATE_TYPES; type++) {
			int64_t *list = words + AT_ZONE_LISTS +
					(order * AT_MIGRATETYPES + type) * AT_LIST_WORDS;

			INIT_LIST_HEAD(&zone->free_area[order].free_list[type]);
			for (long pfn = list[AT_HEAD]; pfn >= 0; pfn = pages[pfn].next) {
				struct page *page = pfn_to_page(pfn);

				list_add_tail(&page->lru, &zone->free_area[order].free_list[type]);
				zone->free_area[order].nr_free++;
				set_page_private(page, order);
				__SetPageBuddy(page);
			}
		}
}

static void load_page_set(struct per_cpu_pages *pcp, int64_t *words, struct model_page *pages)
{
	pcp->count = words[AT_PCP_COUNT];
	pcp->high = words[AT_PCP_HIGH];
	pcp->batch = words[AT_PCP_BATCH];
	pcp->expire = words[AT_PCP_EXPIRE];
#ifdef HAS_per_cpu_pages_high_min
	pcp->high_min = words[AT_PCP_HIGH_MIN];
	pcp->high_max = words[AT_PCP_HIGH_MAX];
	pcp->alloc_factor = words[AT_PCP_ALLOC_FACTOR];
	pcp->free_count = words[AT_PCP_FREE_COUNT];
	pcp->flags = words[AT_PCP_PREV_FREE_HIGH_ORDER] ? PCPF_PREV_FREE_HIGH_ORDER : 0;
	if (st[AT_FREE_HIGH_BATCH])
		pcp->flags |= PCPF_FREE_HIGH_BATCH;
#else
	pcp->free_factor = words[AT_PCP_FREE_FACTOR];
#endif
	for (int list = 0; list < NR_PCP_LISTS; list++) {
		INIT_LIST_HEAD(&pcp->lists[list]);
		for (long pfn = words[AT_PCP_LISTS + list * AT_LIST_WORDS + AT_HEAD]; pfn >= 0;
		     pfn = pages[pfn].next) {
			list_add_tail(&pfn_to_page(pfn)->lru, &pcp->lists[list]);
			pfn_to_page(pfn)->index = pages[pfn].tag;
		}
	}
}

static bool have_percpu_area(void)
{
	percpu_unit = nr_zones * (sizeof(struct per_cpu_pages) + sizeof(struct per_cpu_zonestat)) +
		      nr_online_nodes * sizeof(struct per_cpu_nodestat);
	percpu_unit = ALIGN(percpu_unit, 64);
	percpu_area = calloc(online_cpus, percpu_unit);
	return percpu_area != NULL;
}

/* Where in a CPU's unit what is: first the page sets, then zones' counters, then nodes'. */
static struct per_cpu_zonestat *zone_counters(int number)
{
	return (struct per_cpu_zonestat *)((struct per_cpu_pages *)percpu_area + nr_zones) + number;
}

static struct per_cpu_nodestat *node_counters(int node)
{
	return (struct per_cpu_nodestat *)zone_counters(nr_zones) + node;
}

static void load_counters(struct zone *zone, int number)
{
	int64_t *words = zone_words(number);

	zone->per_cpu_zonestats = zone_counters(number);
	zone->percpu_drift_mark = words[AT_ZONE_DRIFT_MARK];
	atomic_long_set(&zone->vm_stat[NR_FREE_PAGES],
			words[AT_ZONE_FREE] - words[AT_ZONE_FREE_UNFOLDED]);
#ifdef CONFIG_CMA
	atomic_long_set(&zone->vm_stat[NR_FREE_CMA_PAGES],
			words[AT_ZONE_FREE_CMA] - words[AT_ZONE_FREE_CMA_UNFOLDED]);
#endif
	for (int cpu = 0; cpu < online_cpus; cpu++) {
		struct per_cpu_zonestat *counters = per_cpu_ptr(zone->per_cpu_zonestats, cpu);

		counters->stat_threshold = words[AT_ZONE_THRESHOLD];
		counters->vm_stat_diff[NR_FREE_PAGES] = pcp_words(number, cpu)[AT_PCP_FREE_DELTA];
#ifdef CONFIG_CMA
		counters->vm_stat_diff[NR_FREE_CMA_PAGES] =
			pcp_words(number, cpu)[AT_PCP_FREE_CMA_DELTA];
#endif
	}
}

static void load_zone(int number, struct model_page *pages)
{
	int64_t *words = zone_words(number);
	pg_data_t *node = NODE_DATA(words[AT_ZONE_NODE]);
	struct zone *zone = &node->node_zones[kernel_type[words[AT_ZONE_TYPE]]];

	zones[number] = zone;
	zone->zone_start_pfn = words[AT_ZONE_START];
	zone->spanned_pages = words[AT_ZONE_END] - words[AT_ZONE_START];
	zone->present_pages = words[AT_ZONE_MANAGED] ? zone->spanned_pages : 0;
	atomic_long_set(&zone->managed_pages, words[AT_ZONE_MANAGED]);
	zone->_watermark[WMARK_MIN] = words[AT_ZONE_MIN];
	zone->_watermark[WMARK_LOW] = words[AT_ZONE_LOW];
	zone->_watermark[WMARK_HIGH] = words[AT_ZONE_HIGH];
	zone->watermark_boost = words[AT_ZONE_BOOST];
	zone->nr_reserved_highatomic = words[AT_ZONE_RESERVED_HIGHATOMIC];
#ifdef HAS_zone_nr_free_highatomic
	zone->nr_free_highatomic = words[AT_ZONE_FREE_HIGHATOMIC];
#endif
	load_counters(zone, number);
#ifdef HAS_ZONE_BELOW_HIGH
	if (words[AT_ZONE_BELOW_HIGH])
		set_bit(ZONE_BELOW_HIGH, &zone->flags);
#endif
	if (words[AT_ZONE_RECLAIM_ACTIVE])
		set_bit(ZONE_RECLAIM_ACTIVE, &zone->flags);
	if (words[AT_ZONE_BOOSTED])
		set_bit(ZONE_BOOSTED_WATERMARK, &zone->flags);
	remembered_boost[number] = words[AT_ZONE_REMEMBERED_BOOST];
	for (int type = 0; type < MAX_NR_ZONES; type++)
		zone->lowmem_reserve[type] = words[AT_ZONE_LOWMEM_RESERVE + model_type_below(type)];
	zone->initialized = 1;
	zone->lock.zone = zone;
	load_free_lists(zone, words, pages);
	zone->per_cpu_pageset = (struct per_cpu_pages *)percpu_area + number;
	for (int cpu = 0; cpu < online_cpus; cpu++)
		load_page_set(per_cpu_ptr(zone->per_cpu_pageset, cpu), pcp_words(number, cpu), pages);
}

static void load_nodes(void)
{
	nodes = calloc(nr_online_nodes, sizeof(*nodes));
	cpu_node = calloc(online_cpus, sizeof(*cpu_node));
	node_cpus = calloc(nr_online_nodes, sizeof(*node_cpus));
	for (int cpu = 0; cpu < online_cpus; cpu++) {
		cpu_node[cpu] = st[st[AT_CPU_NODE_BASE] + cpu];
		cpumask_set_cpu(cpu, &node_cpus[cpu_node[cpu]]);
	}
	for (int node = 0; node < nr_online_nodes; node++) {
		int64_t *words = st + st[AT_NODE_BASE] + node * AT_NODE_STRIDE;

		nodes[node].node_id = node;
		nodes[node].per_cpu_nodestats = node_counters(node);
		nodes[node].nr_zones = MAX_NR_ZONES;
		nodes[node].kswapd_active = words[AT_NODE_KSWAPD_ACTIVE];
		nodes[node].kswapd_highest = kernel_type[words[AT_NODE_KSWAPD_HIGHEST]];
		for (int type = 0; type < MAX_NR_ZONES; type++) {
			struct zone *zone = &nodes[node].node_zones[type];

			zone->zone_pgdat = &nodes[node];
			zone->node = node;
			zone->per_cpu_pageset = NULL;
			for (int order = 0; order < MAX_BUDDY_ORDER + 1; order++)
				for (int list = 0; list < MIGRATE_TYPES; list++)
					INIT_LIST_HEAD(&zone->free_area[order].free_list[list]);
		}
	}
}

/* The model's lists for the highest type; the kernel leaves out what a request may not use. */
static void load_zonelists(void)
{
	for (int which = 0; which < 2 * nr_online_nodes; which++) {
		struct zonelist *list = &nodes[which % nr_online_nodes].node_zonelists[which / nr_online_nodes];
		int64_t *words = st + st[AT_ZONELIST_BASE] +
				 ((which + 1) * st[AT_ZONE_TYPES] - 1) * (nr_zones + 1);
		int length = 0;

		for (; words[length] >= 0; length++) {
			list->_zonerefs[length].zone = zones[words[length]];
			list->_zonerefs[length].zone_idx = zone_idx(zones[words[length]]);
		}
		list->_zonerefs[length].zone = NULL;
		list->_zonerefs[length].zone_idx = 0;
	}
}

static void load_page_frames(struct model_page *pages, struct model_block *blocks)
{
	for (long block = 0; block < frames >> pageblock_order; block++)
		for (long pfn = block << pageblock_order; pfn < (block + 1) << pageblock_order; pfn++)
			pfn_to_page(pfn)->zone = blocks[block].zone;
	for (long pfn = 0; pfn < frames; pfn++)
		if (pages[pfn].where == AT_ALLOCATED && pages[pfn].tag == 1)
			for (long page = pfn; page < pfn + (1L << pages[pfn].order); page++)
				pfn_to_page(page)->marks |= PAGE_IS_MOVABLE;
}

static void set_block_type(struct page *page, int type)
{
#if defined(HAS_set_pfnblock_bit) && defined(CONFIG_MEMORY_ISOLATION)
	if (type == MIGRATE_ISOLATE) {
		set_pageblock_isolate(page);
		return;
	}
#endif
	set_pageblock_migratetype(page, type);
}

/* A page of a block that its zone spans; zones may begin within a block. */
static struct page *page_of_block(long block, int number)
{
	return pfn_to_page(max(block << pageblock_order, (long)zones[number]->zone_start_pfn));
}

static void load_block_types(struct model_block *blocks)
{
	for (long block = 0; block < frames >> pageblock_order; block++)
		if (blocks[block].zone) {
			struct page *page = page_of_block(block, blocks[block].zone - 1);

			set_block_type(page, blocks[block].migratetype);
#ifdef CONFIG_MEMORY_ISOLATION
			if (blocks[block].migratetype == MIGRATE_ISOLATE)
				page_zone(page)->nr_isolate_pageblock++;
#endif
		}
}

/* Begin where a state of the model is. Returns 0, or 1 if memory is short. */
int shim_load(int64_t *words, struct model_page *pages, struct model_block *blocks,
	      long page_frames, const int64_t *zone_type_names)
{
	long behind = 2L << MAX_BUDDY_ORDER;

	st = words;
	frames = page_frames;
	model_blocks = blocks;
	online_cpus = st[AT_NR_CPUS];
	nr_zones = st[AT_NR_ZONES];
	nr_online_nodes = st[AT_NR_NODES];
	for (int type = 0; type < st[AT_ZONE_TYPES]; type++)
		kernel_type[type] = type_of_name(zone_type_names[type]);
	mem_map = calloc((frames + behind) & -behind, sizeof(*mem_map));
	pageblock_bits = calloc(((frames + behind) >> pageblock_order) + 64, 8);
	zones = calloc(nr_zones, sizeof(*zones));
	remembered_boost = calloc(nr_zones, sizeof(*remembered_boost));
	if (!mem_map || !pageblock_bits || !zones || !remembered_boost || !have_percpu_area())
		return 1;
	watermark_boost_factor = st[AT_POLICY_WATERMARK_BOOST_FACTOR];
#ifdef HAS_defrag_mode
	defrag_mode = st[AT_POLICY_DEFRAG_MODE];
#endif
	load_page_frames(pages, blocks);
	load_nodes();
	for (int zone = 0; zone < nr_zones; zone++)
		load_zone(zone, pages);
	load_zonelists();
	load_block_types(blocks);
	first_types_set = last_types_set = NULL;
	broken_assertion = NULL;
	return 0;
}

void shim_unload(void)
{
#ifdef SHIM_SHARED
	shared_pages = NULL;
#endif
	free(mem_map);
	free(pageblock_bits);
	free(percpu_area);
	free(zones);
	free(remembered_boost);
	free(nodes);
	free(cpu_node);
	free(node_cpus);
}

static void store_list(struct list_head *from, int64_t *list, struct model_page *pages, int where,
		       int order, int type)
{
	long last = -1;
	struct page *page;

	list[AT_HEAD] = list[AT_TAIL] = -1;
	list[AT_ENTRIES] = 0;
	list_for_each_entry(page, from, lru) {
		long pfn = page_to_pfn(page);

		list[AT_ENTRIES]++;
		list[AT_TAIL] = pfn;
		if (last < 0)
			list[AT_HEAD] = pfn;
		else if (pages)
			pages[last].next = pfn;
		if (pages)
			pages[pfn] = (struct model_page){
				.next = -1, .prev = last, .order = order, .where = where,
				.tag = type < 0 ? page->index : type,
			};
		last = pfn;
	}
}

static void store_page_set(struct per_cpu_pages *pcp, int64_t *words, struct model_page *pages)
{
	words[AT_PCP_COUNT] = pcp->count;
	words[AT_PCP_HIGH] = pcp->high;
	words[AT_PCP_BATCH] = pcp->batch;
	words[AT_PCP_EXPIRE] = nr_online_nodes > 1 ? pcp->expire : 0;
#ifdef HAS_per_cpu_pages_high_min
	words[AT_PCP_HIGH_MIN] = pcp->high_min;
	words[AT_PCP_HIGH_MAX] = pcp->high_max;
	words[AT_PCP_ALLOC_FACTOR] = pcp->alloc_factor;
	words[AT_PCP_FREE_COUNT] = pcp->free_count;
	words[AT_PCP_PREV_FREE_HIGH_ORDER] = (pcp->flags & PCPF_PREV_FREE_HIGH_ORDER) != 0;
#else
	words[AT_PCP_FREE_FACTOR] = pcp->free_factor;
#endif
	for (int list = 0; list < NR_PCP_LISTS; list++)
		store_list(&pcp->lists[list], words + AT_PCP_LISTS + list * AT_LIST_WORDS, pages,
			   AT_ON_PCP, pindex_to_order(list), -1);
}

/* Where the kernel does not count them: pages of the highatomic free lists just stored. */
static inline long free_highatomic(int64_t *words)
{
	long pages = 0;

	for (int order = 0; order < MAX_BUDDY_ORDER + 1; order++)
		pages += words[AT_ZONE_LISTS +
			       (order * AT_MIGRATETYPES + MIGRATE_HIGHATOMIC) * AT_LIST_WORDS +
			       AT_ENTRIES] << order;
	return pages;
}

static void store_counters(struct zone *zone, int number)
{
	int64_t *words = zone_words(number);

	words[AT_ZONE_THRESHOLD] = zone->per_cpu_zonestats->stat_threshold;
	words[AT_ZONE_FREE] = counted(zone, NR_FREE_PAGES);
	words[AT_ZONE_FREE_UNFOLDED] =
		words[AT_ZONE_FREE] - atomic_long_read(&zone->vm_stat[NR_FREE_PAGES]);
#ifdef CONFIG_CMA
	words[AT_ZONE_FREE_CMA] = counted(zone, NR_FREE_CMA_PAGES);
	words[AT_ZONE_FREE_CMA_UNFOLDED] =
		words[AT_ZONE_FREE_CMA] - atomic_long_read(&zone->vm_stat[NR_FREE_CMA_PAGES]);
#endif
	for (int cpu = 0; cpu < online_cpus; cpu++) {
		s8 *held_back = per_cpu_ptr(zone->per_cpu_zonestats, cpu)->vm_stat_diff;

		pcp_words(number, cpu)[AT_PCP_FREE_DELTA] = held_back[NR_FREE_PAGES];
#ifdef CONFIG_CMA
		pcp_words(number, cpu)[AT_PCP_FREE_CMA_DELTA] = held_back[NR_FREE_CMA_PAGES];
#endif
	}
}

static void store_zone(int number, struct model_page *pages)
{
	struct zone *zone = zones[number];
	int64_t *words = zone_words(number);

	for (int order = 0; order < MAX_BUDDY_ORDER + 1; order++)
		for (int type = 0; type < MIGRATE_TYPES; type++)
			store_list(&zone->free_area[order].free_list[type],
				   words + AT_ZONE_LISTS +
					   (order * AT_MIGRATETYPES + type) * AT_LIST_WORDS,
				   pages, AT_BUDDY, order, type);
	words[AT_ZONE_BOOST] = zone->watermark_boost;
	words[AT_ZONE_RESERVED_HIGHATOMIC] = zone->nr_reserved_highatomic;
#ifdef HAS_zone_nr_free_highatomic
	words[AT_ZONE_FREE_HIGHATOMIC] = zone->nr_free_highatomic;
#else
	words[AT_ZONE_FREE_HIGHATOMIC] = free_highatomic(words);
#endif
	store_counters(zone, number);
#ifdef HAS_ZONE_BELOW_HIGH
	words[AT_ZONE_BELOW_HIGH] = test_bit(ZONE_BELOW_HIGH, &zone->flags);
#endif
	words[AT_ZONE_RECLAIM_ACTIVE] = test_bit(ZONE_RECLAIM_ACTIVE, &zone->flags);
	words[AT_ZONE_BOOSTED] = test_bit(ZONE_BOOSTED_WATERMARK, &zone->flags);
	words[AT_ZONE_REMEMBERED_BOOST] = remembered_boost[number];
	for (int cpu = 0; cpu < online_cpus; cpu++)
		store_page_set(per_cpu_ptr(zone->per_cpu_pageset, cpu), pcp_words(number, cpu),
			       pages);
}

/*
 * Write counters, lists' ends and lengths and block types into the state that was loaded; if `pages`
 * is given, also its free pages. Pages in use are left out.
 */
void shim_store(struct model_page *pages, struct model_block *blocks)
{
	if (shared_pages)
		share_in();
	if (pages)
		memset(pages, 0, frames * sizeof(*pages));
	for (int number = 0; number < nr_zones; number++)
		store_zone(number, pages);
	for (int node = 0; node < nr_online_nodes; node++) {
		int64_t *words = st + st[AT_NODE_BASE] + node * AT_NODE_STRIDE;

		words[AT_NODE_KSWAPD_ACTIVE] = nodes[node].kswapd_active;
		words[AT_NODE_KSWAPD_HIGHEST] = model_type_below(nodes[node].kswapd_highest);
	}
	for (long block = 0; block < frames >> pageblock_order; block++)
		if (blocks[block].zone)
			blocks[block].migratetype =
				get_pageblock_migratetype(page_of_block(block, blocks[block].zone - 1));
}

/* The first assertion of the kernel's that did not hold: its text, NULL if all held. */
const char *shim_broken_assertion(int *line)
{
	*line = broken_assertion_line;
	return broken_assertion;
}
