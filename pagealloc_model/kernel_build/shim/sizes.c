/* What the kernel's set-up makes of zones' managed pages and of the settings that decide. */

static bool have_counters(struct per_cpu_zonestat *of_zones, struct per_cpu_nodestat *of_nodes)
{
	if (!of_zones || !of_nodes)
		return false;
	for (int number = 0; number < nr_zones; number++)
		zones[number]->per_cpu_zonestats = of_zones + number * online_cpus;
	for (int node = 0; node < nr_online_nodes; node++)
		nodes[node].per_cpu_nodestats = of_nodes + node * online_cpus;
	return true;
}

static void store_limits(struct per_cpu_pages *pcp, int64_t *words)
{
	words[AT_PCP_BATCH] = pcp->batch;
#ifdef HAS_per_cpu_pages_high_min
	words[AT_PCP_HIGH_MIN] = pcp->high_min;
	words[AT_PCP_HIGH_MAX] = pcp->high_max;
#else
	words[AT_PCP_HIGH_MIN] = words[AT_PCP_HIGH_MAX] = pcp->high;
#endif
}

static void size_zone(int number)
{
	int64_t *words = zone_words(number);
	struct zone *zone = zones[number];
	int cpu_online = 0;

	CALL_zone_set_pageset_high_and_batch;
	words[AT_ZONE_MIN] = zone->_watermark[WMARK_MIN];
	words[AT_ZONE_LOW] = zone->_watermark[WMARK_LOW];
	words[AT_ZONE_HIGH] = zone->_watermark[WMARK_HIGH];
	for (int type = 0; type < st[AT_ZONE_TYPES]; type++)
		words[AT_ZONE_LOWMEM_RESERVE + type] = zone->lowmem_reserve[kernel_type[type]];
	for (int cpu = 0; cpu < online_cpus; cpu++)
		store_limits(&zone->per_cpu_pageset[cpu], pcp_words(number, cpu));
	words[AT_ZONE_DRIFT_MARK] = zone->percpu_drift_mark;
	words[AT_ZONE_THRESHOLD_ASLEEP] = zone->per_cpu_zonestats[0].stat_threshold;
	words[AT_ZONE_THRESHOLD_AWAKE] = words[AT_ZONE_THRESHOLD_ASLEEP];
	if (zone->percpu_drift_mark)
		words[AT_ZONE_THRESHOLD_AWAKE] = CALL_calculate_pressure_threshold;
}

/*
 * Size every zone anew and write marks, reserves, limits of page sets and thresholds of counters
 * into the state that was loaded. Returns 0, or 1 if memory is short.
 */
int shim_size_zones(long free_kbytes, long scale_factor, long high_fraction)
{
	struct per_cpu_zonestat *of_zones = calloc(nr_zones * online_cpus, sizeof(*of_zones));
	struct per_cpu_nodestat *of_nodes = calloc(nr_online_nodes * online_cpus, sizeof(*of_nodes));
	bool enough = have_counters(of_zones, of_nodes);

	if (enough) {
		min_free_kbytes = free_kbytes;
		watermark_scale_factor = scale_factor;
		percpu_pagelist_high_fraction = high_fraction;
		CALL___setup_per_zone_wmarks;
		CALL_setup_per_zone_lowmem_reserve;
		CALL_refresh_zone_stat_thresholds;
		for (int number = 0; number < nr_zones; number++)
			if (managed_zone(zones[number]))
				size_zone(number);
	}
	free(of_zones);
	free(of_nodes);
	return !enough;
}
