/* Every hold of zone->lock and every page moved under it, as rows of the model's log. */

static int64_t *st;
struct model_row {
	int32_t kind, zone, cpu, ran_on, order, migratetype;
	int32_t pfn, fallback_order, fallback_migratetype;
	int16_t change_ownership, takes_lock;
	int64_t time_ns, objects, pages, splits, merges, inserts, scanned;
};

static struct model_row *log_rows;
static int32_t *log_lines;
static long log_capacity;

/* What the operation under way knows of the hold that is about to begin. */
static int request_order, request_migratetype, drain_site;

struct hold {
	int site;
	int line;
	int cpu;
	long free;
	long objects;
	long pages;
	long moved;
	int types_set;
	int taken_from;
};

static struct hold hold;

/* Memory that joins the machine does so without an entry in the log. */
static bool is_growing;

static int64_t *zone_words(int zone)
{
	return st + AT_ZONES + zone * AT_ZONE_STRIDE;
}

static int64_t *pcp_words(int zone, int cpu)
{
	return st + st[AT_PCP_BASE] + (zone * st[AT_NR_CPUS] + cpu) * AT_PCP_STRIDE;
}

static int number_of(struct zone *zone)
{
	int number = 0;

	while (zones[number] != zone)
		number++;
	return number;
}

static struct model_row *new_row(void)
{
	if (st[AT_LOG_ROWS] >= log_capacity) {
		st[AT_LOG_DROPPED]++;
		return NULL;
	}
	log_lines[st[AT_LOG_ROWS]] = source_line;
	return log_rows + st[AT_LOG_ROWS]++;
}

static void log_page(int kind, struct page *page, int order, int migratetype, int fallback_order,
		     int fallback_type, int change_ownership)
{
	struct model_row *row;

	if (!st[AT_LOG_PAGES])
		return;
	row = new_row();
	if (!row)
		return;
	*row = (struct model_row){
		.kind = kind,
		.time_ns = st[AT_NOW],
		.zone = page->zone - 1,
		.cpu = st[AT_EVENT_CPU],
		.pfn = page_to_pfn(page),
		.order = order,
		.migratetype = migratetype,
		.fallback_order = fallback_order,
		.fallback_migratetype = fallback_type,
		.change_ownership = change_ownership,
	};
}

static void log_hold(int zone, int order, int migratetype, long objects, long pages)
{
	int64_t *counters = pcp_words(zone, hold.cpu) + AT_PCP_SITES + hold.site * AT_SITE_WORDS;
	struct model_row *row;

	source_line = hold.line;
	row = new_row();
	counters[AT_SITE_ACQUISITIONS]++;
	counters[AT_SITE_OBJECTS] += objects;
	counters[AT_SITE_PAGES] += pages;
	counters[AT_SITE_WORK + 0] += splits;
	counters[AT_SITE_WORK + 1] += merges;
	counters[AT_SITE_WORK + 2] += inserts;
	counters[AT_SITE_WORK + 3] += looks;
	if (!row)
		return;
	*row = (struct model_row){
		.kind = hold.site,
		.time_ns = st[AT_NOW],
		.zone = zone,
		.cpu = hold.cpu,
		.order = order,
		.migratetype = migratetype,
		.objects = objects,
		.pages = pages,
		.splits = splits,
		.merges = merges,
		.inserts = inserts,
		.scanned = looks,
		.ran_on = this_cpu,
	};
}

#define SITE_OF_NO_OPERATION AT_SITES
#define SITE_DRAIN AT_SITE_DRAIN_COMMIT

static int site_of_function(const char *function)
{
	static const struct { const char *function; int site; } known[] = {
		{ "rmqueue_bulk", AT_SITE_REFILL },
		{ "free_pcppages_bulk", SITE_DRAIN },
		{ "rmqueue_buddy", AT_SITE_BUDDY_ALLOC },
		{ "free_one_page", AT_SITE_DIRECT_FREE },
		{ "__free_pages_ok", AT_SITE_DIRECT_FREE },
		{ "reserve_highatomic_pageblock", AT_SITE_RESERVE },
		{ "unreserve_highatomic_pageblock", AT_SITE_UNRESERVE },
		{ "balance_pgdat", AT_SITE_BOOST_RESET },
	};

	for (size_t each = 0; each < ARRAY_SIZE(known); each++)
		if (strcmp(known[each].function, function) == 0)
			return known[each].site;
	return SITE_OF_NO_OPERATION;
}

/* A counter with what CPUs hold back. */
static long counted(struct zone *zone, enum zone_stat_item item)
{
	long pages = atomic_long_read(&zone->vm_stat[item]);

	for (int cpu = 0; cpu < online_cpus; cpu++)
		pages += per_cpu_ptr(zone->per_cpu_zonestats, cpu)->vm_stat_diff[item];
	return pages;
}

static int cpu_of_drain(struct zone *zone)
{
	long distance = (char *)last_pcp - (char *)zone->per_cpu_pageset, cpu = distance / percpu_unit;

	return last_pcp && cpu >= 0 && cpu < online_cpus ? cpu : this_cpu;
}

static void begin_hold(struct zone *zone, int site, int line)
{
	hold = (struct hold){
		.site = site, .line = line, .cpu = this_cpu, .taken_from = request_migratetype,
	};
	note_change(zone);
	hold.free = counted(zone, NR_FREE_PAGES);
	pageblock_types_set = 0;
	splits = merges = inserts = looks = 0;
	is_freeing = site == SITE_DRAIN || site == AT_SITE_DIRECT_FREE;
	if (site == SITE_DRAIN) {
		hold.site = drain_site;
		hold.cpu = cpu_of_drain(zone);
	}
}

static void end_hold(struct zone *zone)
{
	int number = number_of(zone);
	long taken = hold.free - counted(zone, NR_FREE_PAGES);

	if (taken && st[AT_COUNTS_BY_CPU] && !zone_words(number)[AT_ZONE_THRESHOLD_ASLEEP])
		pcp_words(number, this_cpu)[AT_PCP_TOUCHED] = 1;
	if (is_growing)
		return;
	switch (hold.site) {
	case AT_SITE_REFILL:
		log_hold(number, request_order, request_migratetype, taken >> request_order, taken);
		break;
	case AT_SITE_BUDDY_ALLOC:
		log_hold(number, request_order, hold.taken_from, taken >> request_order, taken);
		break;
	case AT_SITE_DIRECT_FREE:
		log_hold(number, request_order, request_migratetype, 1, 1L << request_order);
		break;
	case AT_SITE_RESERVE:
		log_hold(number, request_order, MIGRATE_HIGHATOMIC, pageblock_types_set, hold.moved);
		break;
	case AT_SITE_UNRESERVE:
		log_hold(number, request_order, request_migratetype, pageblock_types_set, hold.moved);
		break;
	case AT_SITE_BOOST_RESET:
		log_hold(number, 0, -1, 0, 0);
		break;
	case AT_SITE_DRAIN_COMMIT:
	case AT_SITE_DRAIN_DECAY:
	case AT_SITE_DRAIN_ALL:
		log_hold(number, 0, -1, hold.objects, hold.pages);
		break;
	}
}

static void note_moved(struct list_head *entry)
{
	hold.moved += 1L << page_private(list_entry(entry, struct page, lru));
}

static void note_zone_locked(struct page *page, unsigned int order, int migratetype)
{
	if (migratetype == MIGRATE_HIGHATOMIC)
		hold.taken_from = MIGRATE_HIGHATOMIC;
	log_page(AT_LOG_ZONE_LOCKED, page, order, migratetype, 0, 0, 0);
}

static void note_pcpu_drain(struct page *page, unsigned int order, int migratetype)
{
	hold.objects++;
	hold.pages += 1L << order;
	log_page(AT_LOG_PCPU_DRAIN, page, order, migratetype, 0, 0, 0);
}

static void note_extfrag(struct page *page, int alloc_order, int fallback_order,
			 int alloc_migratetype, int fallback_migratetype)
{
	bool owned = get_pageblock_migratetype(page) == alloc_migratetype;
	int kind = owned ? AT_CLAIM : AT_STEAL;
	int index;

	if (fallback_order >= pageblock_order)
		kind = AT_CLAIM_BLOCK;
	index = (alloc_migratetype * AT_PCP_TYPES + fallback_migratetype) * AT_FALLBACK_KINDS + kind;
	st[AT_FALLBACKS + (index * AT_ORDERS + alloc_order) * AT_ORDERS + fallback_order]++;
	log_page(AT_LOG_EXTFRAG, page, alloc_order, alloc_migratetype, fallback_order,
		 fallback_migratetype, owned);
}
