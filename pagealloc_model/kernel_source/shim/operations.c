/* One operation after another, as the model's event loop takes them. */

struct model_event {
	int64_t time_ns;
	int32_t object, offset;
	uint32_t bits;
	int16_t cpu;
	int8_t operation, order, migratetype, zone;
};

static gfp_t gfp_mask_of(unsigned int bits, int migratetype)
{
	gfp_t gfp_mask = 0;

	if (bits & AT_GFP_HIGH)
		gfp_mask |= __GFP_HIGH;
#ifdef __GFP_ATOMIC
	if (bits & AT_GFP_ATOMIC)
		gfp_mask |= __GFP_ATOMIC;
#endif
	if (bits & AT_GFP_DIRECT_RECLAIM)
		gfp_mask |= __GFP_DIRECT_RECLAIM;
	if (bits & AT_GFP_KSWAPD_RECLAIM)
		gfp_mask |= __GFP_KSWAPD_RECLAIM;
	if (bits & AT_GFP_WRITE)
		gfp_mask |= __GFP_WRITE;
	if (bits & AT_GFP_MEMALLOC)
		gfp_mask |= __GFP_MEMALLOC;
	if (bits & AT_GFP_NOMEMALLOC)
		gfp_mask |= __GFP_NOMEMALLOC;
	if (bits & AT_GFP_THISNODE)
		gfp_mask |= __GFP_THISNODE;
	if (migratetype == MIGRATE_MOVABLE)
		gfp_mask |= __GFP_MOVABLE;
	if (migratetype == MIGRATE_RECLAIMABLE)
		gfp_mask |= __GFP_RECLAIMABLE;
	return gfp_mask;
}

static void log_boost_reset(int zone)
{
	hold = (struct hold){ .site = AT_SITE_BOOST_RESET, .cpu = this_cpu };
	splits = merges = inserts = looks = 0;
	log_hold(zone, 0, -1, 0, 0);
}

/* What a literal replay has of kswapd: when it runs, and what its runs leave behind. */
static void stop_kswapd(pg_data_t *pgdat)
{
	if (!pgdat->kswapd_active)
		return;
	pgdat->kswapd_active = false;
	st[AT_KSWAPD_RUNS]--;
	for (int number = 0; number < nr_zones; number++) {
		struct zone *zone = zones[number];

		if (zone->zone_pgdat != pgdat || !managed_zone(zone) ||
		    zone_idx(zone) > pgdat->kswapd_highest)
			continue;
		clear_bit(ZONE_RECLAIM_ACTIVE, &zone->flags);
		if (remembered_boost[number])
			log_boost_reset(number);
		zone->watermark_boost -= min(zone->watermark_boost, remembered_boost[number]);
	}
	set_pgdat_percpu_threshold(pgdat, calculate_normal_threshold);
}

static void start_kswapd(pg_data_t *pgdat, int highest)
{
	stop_kswapd(pgdat);
	pgdat->kswapd_active = true;
	pgdat->kswapd_highest = highest;
	st[AT_KSWAPD_RUNS]++;
	st[AT_COUNT_KSWAPD_WAKES]++;
	for (int number = 0; number < nr_zones; number++) {
		struct zone *zone = zones[number];

		if (zone->zone_pgdat != pgdat || !managed_zone(zone) || zone_idx(zone) > highest)
			continue;
		set_bit(ZONE_RECLAIM_ACTIVE, &zone->flags);
		remembered_boost[number] = zone->watermark_boost;
	}
	set_pgdat_percpu_threshold(pgdat, calculate_pressure_threshold);
}

static bool node_is_balanced(pg_data_t *pgdat, int order, int highest_zoneidx)
{
	return CALL_pgdat_balanced;
}

#ifndef SHIM_RECLAIM
static void wakeup_kswapd(struct zone *zone, gfp_t gfp_mask, int order, enum zone_type highest)
{
	pg_data_t *pgdat = zone->zone_pgdat;
	int highest_zoneidx = highest;

	if (shared_pages) {
		note_wake(pgdat->node_id, order, highest);
		return;
	}
	if (pgdat->kswapd_active || st[AT_KSWAPD_RECORDED])
		return;
	if (CALL_pgdat_watermark_boosted || !node_is_balanced(pgdat, order, highest))
		start_kswapd(pgdat, highest);
}
#endif

static void stop_balanced_kswapds(void)
{
	for (int node = 0; node < nr_online_nodes; node++)
		if (nodes[node].kswapd_active &&
		    node_is_balanced(&nodes[node], 0, nodes[node].kswapd_highest))
			stop_kswapd(&nodes[node]);
}

/* Fewest free pages with which a zone passes a mark, by the kernel's own test. */
static long pages_needed(struct zone *zone, int alloc_flags, int highest)
{
	long low = -(1L << 40), high = 1L << 40;
	unsigned long mark = min_wmark_pages(zone);

	while (low + 1 < high) {
		long free_pages = low + (high - low) / 2;

		if (__zone_watermark_ok(zone, 0, mark, highest, alloc_flags, free_pages))
			high = free_pages;
		else
			low = free_pages;
	}
	return high;
}

/* Pages above a zone's min mark, and one more, as the kernel's own test counts them. */
static long margin_of(struct zone *zone, unsigned int order, int alloc_flags, int highest)
{
	long unusable = (1L << order) - 1;

	return (long)zone_page_state(zone, NR_FREE_PAGES) - unusable + 1 -
	       pages_needed(zone, alloc_flags, highest);
}

/* The first zone of a request with the largest margin; NULL if it may use none. */
static struct zone *nearest_zone(unsigned int order, int alloc_flags, struct alloc_context *ac)
{
	struct zone *zone, *best = zonelist_zone(ac->preferred_zoneref);
	long most = LONG_MIN;
	struct zoneref *z;

	for_each_zone_zonelist_nodemask(zone, z, ac->zonelist, ac->highest_zoneidx, ac->nodemask) {
		long margin = margin_of(zone, order, alloc_flags, ac->highest_zoneidx);

		if (margin > most) {
			most = margin;
			best = zone;
		}
	}
	return best;
}

/* A request that the recorded kernel served and no zone would serve: forced (S10.4). */
static struct page *take_from_nearest(gfp_t gfp_mask, unsigned int order, int alloc_flags,
				      struct alloc_context *ac)
{
	struct zone *preferred_zone = zonelist_zone(ac->preferred_zoneref);
	struct zone *zone = nearest_zone(order, alloc_flags, ac);
	int migratetype = ac->migratetype;
	struct page *page;

	if (!zone)
		return NULL;
	page = CALL_rmqueue;
#ifndef HAS_rmqueue_buddy_reserve_highatomic_pageblock
	if (page && alloc_flags & ALLOC_HIGHATOMIC)
		CALL_reserve_highatomic_pageblock;
#endif
	return page;
}

enum attempt { FAST_PATH, SLOW_PATH, ON_RESERVES, AFTER_RECLAIM, WITHOUT_WATERMARKS };

static bool direct_reclaim_ran(unsigned int bits)
{
	if (!(bits & AT_GFP_DIRECT_RECLAIM))
		return false;
	return !st[AT_DIRECT_RECLAIM_RECORDED] || bits & AT_REQUEST_RECLAIMED;
}

static void drain_everything(void)
{
	struct zone *zone = NULL;

	drain_site = AT_SITE_DRAIN_ALL;
	CALL_drain_all_pages;
}

static void drain_lists(int number, int cpu)
{
	struct zone *zone = zones[number];

	drain_site = AT_SITE_DRAIN_ALL;
	CALL_drain_pages_zone;
}

static void unreserve_and_drain(struct alloc_context *ac)
{
	bool force = false;

	st[AT_COUNT_UNRESERVE_CALLS]++;
	CALL_unreserve_highatomic_pageblock;
	drain_everything();
}

static struct alloc_context context_of(int migratetype, int highest_type, unsigned int bits)
{
	pg_data_t *pgdat = NODE_DATA(numa_node_id());
	struct alloc_context ac = {
		.zonelist = &pgdat->node_zonelists[(bits & AT_GFP_THISNODE) != 0],
		.migratetype = migratetype,
		.highest_zoneidx = kernel_type[highest_type],
	};

	ac.preferred_zoneref = first_zones_zonelist(ac.zonelist, ac.highest_zoneidx, NULL);
	return ac;
}

static unsigned int fast_path_flags(gfp_t gfp_mask, unsigned int order, struct alloc_context *ac)
{
	struct zone *zone = zonelist_zone(ac->preferred_zoneref);
	unsigned int alloc_flags = ALLOC_WMARK_LOW | CALL_alloc_flags_nofragment;

#ifdef HAS_alloc_flags_nonblocking
	alloc_flags |= alloc_flags_nonblocking(gfp_mask, order) & ALLOC_HIGHATOMIC;
#endif
	return alloc_flags | CALL_cma_flags;
}

/* A recorded direct reclaim begins for a request, see the model's `begin_reclaim` (S10.4). */
static void begin_reclaim(unsigned int order, int migratetype, int highest_type,
			  unsigned int bits)
{
	gfp_t gfp_mask = gfp_mask_of(bits, migratetype);
	struct alloc_context ac = context_of(migratetype, highest_type, bits);
	unsigned int alloc_flags = CALL_slow_path_flags;
	struct zone *zone = nearest_zone(order, alloc_flags, &ac);
	long margin = zone ? margin_of(zone, order, alloc_flags, ac.highest_zoneidx) : 0;
	int number = (bits & AT_REQUEST_RECLAIMED) >> AT_RECLAIM_SHIFT;

	st[AT_RECLAIM_MARGINS + number] = min(margin, 0L);
}

/* Whether recorded direct reclaim left more free than it began with (S10.4). */
static bool reclaim_sufficed(unsigned int order, int alloc_flags, struct alloc_context *ac,
			     unsigned int bits)
{
	int number = (bits & AT_REQUEST_RECLAIMED) >> AT_RECLAIM_SHIFT;
	struct zone *zone = nearest_zone(order, alloc_flags, ac);
	int highest = ac->highest_zoneidx;

	if (!number || !zone ||
	    margin_of(zone, order, alloc_flags, highest) <= st[AT_RECLAIM_MARGINS + number])
		return false;
	return __zone_watermark_ok(zone, order, 0, highest, alloc_flags, 1L << 40);
}

/* The attempts of a request that succeeded in the recording, see the model's `allocate`. */
static struct page *allocate(unsigned int order, int migratetype, int highest_type,
			     unsigned int bits)
{
	gfp_t gfp_mask = gfp_mask_of(bits, migratetype);
	struct alloc_context local = context_of(migratetype, highest_type, bits);
	struct alloc_context *ac = &local;
	unsigned int alloc_flags = fast_path_flags(gfp_mask, order, ac);
	struct page *page = NULL;

	request_order = order;
	request_migratetype = migratetype;
	for (int attempt = FAST_PATH; !page && attempt <= WITHOUT_WATERMARKS; attempt++) {
		if (attempt == SLOW_PATH) {
			st[AT_COUNT_SLOW_PATH]++;
			alloc_flags = CALL_slow_path_flags;
		} else if (attempt == ON_RESERVES) {
			int reserve_flags = CALL___gfp_pfmemalloc_flags;

			if (reserve_flags) {
				unsigned int kswapd = alloc_flags & ALLOC_KSWAPD;

				alloc_flags = reserve_flags;
				alloc_flags |= CALL_cma_flags | kswapd;
			} else {
				attempt = AFTER_RECLAIM;
			}
		}
		if (attempt == AFTER_RECLAIM) {
			if (direct_reclaim_ran(bits) &&
			    !reclaim_sufficed(order, alloc_flags, ac, bits))
				unreserve_and_drain(ac);
			else
				attempt = WITHOUT_WATERMARKS;
		}
		if (attempt == WITHOUT_WATERMARKS) {
			if (alloc_flags & ALLOC_NO_WATERMARKS)
				return NULL;
			alloc_flags |= ALLOC_NO_WATERMARKS;
		}
		if ((attempt == SLOW_PATH || attempt == ON_RESERVES) && alloc_flags & ALLOC_KSWAPD)
			CALL_wake_all_kswapds;
		if (attempt == WITHOUT_WATERMARKS)
			page = take_from_nearest(gfp_mask, order, alloc_flags, ac);
		if (!page)
			page = CALL_get_page_from_freelist;
		if (page && attempt == WITHOUT_WATERMARKS)
			st[AT_COUNT_FORCED]++;
	}
	if (page && migratetype == MIGRATE_MOVABLE)
		for (long each = 0; each < 1L << order; each++)
			page[each].marks |= PAGE_IS_MOVABLE;
	return page;
}

/* What a request leaves that failed in the recording, see the model's `fail_as_recorded` (S10.4). */
static void fail_as_recorded(unsigned int order, int migratetype, int highest_type,
			     unsigned int bits)
{
	gfp_t gfp_mask = gfp_mask_of(bits, migratetype);
	struct alloc_context local = context_of(migratetype, highest_type, bits);
	struct alloc_context *ac = &local;
	unsigned int alloc_flags = fast_path_flags(gfp_mask, order, ac);

	request_order = order;
	request_migratetype = migratetype;
#ifdef HAS_ZONE_BELOW_HIGH
	struct zone *zone;
	struct zoneref *z;

	for_each_zone_zonelist_nodemask(zone, z, ac->zonelist, ac->highest_zoneidx, ac->nodemask)
		if (!zone_watermark_fast(zone, order, high_wmark_pages(zone), ac->highest_zoneidx,
					 alloc_flags, gfp_mask))
			set_bit(ZONE_BELOW_HIGH, &zone->flags);
#endif
	if (alloc_flags & ALLOC_KSWAPD)
		CALL_wake_all_kswapds;
	if (bits & AT_REQUEST_RECLAIMED)
		unreserve_and_drain(ac);
}

/* A place for an object: a page frame, -1, or a chain of single pages (see the model's layout). */
static long allocate_object(unsigned int order, int migratetype, int highest_type,
			    unsigned int bits)
{
	struct page *page = allocate(order, migratetype, highest_type, bits);
	struct page *first = NULL;

	if (page)
		return page_to_pfn(page);
	st[AT_COUNT_IN_BASE_PAGES] += order > 0;
	for (long left = 1L << order; left > 0; left--) {
		if (order > 0)
			page = allocate(0, migratetype, highest_type, bits);
		if (!page) {
			st[AT_COUNT_FAILED]++;
			st[AT_MISSING_PAGES] += left;
			break;
		}
		page->lru.next = first ? &first->lru : NULL;
		first = page;
	}
	return first ? AT_CHAINED - (long)page_to_pfn(first) : -1;
}

static void free_pages_of(long pfn, unsigned int order)
{
	struct page *page = pfn_to_page(pfn);

	for (long each = 0; each < 1L << order; each++)
		page[each].marks &= ~PAGE_IS_MOVABLE;
	request_order = order;
	request_migratetype = get_pageblock_migratetype(page);
	drain_site = AT_SITE_DRAIN_COMMIT;
	CALL_free;
	if (st[AT_KSWAPD_RUNS] && !st[AT_KSWAPD_RECORDED])
		stop_balanced_kswapds();
}

static long free_object(long place, long offset, unsigned int order)
{
	long left = 1L << order;
	struct page *page;

	if (place >= 0) {
		free_pages_of(place + offset, order);
		return place;
	}
	page = pfn_to_page(AT_CHAINED - place);
	for (; left > 0 && page; left--) {
		struct list_head *next = page->lru.next;

		free_pages_of(page_to_pfn(page), 0);
		page = next ? list_entry(next, struct page, lru) : NULL;
	}
	st[AT_MISSING_PAGES] -= left;
	return page ? AT_CHAINED - (long)page_to_pfn(page) : -1;
}

#define QUIET_TICKS 3

/* Counters that are exact by assumption leave no change to a tick: any since the last one counts. */
static void note_changes(int cpu)
{
	for (int number = 0; number < nr_zones; number++) {
		int64_t *words = pcp_words(number, cpu);

		if (words[AT_PCP_TOUCHED] && nr_online_nodes > 1)
			per_cpu_ptr(zones[number]->per_cpu_pageset, cpu)->expire = QUIET_TICKS;
		words[AT_PCP_TOUCHED] = 0;
	}
}

/* What one vmstat tick of a CPU does to its counters and lists. */
static void visit_lists(int cpu)
{
	bool do_pagesets = true;

	drain_site = AT_SITE_DRAIN_DECAY;
	note_changes(cpu);
	CALL_refresh_cpu_vm_stats;
}

static void tick(void)
{
	int cpu = st[AT_TICK_CPU];

	st[AT_NOW] = st[AT_NEXT_TICK];
	st[AT_EVENT_CPU] = this_cpu = cpu;
	visit_lists(cpu);
	cpu--;
	if (cpu < 0) {
		cpu = online_cpus - 1;
		st[AT_TICK_BASE] += st[AT_TICK_PERIOD];
	}
	st[AT_TICK_CPU] = cpu;
	st[AT_NEXT_TICK] = st[AT_TICK_BASE] - cpu * st[AT_TICK_STAGGER];
}

static bool log_is_nearly_full(void)
{
	return st[AT_LOG_ROWS] + AT_LOG_MARGIN > log_capacity;
}

static void set_pcp_high(int zone, int cpu, int wanted)
{
	struct per_cpu_pages *pcp = per_cpu_ptr(zones[zone]->per_cpu_pageset, cpu);
	int64_t *limits = pcp_words(zone, cpu);

	pcp->high = clamp(wanted, (int)limits[AT_PCP_HIGH_MIN], (int)limits[AT_PCP_HIGH_MAX]);
}

/* Memory that the machine gets, last on its list. */
static void grow_zone(int number, long pfn, unsigned int order)
{
	struct zone *zone = zones[number];
	struct page *page = pfn_to_page(pfn);
	fpi_t fpi_flags = FPI_TO_TAIL;
	long end = pfn + (1L << order);

	for (long block = pfn >> pageblock_order; block << pageblock_order < end; block++) {
		if (model_blocks[block].zone)
			continue;
		model_blocks[block].zone = number + 1;
		for (long each = 0; each < 1L << pageblock_order; each++)
			pfn_to_page((block << pageblock_order) + each)->zone = number + 1;
		set_pageblock_migratetype(pfn_to_page(block << pageblock_order), MIGRATE_MOVABLE);
	}
	atomic_long_add(1L << order, &zone->managed_pages);
	zone_words(number)[AT_ZONE_MANAGED] += 1L << order;
	is_growing = true;
	CALL___free_pages_ok;
	is_growing = false;
}

static void take(struct model_event *event, int32_t *object_pfn)
{
	int32_t *place = &object_pfn[event->object];

	st[AT_NOW] = event->time_ns;
	st[AT_EVENT_CPU] = this_cpu = event->cpu;
	switch (event->operation) {
	case AT_FREE:
		if (*place == -1) {
			st[AT_COUNT_ORPHAN_FREE]++;
			st[AT_MISSING_PAGES] -= 1L << event->order;
		} else {
			st[AT_COUNT_FREE]++;
			*place = free_object(*place, event->offset, event->order);
		}
		break;
	case AT_RECORDED_FAILURE:
		st[AT_COUNT_RECORDED_FAILURE]++;
		fail_as_recorded(event->order, event->migratetype, event->zone, event->bits);
		break;
	case AT_KSWAPD_START:
		start_kswapd(&nodes[event->offset], kernel_type[event->zone]);
		break;
	case AT_KSWAPD_STOP:
		stop_kswapd(&nodes[event->offset]);
		break;
	case AT_SET_PCP_HIGH:
		set_pcp_high(event->zone, event->cpu, event->offset);
		break;
	case AT_DRAIN_ALL:
		drain_everything();
		break;
	case AT_DRAIN_LOCAL:
		drain_lists(event->zone, event->cpu);
		break;
	case AT_TICK:
		visit_lists(event->cpu);
		break;
	case AT_RECLAIM_BEGIN:
		begin_reclaim(event->order, event->migratetype, event->zone, event->bits);
		break;
	case AT_RECLAIM_IN_VAIN: {
		struct alloc_context ac =
			context_of(event->migratetype, event->zone, event->bits);

		unreserve_and_drain(&ac);
		break;
	}
	case AT_GROW:
		grow_zone(event->zone, event->offset, event->order);
		break;
	default:
		st[event->operation == AT_HIDDEN_ALLOC ? AT_COUNT_HIDDEN : AT_COUNT_ALLOC]++;
		*place = allocate_object(event->order, event->migratetype, event->zone, event->bits);
	}
}

/* Take events[low:high], then the ticks due before `until_ns`; returns the event to go on with. */
long shim_advance(struct model_event *events, int32_t *object_pfn, struct model_row *rows, int32_t *lines,
		  long capacity, long low, long high, int64_t until_ns)
{
	log_rows = rows;
	log_lines = lines;
	log_capacity = capacity;
	for (long position = low; position < high; position++) {
		while (st[AT_NEXT_TICK] <= events[position].time_ns && !log_is_nearly_full())
			tick();
		if (log_is_nearly_full())
			return position;
		take(&events[position], object_pfn);
	}
	while (st[AT_NEXT_TICK] <= until_ns && !log_is_nearly_full())
		tick();
	return high;
}
