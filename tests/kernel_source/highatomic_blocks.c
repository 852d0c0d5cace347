/* The patch's count beside a walk of the free lists; behind the shim, in a test's unit only. */

static unsigned long walked(struct zone *zone)
{
	unsigned long pages = 0;
	struct page *page;

	for (int order = pageblock_order; order < MAX_BUDDY_ORDER + 1; order++)
		list_for_each_entry(page, &zone->free_area[order].free_list[MIGRATE_HIGHATOMIC], lru)
			pages += 1UL << order;
	return pages;
}

/* The shim links the first free pages itself, so that nothing has counted them. */
void begin_counts(void)
{
	for (int zone = 0; zone < nr_zones; zone++)
		zones[zone]->nr_free_highatomic_blocks = walked(zones[zone]);
}

/* Pages counted in all zones, or -1 if a zone's count is not that of the walk. */
long counted_pages(void)
{
	long pages = 0;

	for (int zone = 0; zone < nr_zones; zone++) {
		if (zones[zone]->nr_free_highatomic_blocks != walked(zones[zone]))
			return -1;
		pages += zones[zone]->nr_free_highatomic_blocks;
	}
	return pages;
}
