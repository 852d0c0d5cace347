/*
 * The model's reclaim and compaction at work on this kernel's pages. They ask one thing at a time,
 * and see free pages, free lists, counters and block types in the model's own arrays, which every
 * answer brings up to date. What they change themselves is read before the next answer.
 */
static bool zone_has_changed[MAX_NUMNODES * MAX_NR_ZONES];

/* The kernel's own flags of the request under way. */
static unsigned int request_flags;

/* The page that a direct run's own frees make, and which it is to be; 7.2 has both in one. */
static struct capture_control captured;
#ifdef HAS_capture_control_order
#define wanted_page captured
#else
static struct compact_control wanted_page;
#endif

static int64_t *pressure_of_node(int node)
{
	return st + st[st[AT_PRESSURE_BASE] + PR_NODES_BASE] + node * PR_NODE_WORDS;
}

/* Whether kswapd of a node neither sleeps nor naps, from when it is woken. */
static bool is_kswapd_busy(int node)
{
	int64_t *words = pressure_of_node(node);

	return words[PR_KSWAPD_PHASE] == PR_RUNNING || words[PR_KSWAPD_WOKEN];
}

static void note_change(struct zone *zone)
{
	zone_has_changed[number_of(zone)] = true;
}

/* A page that is marked as free, or no longer. */
static void note_buddy(struct page *page)
{
	struct model_page *record = shared_pages + page_to_pfn(page);

	record->where = page->marks & PAGE_IS_BUDDY ? AT_BUDDY : AT_NOWHERE;
	record->order = page->private;
}

/* kswapd's wakes are noted, for the model's kswapd to act on. */
static void note_wake(int node, int order, int highest)
{
	int64_t *words = st + st[AT_NODE_BASE] + node * AT_NODE_STRIDE;

	words[AT_NODE_WAKE_ASKED] = 1;
	words[AT_NODE_WAKE_ORDER] = max(words[AT_NODE_WAKE_ORDER], (int64_t)order);
	words[AT_NODE_WAKE_HIGHEST] =
		max(words[AT_NODE_WAKE_HIGHEST], (int64_t)model_type_below(highest));
}

static void mark_movable(struct page *page, unsigned int order)
{
	for (long each = 0; each < 1L << order; each++)
		page[each].marks |= PAGE_IS_MOVABLE;
}

/* Let a direct run under way have the page that it waits for. */
static void share_capture_in(void)
{
	current->capture_control = NULL;
	if (!st[AT_CAPTURE_ZONE])
		return;
	captured.page = NULL;
	wanted_page.zone = zones[st[AT_CAPTURE_ZONE] - 1];
	wanted_page.order = st[AT_CAPTURE_ORDER];
	wanted_page.migratetype = st[AT_CAPTURE_TYPE];
#ifndef HAS_capture_control_order
	captured.cc = &wanted_page;
#endif
	current->capture_control = &captured;
}

static void share_capture_out(void)
{
	if (!current->capture_control || !captured.page)
		return;
	if (wanted_page.migratetype == MIGRATE_MOVABLE)
		mark_movable(captured.page, wanted_page.order);
	st[AT_CAPTURED] = page_to_pfn(captured.page);
	st[AT_CAPTURE_ZONE] = 0;
}

/* What the model's kswapd and compaction have changed. */
static void share_in(void)
{
	this_cpu = st[AT_EVENT_CPU];
	share_capture_in();
	for (int node = 0; node < nr_online_nodes; node++) {
		int64_t *words = st + st[AT_NODE_BASE] + node * AT_NODE_STRIDE;

		nodes[node].kswapd_active = words[AT_NODE_KSWAPD_ACTIVE];
		nodes[node].kswapd_highest = kernel_type[words[AT_NODE_KSWAPD_HIGHEST]];
	}
	for (int number = 0; number < nr_zones; number++) {
		struct zone *zone = zones[number];
		int64_t *words = zone_words(number);

		zone->watermark_boost = words[AT_ZONE_BOOST];
		remembered_boost[number] = words[AT_ZONE_REMEMBERED_BOOST];
		if (words[AT_ZONE_RECLAIM_ACTIVE])
			set_bit(ZONE_RECLAIM_ACTIVE, &zone->flags);
		else
			clear_bit(ZONE_RECLAIM_ACTIVE, &zone->flags);
		for (int cpu = 0; cpu < online_cpus; cpu++)
			per_cpu_ptr(zone->per_cpu_zonestats, cpu)->stat_threshold =
				words[AT_ZONE_THRESHOLD];
	}
}

static bool is_counted_apart(int type)
{
	return is_migrate_isolate(type) ||
	       (type == MIGRATE_HIGHATOMIC && st[AT_POLICY_SCORE_WITHOUT_HIGHATOMIC]);
}

static long length_of(struct list_head *list)
{
	long length = 0;

	for (struct list_head *entry = list->next; entry != list; entry = entry->next)
		length++;
	return length;
}

/* Ends of each list. Buddies are counted by order: for type 0, but for types that count apart. */
static void share_free_lists(struct zone *zone, int64_t *words)
{
	for (int order = 0; order < MAX_BUDDY_ORDER + 1; order++)
		for (int type = 0; type < MIGRATE_TYPES; type++) {
			struct list_head *from = &zone->free_area[order].free_list[type];
			int64_t *list = words + AT_ZONE_LISTS +
					(order * AT_MIGRATETYPES + type) * AT_LIST_WORDS;

			list[AT_HEAD] = list[AT_TAIL] = -1;
			if (!list_empty(from)) {
				list[AT_HEAD] = page_to_pfn(list_first_entry(from, struct page, lru));
				list[AT_TAIL] = page_to_pfn(list_last_entry(from, struct page, lru));
			}
			list[AT_ENTRIES] = type ? 0 : zone->free_area[order].nr_free;
			if (is_counted_apart(type)) {
				list[AT_ENTRIES] = length_of(from);
				words[AT_ZONE_LISTS + order * AT_MIGRATETYPES * AT_LIST_WORDS +
				      AT_ENTRIES] -= list[AT_ENTRIES];
			}
		}
}

/* Types of the pageblocks whose words were written. */
static void share_block_types(void)
{
	long per_word = 64 / NR_PAGEBLOCK_BITS;
	long block = (first_types_set - pageblock_bits) * per_word;
	long end = (last_types_set + 1 - pageblock_bits) * per_word;

	if (!first_types_set)
		return;
	for (end = min(end, frames >> pageblock_order); block < end; block++)
		if (model_blocks[block].zone)
			model_blocks[block].migratetype = get_pageblock_migratetype(
				page_of_block(block, model_blocks[block].zone - 1));
	first_types_set = last_types_set = NULL;
}

static void share_out(void)
{
	for (int number = 0; number < nr_zones; number++) {
		struct zone *zone = zones[number];
		int64_t *words = zone_words(number);

		words[AT_ZONE_BOOST] = zone->watermark_boost;
		words[AT_ZONE_BOOSTED] = test_bit(ZONE_BOOSTED_WATERMARK, &zone->flags);
#ifdef HAS_ZONE_BELOW_HIGH
		words[AT_ZONE_BELOW_HIGH] = test_bit(ZONE_BELOW_HIGH, &zone->flags);
#endif
		if (!zone_has_changed[number])
			continue;
		zone_has_changed[number] = false;
		words[AT_ZONE_RESERVED_HIGHATOMIC] = zone->nr_reserved_highatomic;
#ifdef HAS_zone_nr_free_highatomic
		words[AT_ZONE_FREE_HIGHATOMIC] = zone->nr_free_highatomic;
#endif
		store_counters(zone, number);
		share_free_lists(zone, words);
	}
	share_block_types();
	share_capture_out();
}

/* The free list whose words begin at an offset of the model's. */
static struct list_head *free_list_of(long offset, struct zone **zone)
{
	long number = (offset - AT_ZONES) / AT_ZONE_STRIDE;
	long list = (offset - AT_ZONES - number * AT_ZONE_STRIDE - AT_ZONE_LISTS) / AT_LIST_WORDS;

	*zone = zones[number];
	return &(*zone)->free_area[list / AT_MIGRATETYPES].free_list[list % AT_MIGRATETYPES];
}

static long pfn_of_entry(struct list_head *entry, struct list_head *list)
{
	return entry == list ? -1 : (long)page_to_pfn(list_entry(entry, struct page, lru));
}

/* Write links of a free list out, for a fast search: of so many pages from one of its ends. */
static void share_links(long offset, long most, bool from_tail)
{
	struct zone *zone;
	struct list_head *list = free_list_of(offset, &zone);
	struct list_head *entry = from_tail ? list->prev : list->next;

	for (; entry != list && most > 0; most--) {
		struct model_page *record = shared_pages + pfn_of_entry(entry, list);

		record->next = pfn_of_entry(entry->next, list);
		record->prev = pfn_of_entry(entry->prev, list);
		entry = from_tail ? entry->prev : entry->next;
	}
}

/* Let a free list begin with one of its pages, or the one behind; what precedes it comes last. */
static void move_in_list(long offset, long pfn, bool is_behind)
{
	struct zone *zone;
	struct list_head *list = free_list_of(offset, &zone);
	struct list_head *first = &pfn_to_page(pfn)->lru;

	if (is_behind)
		first = first->next;
	if (first == list)
		return;
	list->prev->next = list->next;
	list->next->prev = list->prev;
	link_behind(list, first->prev);
	note_change(zone);
}

/* The kernel's flags of an attempt: of its own, less or more what the model's slow path changed. */
static unsigned int flags_of_attempt(int64_t model_flags, gfp_t gfp_mask)
{
	unsigned int alloc_flags = request_flags;

	if (!(model_flags & AT_ALLOC_NOFRAGMENT))
		alloc_flags &= ~ALLOC_NOFRAGMENT;
	if (model_flags & AT_ALLOC_NO_WATERMARKS) {
		unsigned int kswapd = alloc_flags & ALLOC_KSWAPD;
		int reserve_flags = CALL___gfp_pfmemalloc_flags;

		if (!reserve_flags)
			return alloc_flags | ALLOC_NO_WATERMARKS;
		alloc_flags = reserve_flags;
		alloc_flags |= CALL_cma_flags | kswapd;
	}
	return alloc_flags;
}

static long take_page(unsigned int order, int migratetype, int highest_type, unsigned int bits,
		      int64_t model_flags)
{
	gfp_t gfp_mask = gfp_mask_of(bits, migratetype);
	struct alloc_context local = context_of(migratetype, highest_type, bits);
	struct alloc_context *ac = &local;
	unsigned int alloc_flags = flags_of_attempt(model_flags, gfp_mask);
	struct page *page;

	request_order = order;
	request_migratetype = migratetype;
	page = CALL_get_page_from_freelist;
	if (!page)
		return -1;
	if (migratetype == MIGRATE_MOVABLE)
		mark_movable(page, order);
	return page_to_pfn(page);
}

static void set_request_flags(bool is_fast, unsigned int order, int migratetype, int highest_type,
			      unsigned int bits)
{
	gfp_t gfp_mask = gfp_mask_of(bits, migratetype);
	struct alloc_context local = context_of(migratetype, highest_type, bits);
	struct alloc_context *ac = &local;
	unsigned int alloc_flags = request_flags;

	if (is_fast)
		request_flags = fast_path_flags(gfp_mask, order, ac);
	else
		request_flags = CALL_slow_path_flags;
}

static bool isolate(long pfn, unsigned int order)
{
	struct page *page = pfn_to_page(pfn);

	note_change(page_zone(page));
	return CALL___isolate_free_page != 0;
}

static bool unreserve(int migratetype, int highest_type, unsigned int bits, bool force)
{
	struct alloc_context local = context_of(migratetype, highest_type, bits);
	struct alloc_context *ac = &local;

	st[AT_COUNT_UNRESERVE_CALLS]++;
	return CALL_unreserve_highatomic_pageblock;
}

static void tick_of(int cpu)
{
	for (int number = 0; number < nr_zones; number++)
		note_change(zones[number]);
	visit_lists(cpu);
}

static int64_t answer(int64_t what, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e)
{
	switch (what) {
	case ASK_FAST_FLAGS:
	case ASK_SLOW_FLAGS:
		set_request_flags(what == ASK_FAST_FLAGS, a, b, c, d);
		return 0;
	case ASK_PAGE:
		return take_page(a, b, c, d, e);
	case ASK_FREE:
		free_pages_of(a, b);
		return 0;
	case ASK_ISOLATE:
		return isolate(a, b);
	case ASK_MARK_MOVABLE:
		mark_movable(pfn_to_page(a), b);
		return 0;
	case ASK_DRAIN:
		drain_lists(a, b);
		return 0;
	case ASK_DRAIN_ALL:
		drain_everything();
		return 0;
	case ASK_UNRESERVE:
		return unreserve(a, b, c, d);
	case ASK_TICK:
		tick_of(a);
		return 0;
	case ASK_GROW:
		grow_zone(a, b, c);
		return 0;
	case ASK_SET_HIGH:
		set_pcp_high(a, b, c);
		return 0;
	case ASK_LIST_HEAD:
	case ASK_LIST_TAIL:
		share_links(a, b, what == ASK_LIST_TAIL);
		return 0;
	case ASK_MOVE_HEAD:
	case ASK_MOVE_TAIL:
		move_in_list(a, b, what == ASK_MOVE_TAIL);
		return 0;
	}
	return -1;
}

/*
 * Answer one question. The first arguments are the arrays that an answer may write; it knows them
 * already, but compiled code that asks must not take them for unchanged.
 */
int64_t shim_ask(void *pages, void *blocks, void *words, void *rows, int64_t what, int64_t a,
		 int64_t b, int64_t c, int64_t d, int64_t e)
{
	int64_t answered;

	share_in();
	answered = answer(what, a, b, c, d, e);
	share_out();
	return answered;
}

/* Share pages with the model from now on. The log is where holds are written. */
void shim_share(struct model_page *pages, struct model_row *rows, int32_t *lines, long capacity)
{
	shared_pages = pages;
	log_rows = rows;
	log_lines = lines;
	log_capacity = capacity;
	current->capture_control = NULL;
	for (int number = 0; number < nr_zones; number++)
		note_change(zones[number]);
	share_out();
}
