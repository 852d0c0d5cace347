/* What the kernel's set-up makes of zones' managed pages and of the settings that decide. */

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
		store_limits(per_cpu_ptr(zone->per_cpu_pageset, cpu), pcp_words(number, cpu));
	words[AT_ZONE_DRIFT_MARK] = zone->percpu_drift_mark;
	words[AT_ZONE_THRESHOLD_ASLEEP] = zone->per_cpu_zonestats->stat_threshold;
	words[AT_ZONE_THRESHOLD_AWAKE] = words[AT_ZONE_THRESHOLD_ASLEEP];
	if (zone->percpu_drift_mark)
		words[AT_ZONE_THRESHOLD_AWAKE] = CALL_calculate_pressure_threshold;
}

/*
 * Size every zone anew and write marks, reserves, limits of page sets and thresholds of counters
 * into the state that was loaded.
 */
void shim_size_zones(long free_kbytes, long scale_factor, long high_fraction, const int64_t *ratios)
{
	min_free_kbytes = free_kbytes;
	watermark_scale_factor = scale_factor;
	percpu_pagelist_high_fraction = high_fraction;
	memset(sysctl_lowmem_reserve_ratio, 0, sizeof(sysctl_lowmem_reserve_ratio));
	for (int type = 0; type < st[AT_ZONE_TYPES]; type++)
		sysctl_lowmem_reserve_ratio[kernel_type[type]] = ratios[type];
	for (int number = 0; number < nr_zones; number++)
		zones[number]->percpu_drift_mark = 0;
	CALL___setup_per_zone_wmarks;
	CALL_setup_per_zone_lowmem_reserve;
	CALL_refresh_zone_stat_thresholds;
	for (int number = 0; number < nr_zones; number++)
		if (managed_zone(zones[number]))
			size_zone(number);
}
