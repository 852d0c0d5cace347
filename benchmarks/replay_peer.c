/*
 * The least that a replay has to do, in plain C: per-CPU lists with refill and drain, buddy lists
 * by order and type with split and merge, fallback to another type. Fixed list sizes, two
 * watermarks, no statistics, no slow path. Beside it one sees how far the model is from compiled
 * code on the same demand.
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

enum { ORDERS = 15, TYPES = 6, LISTED_TYPES = 3, LISTED_ORDERS = 4 };
enum { NOWHERE, ALLOCATED, BUDDY, LISTED };
enum { ALLOC, FREE, HIDDEN_ALLOC = 3 };

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
	int32_t head, tail;
};

struct zone {
	int64_t free, mark;
	struct list lists[ORDERS][TYPES];
};

struct pageset {
	int64_t count, batch, high;
	struct list lists[LISTED_ORDERS][LISTED_TYPES];
};

struct header {
	int64_t end_pfn, blocks, events, objects, zones, cpus, block_order, max_order;
};

static struct header about;
static struct page *pages;
static struct block *blocks;
static struct zone *zones;
static struct pageset *pagesets;
static int64_t refills, drains;

static void push_head(struct list *list, int32_t pfn)
{
	pages[pfn].next = list->head;
	pages[pfn].prev = -1;
	if (list->head >= 0)
		pages[list->head].prev = pfn;
	else
		list->tail = pfn;
	list->head = pfn;
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
}

static void add_buddy(struct zone *zone, int32_t pfn, int order, int type)
{
	pages[pfn].order = order;
	pages[pfn].where = BUDDY;
	pages[pfn].type = type;
	push_head(&zone->lists[order][type], pfn);
}

static int32_t cut(struct zone *zone, int32_t pfn, int order, int type)
{
	int found = pages[pfn].order;

	take_off(&zone->lists[found][pages[pfn].type], pfn);
	while (found > order) {
		found--;
		add_buddy(zone, pfn + (1 << found), found, type);
	}
	zone->free -= 1 << order;
	return pfn;
}

static int32_t fall_back(struct zone *zone, int order, int type)
{
	for (int found = about.max_order; found >= order; found--) {
		for (int other = 0; other < LISTED_TYPES; other++) {
			int32_t pfn = zone->lists[found][other].head;

			if (other == type || pfn < 0)
				continue;
			if (found < about.block_order)
				return cut(zone, pfn, order, other);
			for (int32_t each = pfn; each < pfn + (1 << found); each += 1 << about.block_order)
				blocks[each >> about.block_order].type = type;
			return cut(zone, pfn, order, type);
		}
	}
	return -1;
}

static int32_t take_buddy(struct zone *zone, int order, int type)
{
	for (int found = order; found <= about.max_order; found++)
		if (zone->lists[found][type].head >= 0)
			return cut(zone, zone->lists[found][type].head, order, type);
	return fall_back(zone, order, type);
}

static int is_buddy(int32_t pfn, int order, int zone)
{
	return pfn < about.end_pfn && pages[pfn].where == BUDDY && pages[pfn].order == order &&
	       blocks[pfn >> about.block_order].zone == zone + 1;
}

static void free_buddy(int number, int32_t pfn, int order, int type)
{
	struct zone *zone = &zones[number];

	zone->free += 1 << order;
	pages[pfn].where = NOWHERE;
	while (order < about.max_order && is_buddy(pfn ^ (1 << order), order, number)) {
		int32_t buddy = pfn ^ (1 << order);

		if (order >= about.block_order && pages[buddy].type != type)
			break;
		take_off(&zone->lists[order][pages[buddy].type], buddy);
		pages[buddy].where = NOWHERE;
		pfn &= ~(1 << order);
		order++;
	}
	add_buddy(zone, pfn, order, type);
}

static struct pageset *pageset_of(int zone, int cpu)
{
	return &pagesets[zone * about.cpus + cpu];
}

static int32_t take(int number, int cpu, int order, int type)
{
	struct pageset *set = pageset_of(number, cpu);
	struct list *list;
	int32_t pfn;

	if (order >= LISTED_ORDERS || type >= LISTED_TYPES)
		return take_buddy(&zones[number], order, type);
	list = &set->lists[order][type];
	if (list->head < 0) {
		int64_t wanted = set->batch >> order;

		refills++;
		for (int64_t got = 0; got < (wanted > 1 ? wanted : 2); got++) {
			pfn = take_buddy(&zones[number], order, type);
			if (pfn < 0)
				break;
			pages[pfn].order = order;
			pages[pfn].where = LISTED;
			push_tail(list, pfn);
			set->count += 1 << order;
		}
		if (list->head < 0)
			return -1;
	}
	pfn = list->head;
	take_off(list, pfn);
	set->count -= 1 << order;
	return pfn;
}

static void drain(int zone, struct pageset *set)
{
	int64_t left = set->batch;

	drains++;
	for (int index = 0; left > 0 && set->count > 0; index++) {
		int order = index / LISTED_TYPES % LISTED_ORDERS;
		struct list *list = &set->lists[order][index % LISTED_TYPES];

		while (list->tail >= 0 && left > 0) {
			int32_t pfn = list->tail;

			take_off(list, pfn);
			free_buddy(zone, pfn, order, blocks[pfn >> about.block_order].type);
			set->count -= 1 << order;
			left -= 1 << order;
		}
	}
}

static void give(int32_t pfn, int cpu, int order)
{
	struct block *block = &blocks[pfn >> about.block_order];
	int zone = block->zone - 1;
	struct pageset *set = pageset_of(zone, cpu);

	if (order >= LISTED_ORDERS || block->type >= TYPES - 1) {
		free_buddy(zone, pfn, order, block->type);
		return;
	}
	pages[pfn].order = order;
	pages[pfn].where = LISTED;
	push_head(&set->lists[order][block->type < LISTED_TYPES ? block->type : 1], pfn);
	set->count += 1 << order;
	if (set->count >= set->high)
		drain(zone, set);
}

static int32_t allocate(const struct event *event)
{
	for (int pass = 0; pass < 2; pass++)
		for (int zone = event->zone; zone >= 0; zone--) {
			int32_t pfn;

			if (!zones[zone].mark || (!pass && zones[zone].free - (1 << event->order) <= zones[zone].mark))
				continue;
			pfn = take(zone, event->cpu, event->order, event->type);
			if (pfn < 0)
				continue;
			pages[pfn].order = event->order;
			pages[pfn].where = ALLOCATED;
			return pfn;
		}
	return -1;
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
	begun = seconds();
	for (int64_t number = 0; number < about.events; number++) {
		const struct event *event = &events[number];

		if (event->operation == ALLOC || event->operation == HIDDEN_ALLOC) {
			places[event->object] = allocate(event);
			allocations++;
		} else if (event->operation == FREE && places[event->object] >= 0) {
			give(places[event->object] + event->offset, event->cpu, event->order);
			frees++;
		}
	}
	begun = seconds() - begun;
	for (int zone = 0; zone < about.zones; zone++)
		free_pages += zones[zone].free;
	for (int64_t set = 0; set < about.zones * about.cpus; set++)
		listed_pages += pagesets[set].count;
	printf("%.6f %lld %lld %lld %lld %lld %lld\n", begun, (long long)allocations,
	       (long long)frees, (long long)refills, (long long)drains, (long long)free_pages,
	       (long long)listed_pages);
	return 0;
}
