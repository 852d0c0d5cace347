/*
 * What a replay has to do, in plain C: per-CPU lists with refill and drain, their tuned limits and
 * their decay; buddy lists by order and type with split and merge; claims and steals of other
 * types; the watermark tests; counters and one log row per hold of the zone's lock. No slow path
 * beyond a second attempt, no reserve, no compaction. Beside it one sees how far the model is from
 * compiled code that does the same work on the same demand.
 *
 * Usage: replay_peer FILE      FILE is written by replay_peer.py, which says what is in it.
 * Prints: CPU seconds, allocations, frees, refills, drains; pages in the buddy and on per-CPU lists
 * at the end.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ORDERS = 15, TYPES = 6, LISTED_TYPES = 3, LISTS = 3 * ORDERS, ZONE_TYPES = 8 };
enum { UNMOVABLE, MOVABLE, RECLAIMABLE, HIGHATOMIC };
enum { NOWHERE, ALLOCATED, BUDDY, LISTED };
enum { ALLOC, FREE, HIDDEN_ALLOC = 3, KSWAPD_START, KSWAPD_STOP, SET_PCP_HIGH, DRAIN_ALL = 8, TICK = 10 };
enum { HOLD_DRAINED = 19, BEGIN_REQUEST = 20 };
enum { REFILL, DRAIN_COMMIT, DRAIN_DECAY, DRAIN_WHOLE, BUDDY_ALLOC, DIRECT_FREE, SITES = 9 };
enum { SPLITS, MERGES, INSERTS, SCANNED, UNITS };
enum { LOG_COLUMNS = 13, LOG_MARGIN = 1 << 16, BATCH_MAX = 31 };
enum { FREED_IN_BATCH = 1, INTERRUPTS_HOLDER = 2 };
enum { GFP_HIGH = 0x20, GFP_DIRECT_RECLAIM = 0x400, GFP_NOMEMALLOC = 0x80000 };
enum { WMARK_MIN, WMARK_LOW, WMARK_HIGH, MIN_RESERVE = 8, NON_BLOCK = 16, NOFRAGMENT = 64, CMA = 256 };

struct page {
	int32_t next, prev;
	int8_t order, where, type, flags;
};

struct block {
	int8_t type, zone;
};

struct event {
	int64_t time_ns;
	int32_t object, offset;
	uint32_t bits;
	int16_t cpu;
	int8_t operation, order, type, zone;
};

struct list {
	int64_t head, tail, entries;
};

struct zone {
	int64_t managed, start, end, marks[3], boost, lowmem_reserve[ZONE_TYPES], reserve, free, unfolded;
	int64_t free_cma, threshold, below_high, reclaim_active, avoids_fragmentation;
	struct list lists[ORDERS][TYPES];
};

struct site {
	int64_t holds, objects, pages, work[UNITS];
};

struct pageset {
	int64_t count, high, high_min, high_max, batch, alloc_factor, free_count, freed_high_order;
	int64_t free_delta, lock_holder, locks, handovers;
	struct list lists[LISTS];
	struct site sites[SITES];
};

struct cpu {
	int64_t batched;
	struct pageset *batch_set, *locked_set, *drained_set;
};

struct header {
	int64_t end_pfn, blocks, events, objects, zones, cpus, block_order, max_order;
	int64_t costly_order, huge_order, scale_max, boost_factor, cma, counts_by_cpu;
	int64_t free_batched, decay_batched, log_rows;
	int64_t next_tick, tick_period, tick_cpu, tick_base, tick_stagger;
};

static struct header about;
static struct page *pages;
static struct block *blocks;
static struct zone *zones;
static struct pageset *pagesets;
static struct cpu *cpus;
static int64_t (*holds)[LOG_COLUMNS];
static int64_t logged, now, running_cpu, work[UNITS], total_holds[SITES];

static int64_t least(int64_t one, int64_t other)
{
	return one < other ? one : other;
}

static int64_t most(int64_t one, int64_t other)
{
	return one > other ? one : other;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
	return value >= high ? high : most(value, low);
}

static void push_head(struct list *list, int32_t pfn)
{
	pages[pfn].next = list->head;
	pages[pfn].prev = -1;
	if (list->head >= 0)
		pages[list->head].prev = pfn;
	else
		list->tail = pfn;
	list->head = pfn;
	list->entries++;
}

static void push_tail(struct list *list, int32_t pfn)
{
	pages[pfn].prev = list->tail;
	pages[pfn].next = -1;
	if (list->tail >= 0)
		pages[list->tail].next = pfn;
	else
		list->head = pfn;
	list->tail = pfn;
	list->entries++;
}

static void take_off(struct list *list, int32_t pfn)
{
	int32_t next = pages[pfn].next, prev = pages[pfn].prev;

	if (prev >= 0)
		pages[prev].next = next;
	else
		list->head = next;
	if (next >= 0)
		pages[next].prev = prev;
	else
		list->tail = prev;
	list->entries--;
}

static struct pageset *pageset_of(int64_t zone, int64_t cpu)
{
	return &pagesets[zone * about.cpus + cpu];
}

static void note_hold(int site, int zone, int cpu, int order, int type, int64_t objects, int64_t count)
{
	struct site *at = &pageset_of(zone, cpu)->sites[site];
	int64_t *row = holds[logged++];

	at->holds++;
	at->objects += objects;
	at->pages += count;
	row[0] = site;
	row[1] = now;
	row[2] = zone;
	row[3] = cpu;
	row[4] = order;
	row[5] = type;
	row[6] = objects;
	row[7] = count;
	for (int unit = 0; unit < UNITS; unit++) {
		at->work[unit] += work[unit];
		row[8 + unit] = work[unit];
		work[unit] = 0;
	}
	row[12] = running_cpu;
}

/* The free pages of a zone, and what its watermark tests see of a change. */
static void count_free(int number, int64_t change)
{
	struct zone *zone = &zones[number];
	struct pageset *set = pageset_of(number, running_cpu);
	int64_t held = set->free_delta + change;

	zone->free += change;
	if (!about.counts_by_cpu)
		return;
	if (llabs(held) > zone->threshold)
		held = 0;
	zone->unfolded += held - set->free_delta;
	set->free_delta = held;
}

static int64_t seen_free(const struct zone *zone)
{
	return most(zone->free - zone->unfolded, 0);
}

static int above_mark(const struct zone *zone, int order, int64_t mark, int type, int flags)
{
	int64_t free = seen_free(zone) - ((1 << order) - 1);

	if (!(flags & (NON_BLOCK | MIN_RESERVE)))
		free -= zone->reserve;
	if (!(flags & CMA))
		free -= zone->free_cma;
	if (flags & MIN_RESERVE) {
		mark -= mark / 2;
		if (flags & NON_BLOCK)
			mark -= mark / 4;
	}
	if (free <= mark + zone->lowmem_reserve[type])
		return 0;
	for (int found = order; order && found <= about.max_order; found++)
		for (int listed = 0; listed < LISTED_TYPES; listed++)
			if (zone->lists[found][listed].head >= 0)
				return 1;
	return !order;
}

static int may_serve(struct zone *zone, int order, int type, int flags)
{
	if (!zone->below_high) {
		if (above_mark(zone, order, zone->marks[WMARK_HIGH] + zone->boost, type, flags))
			return 1;
		zone->below_high = 1;
	}
	return above_mark(zone, order, zone->marks[flags & 3] + zone->boost, type, flags);
}

static void add_buddy(struct zone *zone, int32_t pfn, int order, int type, int tail)
{
	pages[pfn].order = order;
	pages[pfn].where = BUDDY;
	pages[pfn].type = type;
	if (tail)
		push_tail(&zone->lists[order][type], pfn);
	else
		push_head(&zone->lists[order][type], pfn);
}

static void del_buddy(struct zone *zone, int32_t pfn)
{
	take_off(&zone->lists[pages[pfn].order][pages[pfn].type], pfn);
	pages[pfn].where = NOWHERE;
}

static int32_t cut(struct zone *zone, int32_t pfn, int order, int type)
{
	int found = pages[pfn].order;

	del_buddy(zone, pfn);
	work[SPLITS] += found - order;
	while (found > order) {
		found--;
		add_buddy(zone, pfn + (1 << found), found, type, 0);
	}
	return pfn;
}

static int32_t smallest(struct zone *zone, int order, int type)
{
	for (int found = order; found <= about.max_order; found++)
		if (zone->lists[found][type].head >= 0)
			return cut(zone, zone->lists[found][type].head, order, type);
	return -1;
}

static int32_t foreign(const struct zone *zone, int order, int type)
{
	static const int choices[LISTED_TYPES][2] = { { RECLAIMABLE, MOVABLE },
						      { RECLAIMABLE, UNMOVABLE },
						      { UNMOVABLE, MOVABLE } };

	for (int choice = 0; choice < 2; choice++)
		if (zone->lists[order][choices[type][choice]].head >= 0)
			return zone->lists[order][choices[type][choice]].head;
	return -1;
}

static int is_alike(const struct zone *zone, int64_t block, int type)
{
	int64_t size = 1 << about.block_order, first = block << about.block_order;
	int64_t free = 0, movable = 0, alike = 0, step;

	if (first < zone->start || first + size > zone->end)
		return 0;
	for (int64_t pfn = first; pfn < first + size; pfn += step) {
		const struct page *page = &pages[pfn];

		step = page->where == BUDDY || page->where == ALLOCATED ? 1 << page->order : 1;
		work[SCANNED] += page->where == ALLOCATED ? step : 1;
		if (page->where == BUDDY)
			free += step;
		else if (page->where == ALLOCATED && page->type == 1)
			movable += step;
	}
	if (type == MOVABLE)
		alike = movable;
	else if (blocks[block].type == MOVABLE)
		alike = size - free - movable;
	return free + alike >= size / 2;
}

static void retype(struct zone *zone, int64_t block, int type)
{
	int64_t end = (block + 1) << about.block_order;

	for (int64_t pfn = block << about.block_order; pfn < end;) {
		work[SCANNED]++;
		if (pages[pfn].where != BUDDY) {
			pfn++;
			continue;
		}
		del_buddy(zone, pfn);
		add_buddy(zone, pfn, pages[pfn].order, type, 1);
		work[INSERTS]++;
		pfn += 1 << pages[pfn].order;
	}
	blocks[block].type = type;
}

static void boost(struct zone *zone)
{
	int64_t size = 1 << about.block_order, cap = zone->marks[WMARK_HIGH] * about.boost_factor / 10000;

	if (cap && 4 * size <= zone->managed)
		zone->boost = least(zone->boost + size, most(cap, size));
}

static int32_t claim(struct zone *zone, int order, int type, int flags)
{
	int lowest = flags & NOFRAGMENT && order < about.block_order ? about.block_order : order;

	for (int found = about.max_order; found >= lowest; found--) {
		int32_t pfn;

		if (found < about.block_order / 2 && type == MOVABLE)
			return -1;
		pfn = foreign(zone, found, type);
		if (pfn < 0)
			continue;
		if (found >= about.block_order) {
			for (int32_t each = pfn; each < pfn + (1 << found); each += 1 << about.block_order)
				blocks[each >> about.block_order].type = type;
			return cut(zone, pfn, order, type);
		}
		boost(zone);
		if (is_alike(zone, pfn >> about.block_order, type)) {
			retype(zone, pfn >> about.block_order, type);
			return smallest(zone, order, type);
		}
	}
	return -1;
}

static int32_t take_buddy(struct zone *zone, int order, int type, int flags, int *steals)
{
	int32_t pfn = *steals ? -1 : smallest(zone, order, type);

	if (pfn < 0 && !*steals)
		pfn = claim(zone, order, type, flags);
	if (pfn >= 0 || flags & NOFRAGMENT)
		return pfn;
	for (int found = order; found <= about.max_order; found++) {
		pfn = foreign(zone, found, type);
		if (pfn >= 0) {
			*steals = 1;
			return cut(zone, pfn, order, pages[pfn].type);
		}
	}
	return -1;
}

static int is_buddy(int32_t pfn, int order, int zone)
{
	return pfn < about.end_pfn && pages[pfn].where == BUDDY && pages[pfn].order == order &&
	       blocks[pfn >> about.block_order].zone == zone + 1;
}

static void free_buddy(int number, int32_t pfn, int order, int type)
{
	struct zone *zone = &zones[number];
	int tail = 0;

	count_free(number, 1 << order);
	pages[pfn].where = NOWHERE;
	work[MERGES] -= order;
	while (order < about.max_order && is_buddy(pfn ^ (1 << order), order, number)) {
		int32_t buddy = pfn ^ (1 << order);

		if (order >= about.block_order && blocks[buddy >> about.block_order].type != type) {
			if (blocks[buddy >> about.block_order].type >= LISTED_TYPES || type >= LISTED_TYPES)
				break;
			for (int32_t each = buddy; each < buddy + (1 << order); each += 1 << about.block_order)
				blocks[each >> about.block_order].type = type;
		}
		del_buddy(zone, buddy);
		pfn &= ~(1 << order);
		order++;
	}
	work[MERGES] += order;
	work[INSERTS]++;
	if (order < about.max_order - 1)
		tail = is_buddy((pfn & ~(1 << order)) ^ (1 << (order + 1)), order + 1, number);
	add_buddy(zone, pfn, order, type, tail);
}

static int list_of(int order, int type)
{
	if (order <= about.costly_order)
		return 3 * order + type;
	return order == about.huge_order ? 3 * (about.costly_order + 1) + (type == MOVABLE) : -1;
}

static int order_of(int list)
{
	return list / 3 <= about.costly_order ? list / 3 : about.huge_order;
}

static void lock(struct pageset *set, struct pageset *mine)
{
	if (set->lock_holder != running_cpu + 1) {
		mine->handovers += set->lock_holder != 0;
		set->lock_holder = running_cpu + 1;
	}
	mine->locks++;
}

static int64_t refill_size(const struct zone *zone, struct pageset *set, int order)
{
	int64_t wanted = set->batch, high = clamp(set->high, set->high_min, set->high_max);

	set->high = high;
	if (high < set->batch)
		return 1;
	if (!order)
		wanted <<= set->alloc_factor;
	if (set->high_min != set->high_max && !zone->below_high)
		set->high = high = least(high + wanted, set->high_max);
	if (!order) {
		int64_t room = most(high - set->count - set->batch, set->batch);

		if (wanted <= room && set->alloc_factor < about.scale_max)
			set->alloc_factor++;
		wanted = least(wanted, room);
	}
	return wanted > 1 ? most(wanted >> order, 2) : wanted;
}

static int64_t refill(int number, int cpu, int order, int type, int index, int flags)
{
	struct pageset *set = pageset_of(number, cpu);
	int64_t wanted = refill_size(&zones[number], set, order), got;
	int steals = 0;

	for (got = 0; got < wanted; got++) {
		int32_t pfn = take_buddy(&zones[number], order, type, flags, &steals);

		if (pfn < 0)
			break;
		pages[pfn].order = order;
		pages[pfn].where = LISTED;
		push_tail(&set->lists[index], pfn);
	}
	count_free(number, -(got << order));
	set->count += got << order;
	note_hold(REFILL, number, cpu, order, type, got, got << order);
	return got;
}

/* An interrupt cannot take the lock that what it came into holds. */
static int is_locked(int cpu, const struct pageset *set)
{
	return cpus[cpu].batch_set == set || cpus[cpu].locked_set == set;
}

static int32_t take_listed(int number, int cpu, int order, int type, int index, int flags)
{
	struct pageset *set = pageset_of(number, cpu);
	struct list *list = &set->lists[index];
	int32_t pfn;

	if (is_locked(cpu, set))
		return -1;
	lock(set, set);
	set->free_count >>= 1;
	if (list->head < 0 && !refill(number, cpu, order, type, index, flags))
		return -1;
	pfn = list->head;
	take_off(list, pfn);
	set->count -= 1 << order;
	return pfn;
}

static int32_t take(int number, int cpu, int order, int type, int flags)
{
	int index = list_of(order, type), steals = 0;
	int32_t pfn = -1;

	if (index >= 0)
		pfn = take_listed(number, cpu, order, type, index, flags);
	if (pfn >= 0)
		return pfn;
	pfn = take_buddy(&zones[number], order, type, flags, &steals);
	if (pfn >= 0) {
		count_free(number, -(1 << order));
		pages[pfn].flags = 0;
	}
	note_hold(BUDDY_ALLOC, number, cpu, order, type, pfn >= 0, pfn >= 0 ? 1 << order : 0);
	return pfn;
}

static void drain(int zone, int cpu, int64_t wanted, int index, int site)
{
	struct pageset *set = pageset_of(zone, cpu);
	int64_t left = least(wanted, set->count), objects = 0, before = set->count;
	int lists = 3 * (about.costly_order + 1) + (about.huge_order >= 0 ? 2 : 0);

	while (left > 0) {
		int order;
		int32_t pfn;

		while (set->lists[index].tail < 0)
			index = index + 1 == lists ? 0 : index + 1;
		order = order_of(index);
		pfn = set->lists[index].tail;
		take_off(&set->lists[index], pfn);
		free_buddy(zone, pfn, order, blocks[pfn >> about.block_order].type);
		set->count -= 1 << order;
		left -= 1 << order;
		objects++;
	}
	note_hold(site, zone, cpu, 0, -1, objects, before - set->count);
}

static void drain_in_turns(int zone, int cpu, int64_t wanted, int index, int site, int batched)
{
	struct pageset *set = pageset_of(zone, cpu);

	for (int64_t turn = batched ? set->batch : wanted; wanted > 0 && set->count > 0; wanted -= turn)
		drain(zone, cpu, least(turn, wanted), index, site);
}

static int64_t overflow_limit(const struct zone *zone, struct pageset *set, int flush)
{
	int64_t high = clamp(set->high, set->high_min, set->high_max);

	set->high = high;
	if (!high)
		return 0;
	if (flush) {
		set->high = most(high - (set->batch << about.scale_max), set->high_min);
		return 0;
	}
	if (zone->reclaim_active) {
		set->high = most(high - most(set->free_count, set->batch), set->high_min);
		return least(set->batch << 2, set->high);
	}
	if (set->high_min == set->high_max)
		return high;
	if (zone->below_high) {
		set->high = most(high - most(set->free_count, set->batch), set->high_min);
		return most(set->count, set->high_min);
	}
	if (set->count >= high && set->high < set->free_count + set->batch)
		set->high = clamp(set->free_count + set->batch, set->high_min, set->high_max);
	return high;
}

static int64_t overflow(const struct zone *zone, struct pageset *set, int order)
{
	int64_t limit;
	int flush = 0;

	set->alloc_factor >>= 1;
	set->count += 1 << order;
	if (order && order <= about.costly_order) {
		flush = set->free_count >= set->batch + set->high_min / 2 && set->freed_high_order &&
			set->count >= set->batch;
		set->freed_high_order = 1;
	} else {
		set->freed_high_order = 0;
	}
	if (set->free_count < set->batch << about.scale_max)
		set->free_count += 1 << order;
	limit = overflow_limit(zone, set, flush);
	if (set->count < limit)
		return -1;
	if (flush)
		return least(set->count, set->batch << about.scale_max);
	return limit < set->batch ? 1 : clamp(set->free_count, set->batch, limit - set->batch);
}

static void give(int32_t pfn, int number, int order, int in_batch)
{
	struct block *block = &blocks[pfn >> about.block_order];
	int zone = block->zone - 1, listed = block->type < LISTED_TYPES ? block->type : MOVABLE;
	int index = list_of(order, listed);
	struct pageset *set = pageset_of(zone, number);
	struct cpu *cpu = &cpus[number];
	int64_t excess;

	if (index < 0 || (!in_batch && is_locked(number, set))) {
		free_buddy(zone, pfn, order, block->type);
		note_hold(DIRECT_FREE, zone, number, order, block->type, 1, 1 << order);
		return;
	}
	if (!in_batch) {
		lock(set, set);
	} else if (++cpu->batched > BATCH_MAX || cpu->batch_set != set) {
		lock(set, set);
		cpu->batch_set = set;
		cpu->batched = 1;
	}
	pages[pfn].order = order;
	pages[pfn].where = LISTED;
	pages[pfn].type = block->type;
	push_head(&set->lists[index], pfn);
	excess = overflow(&zones[zone], set, order);
	if (excess < 0)
		return;
	drain_in_turns(zone, number, excess, index, DRAIN_COMMIT, about.free_batched);
	cpu->drained_set = set;
	if (zones[zone].below_high &&
	    above_mark(&zones[zone], 0, zones[zone].marks[WMARK_HIGH] + zones[zone].boost, MOVABLE, 0))
		zones[zone].below_high = 0;
}

static void decay(int cpu)
{
	running_cpu = cpu;
	for (int number = 0; number < about.zones; number++) {
		struct pageset *set = pageset_of(number, cpu);

		if (!zones[number].managed)
			continue;
		zones[number].unfolded -= set->free_delta;
		set->free_delta = 0;
		if (set->high > set->high_min)
			set->high = most(most(set->count - (set->batch << about.scale_max),
					      set->high - (set->high >> 3)), set->high_min);
		if (set->count > set->high)
			drain_in_turns(number, cpu, set->count - set->high, 0, DRAIN_DECAY,
				       about.decay_batched);
	}
}

/* Takes a page from the first zone that may serve, or refills its list if the request is to begin. */
static int32_t take_from_zones(const struct event *event, int flags)
{
	int preferred = event->zone, index = list_of(event->order, event->type);

	while (preferred > 0 && !zones[preferred].managed)
		preferred--;
	if (zones[preferred].avoids_fragmentation)
		flags |= NOFRAGMENT;
	do {
		for (int zone = preferred; zone >= 0; zone--) {
			struct pageset *set = pageset_of(zone, event->cpu);
			int32_t pfn;

			if (!zones[zone].managed || !may_serve(&zones[zone], event->order, event->zone, flags))
				continue;
			if (event->operation == BEGIN_REQUEST) {
				if (index >= 0 && set->lists[index].head < 0) {
					refill(zone, event->cpu, event->order, event->type, index, flags);
					cpus[event->cpu].locked_set = set;
				}
				return -1;
			}
			pfn = take(zone, event->cpu, event->order, event->type, flags);
			if (pfn >= 0)
				return pfn;
		}
		flags ^= NOFRAGMENT;
	} while (!(flags & NOFRAGMENT));
	return -1;
}

static int list_flags(const struct event *event)
{
	return event->type == MOVABLE && about.cma >= 0 ? CMA : 0;
}

static int32_t allocate(const struct event *event)
{
	int flags = list_flags(event);
	int32_t pfn = take_from_zones(event, flags | WMARK_LOW);

	if (pfn < 0) {
		flags |= event->bits & GFP_HIGH ? MIN_RESERVE : 0;
		flags |= event->bits & (GFP_DIRECT_RECLAIM | GFP_NOMEMALLOC) ? 0 : NON_BLOCK;
		pfn = take_from_zones(event, flags | WMARK_MIN);
	}
	if (pfn < 0)
		return -1;
	pages[pfn].order = event->order;
	pages[pfn].where = ALLOCATED;
	pages[pfn].type = event->type == MOVABLE;
	pages[pfn].next = -1;
	return pfn;
}

static void take_rare(const struct event *event)
{
	struct cpu *cpu = &cpus[event->cpu];

	if (event->operation == TICK) {
		decay(event->cpu);
	} else if (event->operation == BEGIN_REQUEST) {
		take_from_zones(event, list_flags(event) | WMARK_LOW);
	} else if (event->operation == HOLD_DRAINED) {
		cpu->batch_set = NULL;
		if (!cpu->locked_set)
			cpu->locked_set = cpu->drained_set;
	} else if (event->operation == SET_PCP_HIGH) {
		struct pageset *set = pageset_of(event->zone, event->cpu);

		set->high = clamp(event->offset, set->high_min, set->high_max);
	} else if (event->operation == KSWAPD_START || event->operation == KSWAPD_STOP) {
		for (int zone = 0; zone < about.zones; zone++) {
			zones[zone].reclaim_active = event->operation == KSWAPD_START && zone <= event->zone;
			zones[zone].boost = event->operation == KSWAPD_START ? zones[zone].boost : 0;
		}
	} else if (event->operation == DRAIN_ALL) {
		for (int number = 0; number < about.cpus; number++)
			for (int zone = 0; zone < about.zones; zone++)
				if (pageset_of(zone, number)->count)
					drain(zone, number, pageset_of(zone, number)->count, 0, DRAIN_WHOLE);
	}
}

static void empty_log(void)
{
	for (int64_t row = 0; row < logged; row++)
		total_holds[holds[row][0]]++;
	logged = 0;
}

static void tick(int64_t until)
{
	while (about.next_tick <= until) {
		now = about.next_tick;
		decay(about.tick_cpu);
		if (--about.tick_cpu < 0) {
			about.tick_cpu = about.cpus - 1;
			about.tick_base += about.tick_period;
		}
		about.next_tick = about.tick_base - about.tick_cpu * about.tick_stagger;
	}
}

static void *loaded(FILE *file, int64_t count, size_t size)
{
	void *data = malloc(count * size);

	if (!data || fread(data, size, count, file) != (size_t)count) {
		fprintf(stderr, "replay_peer: the file is too short\n");
		exit(2);
	}
	return data;
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int count, char **words)
{
	FILE *file = count == 2 ? fopen(words[1], "rb") : NULL;
	int64_t allocations = 0, frees = 0, free_pages = 0, listed_pages = 0;
	struct event *events;
	int32_t *places;
	double begun;

	if (!file) {
		fprintf(stderr, "usage: replay_peer FILE\n");
		return 2;
	}
	about = *(struct header *)loaded(file, 1, sizeof(about));
	pages = loaded(file, about.end_pfn, sizeof(*pages));
	blocks = loaded(file, about.blocks, sizeof(*blocks));
	zones = loaded(file, about.zones, sizeof(*zones));
	pagesets = loaded(file, about.zones * about.cpus, sizeof(*pagesets));
	places = loaded(file, about.objects, sizeof(*places));
	events = loaded(file, about.events, sizeof(*events));
	cpus = calloc(about.cpus, sizeof(*cpus));
	holds = calloc(about.log_rows, sizeof(*holds));
	if (!cpus || !holds)
		return 2;
	begun = seconds();
	for (int64_t number = 0; number < about.events; number++) {
		const struct event *event = &events[number];

		if (about.next_tick <= event->time_ns)
			tick(event->time_ns);
		if (logged + LOG_MARGIN > about.log_rows)
			empty_log();
		now = event->time_ns;
		running_cpu = event->cpu;
		if (event->operation == FREE && event->bits & FREED_IN_BATCH) {
			cpus[event->cpu].locked_set = cpus[event->cpu].drained_set = NULL;
		} else if (!(event->bits & INTERRUPTS_HOLDER)) {
			struct cpu *cpu = &cpus[event->cpu];

			cpu->batch_set = cpu->locked_set = cpu->drained_set = NULL;
		}
		if (event->operation == FREE) {
			if (places[event->object] >= 0) {
				give(places[event->object] + event->offset, event->cpu, event->order,
				     event->bits & FREED_IN_BATCH);
				frees++;
			}
			continue;
		}
		if (event->operation == ALLOC || event->operation == HIDDEN_ALLOC) {
			places[event->object] = allocate(event);
			allocations++;
		} else {
			take_rare(event);
		}
	}
	begun = seconds() - begun;
	empty_log();
	for (int zone = 0; zone < about.zones; zone++)
		free_pages += zones[zone].free;
	for (int64_t set = 0; set < about.zones * about.cpus; set++)
		listed_pages += pagesets[set].count;
	printf("%.6f %lld %lld %lld %lld %lld %lld\n", begun, (long long)allocations,
	       (long long)frees, (long long)total_holds[REFILL],
	       (long long)(total_holds[DRAIN_COMMIT] + total_holds[DRAIN_DECAY] + total_holds[DRAIN_WHOLE]),
	       (long long)free_pages, (long long)listed_pages);
	return 0;
}
