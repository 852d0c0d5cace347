/* One operation after another on a node's reclaim, and what both sides ask about a folio. */

struct reclaim_operation {
	int32_t kind, node, zone, order;
	uint32_t bits;
	int32_t migratetype, class, page;
};

enum { TAKE, LET_GO, USE, WAKE, RUN, END_NAP, RECLAIM };

static int node_with_memory_behind(int node)
{
	while (++node < nr_online_nodes)
		for (int number = 0; number < nr_zones; number++)
			if (zones[number]->zone_pgdat == &nodes[node] && managed_zone(zones[number]))
				return node;
	return MAX_NUMNODES;
}

static int64_t *words_of(int offset)
{
	return st + st[AT_PRESSURE_BASE] + offset;
}

static int64_t value_of(int offset)
{
	return *words_of(offset);
}

static int64_t *node_words(int node)
{
	return st + value_of(PR_NODES_BASE) + node * PR_NODE_WORDS;
}

/* Draws by page, as the model's `draws`. */
static int64_t mixed(int64_t value)
{
	value &= 0x7fffffff;
	for (int round = 0; round < 2; round++) {
		value ^= value >> 16;
		value = (value * 0x45D9F3B) & 0x7fffffff;
	}
	return value ^ (value >> 16);
}

/* Pages that a fault maps together draw together: 1 << `shift`. */
static bool is_drawn(long pfn, int shift, int purpose, int number, int share)
{
	int64_t object = folios[pfn].object;
	int64_t key = object > 0 ? object >> shift : -1 - (pfn >> shift);

	return mixed(mixed(mixed(value_of(PR_SEED) + key) + purpose) + number) % 1000 <
	       value_of(share);
}

static bool is_found_in_use(long pfn)
{
	int share = folios[pfn].kind == PR_FILE ? PR_FILE_REFERENCED : PR_ANON_REFERENCED;

	return is_drawn(pfn, PR_RUN_SHIFT, 1, folios[pfn].scans++, share);
}

static bool is_dirty(long pfn)
{
	return folios[pfn].kind == PR_FILE &&
	       is_drawn(pfn, 0, 2, folios[pfn].writes++, PR_FILE_DIRTY);
}

static void free_in_use(long pfn)
{
	unsigned int order = in_use[pfn].order_plus_one - 1;

	in_use[pfn] = (struct in_use){ 0 };
	free_pages_of(pfn, order);
}

/*
 * Folios looked at: used ones become active, dirty ones stay, the others are freed at the end. Trees
 * that free a list of pages fill it from its head, and free larger folios at once.
 */
static unsigned int look_at_folios(struct list_head *list, struct scan_control *sc,
				   struct reclaim_stat *stat)
{
	LIST_HEAD(kept);
	LIST_HEAD(freed);
	unsigned int pages_freed = 0;

	memset(stat, 0, sizeof(*stat));
	while (!list_empty(list)) {
		struct folio *folio = lru_to_folio(list);
		long pfn = folio_pfn(folio), pages = folio_nr_pages(folio);

		list_del(&folio->lru);
		sc->nr_scanned += pages;
		if (is_found_in_use(pfn)) {
			in_use[pfn].active = 1;
			count_vm_events(PGACTIVATE, pages);
		} else if (!is_dirty(pfn)) {
			pages_freed += pages;
#ifdef HAS_free_unref_page_list
			if (pages > 1)
				free_in_use(pfn);
			else
				list_add_tail(&folio->lru, &freed);
#else
			list_add(&folio->lru, &freed);
#endif
			continue;
		}
		list_add(&folio->lru, &kept);
	}
	while (!list_empty(&freed)) {
		struct folio *folio = lru_to_folio(&freed);

		list_del(&folio->lru);
		free_in_use(folio_pfn(folio));
	}
	list_splice(&kept, list);
	return pages_freed;
}

/* Contexts: a node's kswapd goes on until it sleeps. */
static long kswapd_sleeps(enum kswapd_sleep how)
{
	pg_data_t *node = NULL;

	for (int number = 0; number < nr_online_nodes; number++)
		if (nodes[number].reclaim.sleep == AWAKE)
			node = &nodes[number];
	node->reclaim.sleep = how;
	swapcontext(&node->reclaim.context, &main_context);
	return node->reclaim.woken;
}

static void run_kswapd(pg_data_t *node)
{
	node->reclaim.sleep = AWAKE;
	current = &kswapd_task;
	st[AT_EVENT_CPU] = this_cpu = node_words(node->node_id)[PR_KSWAPD_CPU];
	swapcontext(&main_context, &node->reclaim.context);
	current = &the_task;
	st[AT_EVENT_CPU] = this_cpu = 0;
	node->reclaim.woken = false;
}

static void wake_kswapd_of(pg_data_t *node)
{
	node->reclaim.woken = true;
	node->kswapd_wait.unused = 0;
}

static void note_kcompactd_wake(pg_data_t *node, int order, int highest)
{
	if (order <= 0)
		return;
	node->reclaim.kcompactd_order = max(node->reclaim.kcompactd_order, order);
	node->reclaim.kcompactd_highest = min(node->reclaim.kcompactd_highest, highest);
}

static void kswapd_of(int number)
{
	void *p = &nodes[number];

	CALL_kswapd;
}

#ifdef HAS_kswapd_test_hopeless
#define FAILURES_OF(node) (node)->kswapd_failures.counter
#else
#define FAILURES_OF(node) (node)->kswapd_failures
#endif

/* LRU lists as the model has them, once the rest of its state is loaded. */
int shim_load_reclaim(struct model_page *pages, struct model_folio *records)
{
	folios = records;
	in_use = calloc(frames, sizeof(*in_use));
	if (!in_use)
		return 1;
	memset(vm_events, 0, sizeof(vm_events));
	swap_pages = value_of(PR_ANON_SCAN_PERCENT) > 0;
	vm_swappiness = 200 * value_of(PR_ANON_SCAN_PERCENT) / (100 + value_of(PR_ANON_SCAN_PERCENT));
	throttled = 0;
	sysctl_extfrag_threshold = st[AT_POLICY_EXTFRAG_THRESHOLD];
	kswapd_task.flags = PF_MEMALLOC | PF_KTHREAD;
	current = &the_task;
	for (long pfn = 0; pfn < frames; pfn++)
		if (pages[pfn].where == AT_ALLOCATED)
			in_use[pfn].order_plus_one = pages[pfn].order + 1;
	for (int number = 0; number < nr_online_nodes; number++) {
		pg_data_t *node = &nodes[number];
		int64_t *words = node_words(number);

		for (int lru = 0; lru < PR_LRU_LISTS; lru++) {
			int64_t *list = words + PR_NODE_LISTS + lru * AT_LIST_WORDS;

			INIT_LIST_HEAD(&node->__lruvec.lists[lru]);
			for (long pfn = list[AT_TAIL]; pfn >= 0; pfn = pages[pfn].prev) {
				in_use[pfn].active = lru & 1;
				lruvec_add_folio(&node->__lruvec, (struct folio *)pfn_to_page(pfn));
			}
		}
		node->reclaim.stack = malloc(1 << 18);
		if (!node->reclaim.stack)
			return 1;
		getcontext(&node->reclaim.context);
		node->reclaim.context.uc_stack.ss_sp = node->reclaim.stack;
		node->reclaim.context.uc_stack.ss_size = 1 << 18;
		makecontext(&node->reclaim.context, (void (*)(void))kswapd_of, 1, number);
		FAILURES_OF(node) = PR_RETRIES_MAX;
		do
			run_kswapd(node);
		while (node->reclaim.sleep != ASLEEP);
		FAILURES_OF(node) = words[PR_KSWAPD_FAILURES];
		node->reclaim.kcompactd_order = 0;
		node->reclaim.kcompactd_highest = MAX_NR_ZONES - 1;
	}
	return 0;
}

void shim_unload_reclaim(void)
{
	for (int number = 0; number < nr_online_nodes; number++)
		free(nodes[number].reclaim.stack);
	free(in_use);
}

static long take_page(struct reclaim_operation *operation)
{
	gfp_t gfp_mask = gfp_mask_of(operation->bits, operation->migratetype);
	struct alloc_context local =
		context_of(operation->migratetype, operation->zone, operation->bits);
	struct alloc_context *ac = &local;
	unsigned int order = operation->order, alloc_flags = fast_path_flags(gfp_mask, order, ac);
	struct page *page;
	long pfn;

	request_order = order;
	request_migratetype = operation->migratetype;
	if (operation->bits & AT_GFP_MEMALLOC)
		alloc_flags |= ALLOC_NO_WATERMARKS;
	page = CALL_get_page_from_freelist;
	if (!page)
		return -1;
	pfn = page_to_pfn(page);
	in_use[pfn] = (struct in_use){ .order_plus_one = order + 1 };
	folios[pfn] = (struct model_folio){ .kind = operation->class, .skip = folios[pfn].skip };
	if (operation->migratetype == MIGRATE_MOVABLE)
		for (long each = 0; each < 1L << order; each++)
			page[each].marks |= PAGE_IS_MOVABLE;
	if (operation->class >= PR_ANON)
		lruvec_add_folio(lruvec_of((struct folio *)page), (struct folio *)page);
	return pfn;
}

static long page_in_use(long pfn)
{
	for (long tried = 0; tried < frames; tried++, pfn = pfn + 1 < frames ? pfn + 1 : 0)
		if (in_use[pfn].order_plus_one)
			return pfn;
	return -1;
}

static long page_named(int64_t *answers, long page)
{
	if (page < 0)
		page = answers[-1 - page];
	return page < 0 ? -1 : page_in_use(page);
}

static void take_off_list(struct folio *folio)
{
	list_del(&folio->lru);
	update_lru_size(lruvec_of(folio), list_of(folio), folio_zonenum(folio),
			-folio_nr_pages(folio));
}

static long let_go(long pfn)
{
	if (pfn >= 0 && in_use[pfn].is_listed)
		take_off_list((struct folio *)pfn_to_page(pfn));
	if (pfn >= 0)
		free_in_use(pfn);
	return pfn;
}

static long use(long pfn)
{
	struct folio *folio = (struct folio *)pfn_to_page(pfn);

	if (pfn < 0 || !in_use[pfn].is_listed)
		return -1;
	take_off_list(folio);
	in_use[pfn].active = 1;
	lruvec_add_folio(lruvec_of(folio), folio);
	return pfn;
}

static void wake(struct reclaim_operation *operation)
{
	gfp_t gfp_mask = gfp_mask_of(operation->bits, operation->migratetype);

	for (int number = 0; number < nr_zones; number++)
		if (zones[number]->zone_pgdat == &nodes[operation->node] &&
		    managed_zone(zones[number])) {
			wakeup_kswapd(zones[number], gfp_mask, operation->order,
				      kernel_type[operation->zone]);
			return;
		}
}

static long direct_reclaim(struct reclaim_operation *operation)
{
	gfp_t gfp_mask = gfp_mask_of(operation->bits, operation->migratetype);
	struct alloc_context ac =
		context_of(operation->migratetype, operation->zone, operation->bits);
	struct zonelist *zonelist = ac.zonelist;
	nodemask_t *nodemask = NULL;
	unsigned int order = operation->order;

	if (operation->bits & PR_GFP_IO)
		gfp_mask |= __GFP_IO;
	if (operation->bits & PR_GFP_FS)
		gfp_mask |= __GFP_FS;
	request_zone = ac.highest_zoneidx;
	current->flags = operation->bits & AT_KERNEL_THREAD ? PF_KTHREAD : 0;
	return CALL_try_to_free_pages;
}

static long operate(struct reclaim_operation *operation, int64_t *answers)
{
	pg_data_t *node = &nodes[operation->node];

	switch (operation->kind) {
	case TAKE:
		return take_page(operation);
	case LET_GO:
		return let_go(page_named(answers, operation->page));
	case USE:
		return use(page_named(answers, operation->page));
	case WAKE:
		wake(operation);
		return 0;
	case RUN:
		if (node->reclaim.woken)
			run_kswapd(node);
		return node->reclaim.sleep;
	case END_NAP:
		if (node->reclaim.sleep == NAPPING && !node->reclaim.woken)
			run_kswapd(node);
		return node->reclaim.sleep;
	default:
		return direct_reclaim(operation);
	}
}

/* Take operations[low:high]; `answers` gets what each gives. */
void shim_reclaim(struct reclaim_operation *operations, int64_t *answers, struct model_row *rows,
		  int32_t *lines, long capacity, long low, long high)
{
	log_rows = rows;
	log_lines = lines;
	log_capacity = capacity;
	st[AT_EVENT_CPU] = this_cpu = 0;
	for (long position = low; position < high; position++) {
		st[AT_LOG_ROWS] = 0;
		answers[position] = operate(&operations[position], answers);
	}
}

#ifdef HAS_kswapd_test_hopeless
static long counted_scans(enum node_stat_item item)
{
	long pages = 0;

	for (int node = 0; node < nr_online_nodes; node++)
		pages += nodes[node].vm_stat[item].counter;
	return pages;
}
#else
static long counted_scans(enum vm_event_item item)
{
	return vm_events[item];
}
#endif

static void store_node(int number, struct model_page *pages)
{
	pg_data_t *node = &nodes[number];
	int64_t *words = node_words(number);

	for (int lru = 0; lru < PR_LRU_LISTS; lru++) {
		int64_t *list = words + PR_NODE_LISTS + lru * AT_LIST_WORDS;
		long last = -1;
		struct page *page;

		list[AT_HEAD] = list[AT_TAIL] = -1;
		list[AT_ENTRIES] = 0;
		words[PR_NODE_PAGES + lru] = node->vm_stat[NR_LRU_BASE + lru].counter;
		list_for_each_entry(page, &node->__lruvec.lists[lru], lru) {
			long pfn = page_to_pfn(page);

			list[AT_ENTRIES]++;
			folios[pfn].place = lru + 1;
			pages[pfn].next = -1;
			pages[pfn].prev = last;
			if (last >= 0)
				pages[last].next = pfn;
			else
				list[AT_HEAD] = pfn;
			list[AT_TAIL] = last = pfn;
		}
	}
	words[PR_KSWAPD_PHASE] = node->reclaim.sleep;
	words[PR_KSWAPD_WOKEN] = node->reclaim.woken;
	words[PR_KSWAPD_FAILURES] = FAILURES_OF(node);
	words[PR_KSWAPD_WANTED_ORDER] = node->kswapd_order;
	words[PR_KSWAPD_WANTED_HIGHEST] = node->kswapd_highest_zoneidx == MAX_NR_ZONES ?
					  -1 : model_type_below(node->kswapd_highest_zoneidx);
	words[PR_KCOMPACTD_ORDER] = node->reclaim.kcompactd_order;
	words[PR_KCOMPACTD_HIGHEST] = model_type_below(node->reclaim.kcompactd_highest);
}

/* LRU lists, kswapds and counters into the state that was loaded, after the rest is stored. */
void shim_store_reclaim(struct model_page *pages)
{
	for (long pfn = 0; pfn < frames; pfn++)
		folios[pfn].place = 0;
	for (int node = 0; node < nr_online_nodes; node++)
		store_node(node, pages);
	for (int number = 0; number < nr_zones; number++)
		for (int lru = 0; lru < PR_LRU_LISTS; lru++)
			st[value_of(PR_ZONES_BASE) + number * PR_ZONE_WORDS + PR_ZONE_PAGES + lru] =
				zone_page_state(zones[number], NR_ZONE_LRU_BASE + lru);
	*words_of(PR_PGSCAN_KSWAPD) = counted_scans(PGSCAN_KSWAPD);
	*words_of(PR_PGSCAN_DIRECT) = counted_scans(PGSCAN_DIRECT);
	*words_of(PR_PGSTEAL_KSWAPD) = counted_scans(PGSTEAL_KSWAPD);
	*words_of(PR_PGSTEAL_DIRECT) = counted_scans(PGSTEAL_DIRECT);
	*words_of(PR_PGACTIVATE) = vm_events[PGACTIVATE];
	*words_of(PR_PGDEACTIVATE) = vm_events[PGDEACTIVATE];
	*words_of(PR_PAGEOUTRUN) = vm_events[PAGEOUTRUN];
	*words_of(PR_KSWAPD_LOW_WMARK_HIT_QUICKLY) = vm_events[KSWAPD_LOW_WMARK_HIT_QUICKLY];
	*words_of(PR_KSWAPD_HIGH_WMARK_HIT_QUICKLY) = vm_events[KSWAPD_HIGH_WMARK_HIT_QUICKLY];
	*words_of(PR_PGSCAN_DIRECT_THROTTLE) = throttled;
	for (int type = 0; type < st[AT_ZONE_TYPES]; type++)
		*words_of(PR_ALLOCSTALL + type) =
			vm_events[ALLOCSTALL_NORMAL - ZONE_NORMAL + kernel_type[type]];
}
