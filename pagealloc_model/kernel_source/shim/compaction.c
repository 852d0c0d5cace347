/* Operations of compaction, one after another, as the model takes them. */

struct compaction_operation {
	int64_t kind, zone, node, order, migratetype, priority, flags, highest, cpu, count, seed, keep;
};

static void set_movable(unsigned long pfn, bool is_movable)
{
	for (unsigned long each = pfn; each < pfn + (1UL << (heads[pfn] - 1)); each++)
		if (is_movable)
			pfn_to_page(each)->marks |= PAGE_IS_MOVABLE;
		else
			pfn_to_page(each)->marks &= ~PAGE_IS_MOVABLE;
}

static bool folio_test_clear_lru(struct folio *folio)
{
	bool was_set = folio_test_lru(folio);

	set_movable(page_to_pfn(&folio->page), false);
	return was_set;
}

static void folio_set_lru(struct folio *folio)
{
	set_movable(page_to_pfn(&folio->page), true);
}

static void putback_movable_pages(struct list_head *list)
{
	while (!list_empty(list)) {
		struct folio *folio = list_first_entry(list, struct folio, lru);

		list_del(&folio->lru);
		folio_set_lru(folio);
	}
}

/* Free an allocation on this CPU; it is on no LRU list any more. */
static void free_allocated(unsigned long pfn)
{
	unsigned int order = heads[pfn] - 1;
	struct page *page = pfn_to_page(pfn);
	int order_asked = request_order, type_asked = request_migratetype;

	set_movable(pfn, false);
	heads[pfn] = 0;
	request_order = order;
	request_migratetype = get_pageblock_migratetype(page);
	drain_site = AT_SITE_DRAIN_COMMIT;
	CALL_free;
	drain_site = AT_SITE_DRAIN_ALL;
	request_order = order_asked;
	request_migratetype = type_asked;
}

static void __free_pages(struct page *page, unsigned int order)
{
	unsigned long pfn = page_to_pfn(page);

	heads[pfn] = order + 1;
	free_allocated(pfn);
}

static void lru_add_drain_cpu_zone(struct zone *zone)
{
	drain_local_pages(zone);
}

/* The model's seeded draws. */
static int64_t mixed(int64_t value)
{
	value &= 0x7fffffff;
	for (int round = 0; round < 2; round++) {
		value ^= value >> 16;
		value = (value * 0x45D9F3B) & 0x7fffffff;
	}
	return value ^ (value >> 16);
}

static int64_t draw(int64_t key, int64_t purpose, int64_t number)
{
	return mixed(mixed(mixed(pressure[PR_SEED] + key) + purpose) + number) % 1000;
}

#define DRAW_MIGRATES 3

static bool migration_fails(unsigned long pfn)
{
	struct model_folio *folio = &folios[pfn];
	int share = folio->kind == PR_FILE ? PR_FILE_MIGRATION_FAILS : PR_ANON_MIGRATION_FAILS;
	int64_t key = folio->object > 0 ? folio->object : -1 - (int64_t)pfn;

	return draw(key, DRAW_MIGRATES, folio->offset) < pressure[share];
}

static void move_folio(struct folio *source, struct folio *target)
{
	unsigned long from = page_to_pfn(&source->page), to = page_to_pfn(&target->page);
	int8_t skip = folios[to].skip;

	list_del(&source->lru);
	folios[to] = folios[from];
	folios[to].skip = skip;
	heads[to] = heads[from];
	set_movable(to, true);
	free_allocated(from);
}

/* Migration as the model has it: targets for all first, then each folio is moved or cannot be. */
static int migrate_pages(struct list_head *from, get_target_t get, put_target_t put,
			 unsigned long data, int mode, int reason, unsigned int *succeeded)
{
	static struct folio *targets[1 << MAX_BUDDY_ORDER];
	struct folio *source, *following;
	int found = 0, number = 0, failed = 0;
	bool is_lacking = false;

	list_for_each_entry(source, from, lru) {
		targets[found] = (struct folio *)get((moved_t *)source, data);
		if (!targets[found]) {
			pressure[PR_PGMIGRATE_FAIL] += folio_nr_pages(source);
			is_lacking = true;
			break;
		}
		found++;
	}
	list_for_each_entry_safe(source, following, from, lru) {
		struct folio *target = targets[number];
		long pages = folio_nr_pages(source);

		if (number++ == found)
			break;
		if (migration_fails(page_to_pfn(&source->page))) {
			heads[page_to_pfn(&target->page)] = heads[page_to_pfn(&source->page)];
			put((moved_t *)target, data);
			heads[page_to_pfn(&target->page)] = 0;
			pressure[PR_PGMIGRATE_FAIL] += pages;
			failed++;
			continue;
		}
		pressure[PR_PGMIGRATE_SUCCESS] += pages;
		*succeeded += pages;
		move_folio(source, target);
	}
	return is_lacking ? -ENOMEM : failed;
}

static long sleep_for(struct daemon *daemon, long left)
{
	daemon->left = left;
	daemon->is_asleep = true;
	daemon->is_woken = false;
	swapcontext(&daemon->context, &the_machine);
	daemon->is_asleep = false;
	return daemon->left;
}

static void be_kcompactd(int node)
{
	kcompactd(&nodes[node]);
}

static int64_t *node_pressure(int node)
{
	return pressure + pressure[PR_NODES_BASE] - st[AT_PRESSURE_BASE] + node * PR_NODE_WORDS;
}

static int64_t *zone_pressure(int zone)
{
	return pressure + pressure[PR_ZONES_BASE] - st[AT_PRESSURE_BASE] + zone * PR_ZONE_WORDS;
}

static void resume(int node)
{
	st[AT_EVENT_CPU] = this_cpu = node_pressure(node)[PR_KSWAPD_CPU];
	swapcontext(&the_machine, &daemons[node].context);
}

#define DAEMON_STACK (1 << 18)

static void begin_daemon(int node)
{
	struct daemon *daemon = &daemons[node];

	daemon->stack = malloc(DAEMON_STACK);
	getcontext(&daemon->context);
	daemon->context.uc_stack.ss_sp = daemon->stack;
	daemon->context.uc_stack.ss_size = DAEMON_STACK;
	daemon->context.uc_link = &the_machine;
	makecontext(&daemon->context, (void (*)(void))be_kcompactd, 1, node);
	resume(node);
}

/* A wake that comes once kcompactd has taken up its work. */
static struct { int node, order, highest; } late_wake;

static void wake_late(int item)
{
	int order = late_wake.order;

	if (item != KCOMPACTD_WAKE || !order)
		return;
	late_wake.order = 0;
	wakeup_kcompactd(&nodes[late_wake.node], order, late_wake.highest);
}

static void load_zone_pressure(int number)
{
	int64_t *words = zone_pressure(number);
	struct zone *zone = zones[number];

	zone->compact_cached_migrate_pfn[0] = words[PR_ZONE_MIGRATE_ASYNC];
	zone->compact_cached_migrate_pfn[1] = words[PR_ZONE_MIGRATE_SYNC];
	zone->compact_cached_free_pfn = words[PR_ZONE_FREE_FROM];
	zone->compact_init_migrate_pfn = words[PR_ZONE_INIT_MIGRATE];
	zone->compact_init_free_pfn = words[PR_ZONE_INIT_FREE];
	zone->compact_considered = words[PR_ZONE_CONSIDERED];
	zone->compact_defer_shift = words[PR_ZONE_DEFER_SHIFT];
	zone->compact_order_failed = words[PR_ZONE_ORDER_FAILED];
	zone->compact_blockskip_flush = words[PR_ZONE_FLUSH_SKIPS];
	zone->present_pages = zone_words(number)[AT_ZONE_MANAGED] ? words[PR_ZONE_PRESENT] : 0;
	zone->zone_pgdat->node_present_pages += words[PR_ZONE_PRESENT];
#ifdef HAS_NR_FREE_PAGES_BLOCKS
	long whole = 0;

	for (int order = pageblock_order; order <= MAX_BUDDY_ORDER; order++)
		for (int type = 0; type < MIGRATE_TYPES; type++)
			if (!is_migrate_isolate(type))
				whole += zone_words(number)[AT_ZONE_LISTS +
					 (order * AT_MIGRATETYPES + type) * AT_LIST_WORDS +
					 AT_ENTRIES] << order;
	atomic_long_set(&zone->vm_stat[NR_FREE_PAGES_BLOCKS], whole);
#endif
}

/* Begin where a state of the model is, the allocator being loaded. Returns 1 if memory is short. */
int shim_load_compaction(struct model_page *pages, struct model_folio *model_folios)
{
	pressure = st + st[AT_PRESSURE_BASE];
	folios = malloc(frames * sizeof(*folios));
	heads = calloc(frames, 1);
	daemons = calloc(nr_online_nodes, sizeof(*daemons));
	if (!folios || !heads || !daemons)
		return 1;
	memcpy(folios, model_folios, frames * sizeof(*folios));
	for (long pfn = 0; pfn < frames; pfn++)
		if (pages[pfn].where == AT_ALLOCATED) {
			heads[pfn] = pages[pfn].order + 1;
			set_movable(pfn, folios[pfn].place != 0);
		}
	sysctl_compaction_proactiveness = st[AT_POLICY_COMPACTION_PROACTIVENESS];
	sysctl_extfrag_threshold = st[AT_POLICY_EXTFRAG_THRESHOLD];
	drain_site = AT_SITE_DRAIN_ALL;
	for (int zone = 0; zone < nr_zones; zone++)
		load_zone_pressure(zone);
	for (long block = 0; block < frames >> pageblock_order; block++)
		if (folios[block << pageblock_order].skip && model_blocks[block].zone)
			set_pageblock_skip(page_of_block(block, model_blocks[block].zone - 1));
	for (int node = 0; node < nr_online_nodes; node++) {
		nodes[node].kswapd = current;
		begin_daemon(node);
	}
	return 0;
}

void shim_unload_compaction(void)
{
	for (int node = 0; node < nr_online_nodes; node++)
		free(daemons[node].stack);
	free(daemons);
	free(folios);
	free(heads);
	current->flags = 0;
}

/* Write positions, deferral, skip marks and allocations into the state that was loaded. */
void shim_store_compaction(struct model_page *pages, struct model_folio *model_folios)
{
	for (int number = 0; number < nr_zones; number++) {
		int64_t *words = zone_pressure(number);
		struct zone *zone = zones[number];

		words[PR_ZONE_MIGRATE_ASYNC] = zone->compact_cached_migrate_pfn[0];
		words[PR_ZONE_MIGRATE_SYNC] = zone->compact_cached_migrate_pfn[1];
		words[PR_ZONE_FREE_FROM] = zone->compact_cached_free_pfn;
		words[PR_ZONE_INIT_MIGRATE] = zone->compact_init_migrate_pfn;
		words[PR_ZONE_INIT_FREE] = zone->compact_init_free_pfn;
		words[PR_ZONE_CONSIDERED] = zone->compact_considered;
		words[PR_ZONE_DEFER_SHIFT] = zone->compact_defer_shift;
		words[PR_ZONE_ORDER_FAILED] = zone->compact_order_failed;
		words[PR_ZONE_FLUSH_SKIPS] = zone->compact_blockskip_flush;
	}
	for (int node = 0; node < nr_online_nodes; node++) {
		int64_t *words = node_pressure(node);

		words[PR_KCOMPACTD_ORDER] = nodes[node].kcompactd_max_order;
		words[PR_KCOMPACTD_HIGHEST] = model_type_below(nodes[node].kcompactd_highest_zoneidx);
	}
	for (long pfn = 0; pfn < frames; pfn++)
		if (heads[pfn]) {
			folios[pfn].place = (pfn_to_page(pfn)->marks & PAGE_IS_MOVABLE) != 0;
			pages[pfn].where = AT_ALLOCATED;
			pages[pfn].order = heads[pfn] - 1;
		}
	memcpy(model_folios, folios, frames * sizeof(*folios));
	for (long block = 0; block < frames >> pageblock_order; block++)
		if (model_blocks[block].zone)
			model_folios[block << pageblock_order].skip = get_pageblock_skip(
				page_of_block(block, model_blocks[block].zone - 1));
}

static void keep_page(struct page *page, int order, int kind, int object)
{
	unsigned long pfn = page_to_pfn(page);
	int8_t skip = folios[pfn].skip;

	heads[pfn] = order + 1;
	folios[pfn] = (struct model_folio){ .object = object, .kind = kind, .skip = skip };
	set_movable(pfn, kind >= PR_ANON);
}

static void compact_directly(struct compaction_operation *operation, int64_t *result)
{
	int migratetype = operation->migratetype, order = operation->order;
	gfp_t gfp_mask = gfp_mask_of(AT_GFP_DIRECT_RECLAIM, migratetype) | __GFP_IO | __GFP_FS;
	struct alloc_context ac = context_of(migratetype, operation->highest, 0);
	enum compact_result status = COMPACT_SKIPPED;
	unsigned int alloc_flags;
	struct page *page;

	request_order = order;
	request_migratetype = migratetype;
	alloc_flags = operation->flags & AT_WMARK_MASK;
	if (operation->flags & AT_ALLOC_CMA)
		alloc_flags |= ALLOC_CMA;
	if (operation->flags & AT_ALLOC_NOFRAGMENT)
		alloc_flags |= ALLOC_NOFRAGMENT;
#ifdef HAS_alloc_context_reclaim_compact_order
	ac.reclaim_compact_order = order;
	if (operation->flags & AT_ALLOC_NOFRAGMENT)
		ac.reclaim_compact_order = max(order, (int)pageblock_order);
#endif
	page = __alloc_pages_direct_compact(gfp_mask, order, alloc_flags, &ac,
					    operation->priority, &status);
	current->capture_control = NULL;
	result[0] = status;
	result[1] = page ? (int64_t)page_to_pfn(page) : -1;
	if (!page)
		return;
	keep_page(page, order, migratetype == MIGRATE_MOVABLE ? PR_ANON : PR_KERNEL,
		  operation->seed);
	if (!operation->keep)
		free_allocated(page_to_pfn(page));
}

static void let_time_pass(void)
{
	for (int node = 0; node < nr_online_nodes; node++) {
		if (daemons[node].left == LONG_MAX)
			continue;
		daemons[node].left -= PR_JUDGED_TIME_MS;
		if (daemons[node].left <= 0) {
			daemons[node].left = 0;
			resume(node);
		}
	}
}

/* Allocations of a zone, as many as there are pages for. */
static void take_some(struct compaction_operation *operation)
{
	struct zone *zone = zones[operation->zone];
	int kind = operation->migratetype == MIGRATE_MOVABLE ? PR_FILE : PR_KERNEL;

	for (int each = 0; each < operation->count; each++) {
		struct page *page;

		spin_lock(&zone->lock);
		page = __rmqueue_smallest(zone, operation->order, operation->migratetype);
		spin_unlock(&zone->lock);
		if (!page)
			return;
		keep_page(page, operation->order, kind, operation->seed + each);
	}
}

/* Free a share of a zone's allocations, drawn by page frame. */
static void free_some(struct compaction_operation *operation)
{
	struct zone *zone = zones[operation->zone];
	unsigned long end = zone_end_pfn(zone);

	for (unsigned long pfn = zone->zone_start_pfn; pfn < end; pfn++)
		if (heads[pfn] && draw(pfn, operation->seed, 0) < operation->count)
			free_allocated(pfn);
}

static void take_compaction(struct compaction_operation *operation, int64_t *result)
{
	pg_data_t *pgdat = &nodes[operation->node];

	st[AT_EVENT_CPU] = this_cpu = operation->cpu;
	times_asked = 0;
	switch (operation->kind) {
	case PR_JUDGED_DIRECT:
		compact_directly(operation, result);
		break;
	case PR_JUDGED_WAKE:
		wakeup_kcompactd(pgdat, operation->order, kernel_type[operation->highest]);
		late_wake.node = operation->node;
		late_wake.order = operation->count;
		late_wake.highest = kernel_type[operation->priority];
		if (daemons[operation->node].is_woken)
			resume(operation->node);
		late_wake.order = 0;
		break;
	case PR_JUDGED_TIME:
		let_time_pass();
		break;
	case PR_JUDGED_NODE:
#ifdef HAS_proactive_compact_node
		compact_node(operation->node);
#else
		compact_node(pgdat, false);
#endif
		break;
	case PR_JUDGED_RESET:
		reset_isolation_suitable(pgdat);
		break;
	case PR_JUDGED_KSWAPD:
		pgdat->kswapd_active = operation->count;
		break;
	case PR_JUDGED_TAKE:
		take_some(operation);
		break;
	case PR_JUDGED_FREE:
		free_some(operation);
		break;
	}
}

/* Take operations[low:high]; two words of each one's result. */
void shim_compact(struct compaction_operation *operations, int64_t *results, long low, long high)
{
	for (long position = low; position < high; position++)
		take_compaction(&operations[position], results + 2 * position);
}
