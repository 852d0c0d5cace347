/*
 * mappings COUNT HELD SEED [PER_SECOND]: anonymous mappings of many sizes.
 *
 * Makes COUNT mappings of 16 KiB, 32 KiB, ... or 4 MiB, one after the other, and keeps the last of HELD
 * places; a mapping in a place that is taken replaces the one there, so that they go in another order
 * than they came. Three of four begin at a multiple of their size (at most 2 MiB), the others at a random
 * page. Half are touched as a whole, a quarter up to a random page, a quarter in random pages. Pages
 * without access lie around each, so that it is never merged with another. PER_SECOND bounds the
 * mappings in a second.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include "paced.h"
#include "seeded.h"

#define PAGE ((size_t)4096)
#define HUGE ((size_t)2 << 20)
#define SMALLEST ((size_t)16 << 10)
#define SIZES 9

struct mapping {
	char *around;
	size_t whole;
};

static void replace(struct mapping *place)
{
	size_t size = SMALLEST << next_random() % SIZES;
	size_t align = size < HUGE ? size : HUGE;
	if (place->around && munmap(place->around, place->whole))
		failed("munmap");
	place->whole = size + 2 * align + 2 * PAGE;
	place->around = mmap(NULL, place->whole, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (place->around == MAP_FAILED)
		failed("mmap");
	uintptr_t start = ((uintptr_t)place->around + PAGE + align - 1) & ~(align - 1);
	if (next_random() % 4 == 0)
		start += next_random() % (align / PAGE) * PAGE;
	char *region = (char *)start;
	if (mprotect(region, size, PROT_READ | PROT_WRITE))
		failed("mprotect");
	size_t pages = size / PAGE, touched = pages;
	unsigned how = next_random() % 4;
	if (how == 2)
		touched = 1 + next_random() % pages;
	if (how == 3)
		touched = pages / 4;
	for (size_t page = 0; page < touched; page++)
		region[(how == 3 ? next_random() % pages : page) * PAGE] = 1;
}

int main(int count, char **words)
{
	if (count != 4 && count != 5)
		usage("mappings COUNT HELD SEED [PER_SECOND]");
	long mappings = atol(words[1]), held = atol(words[2]);
	seed_random(words[3]);
	struct mapping *places = calloc(held, sizeof(*places));
	for (long i = 0; i < mappings; i++) {
		replace(&places[next_random() % held]);
		if (count == 5)
			keep_pace(i + 1, atof(words[4]));
	}
	return 0;
}
