/*
 * anonymous PAGES TOUCHES SEED: more anonymous memory than fits, used at random.
 *
 * Maps PAGES base pages and writes to TOUCHES random ones of them, half of them in the first eighth;
 * a write fills a quarter of the page with random words, so that it compresses, but not to nothing.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "seeded.h"

#define PAGE 4096

int main(int count, char **words)
{
	if (count != 4)
		usage("anonymous PAGES TOUCHES SEED");
	long pages = atol(words[1]), touches = atol(words[2]);
	seed_random(words[3]);
	char *mine = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mine == MAP_FAILED)
		failed("mmap");
	madvise(mine, pages * PAGE, MADV_NOHUGEPAGE);
	for (long touch = 0; touch < touches; touch++) {
		long among = next_random() % 2 ? pages : pages / 8;
		uint64_t *page = (uint64_t *)(mine + next_random() % among * PAGE);
		for (long word = 0; word < PAGE / 8 / 4; word++)
			page[word] = next_random();
	}
	return 0;
}
