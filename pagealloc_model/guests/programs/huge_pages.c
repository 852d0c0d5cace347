/*
 * huge_pages REGIONS HELD SEED [PER_SECOND]: huge-page faults.
 *
 * Touches REGIONS regions of 2 MiB, one after the other, and keeps the last touched of HELD places;
 * a region in a place that is taken replaces the one there. Each region is touched at its start and
 * in eight random pages, so that one that got no huge page becomes base pages. PER_SECOND bounds
 * the regions in a second.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>
#include "paced.h"
#include "seeded.h"

#define HUGE ((size_t)2 << 20)
#define PAGE 4096
#define TOUCHED 8

static char *aligned_region(void)
{
	char *got = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (got == MAP_FAILED)
		failed("mmap");
	char *region = (char *)(((uintptr_t)got + HUGE - 1) & ~(HUGE - 1));
	if (region > got)
		munmap(got, region - got);
	munmap(region + HUGE, got + 2 * HUGE - (region + HUGE));
	return region;
}

int main(int count, char **words)
{
	if (count != 4 && count != 5)
		usage("huge_pages REGIONS HELD SEED [PER_SECOND]");
	long regions = atol(words[1]), held = atol(words[2]);
	seed_random(words[3]);
	char **places = calloc(held, sizeof(*places));
	for (long i = 0; i < regions; i++) {
		char **place = &places[next_random() % held];
		if (*place)
			munmap(*place, HUGE);
		*place = aligned_region();
		(*place)[0] = 1;
		for (int page = 0; page < TOUCHED; page++)
			(*place)[next_random() % (HUGE / PAGE) * PAGE] = 1;
		if (count == 5)
			keep_pace(i + 1, atof(words[4]));
		else
			usleep(2000);
	}
	return 0;
}
