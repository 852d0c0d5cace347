/*
 * page_cache FILE MIB READS SEED [PER_SECOND]: page-cache churn.
 *
 * Seven reads of eight are of one page at a random place of the file's first MIB megabytes, without
 * readahead; the eighth is of 256 KiB in a row, with it. A file larger than memory keeps memory full
 * of page cache, of pages whose neighbours are freed at other times. PER_SECOND bounds the reads in a
 * second.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>
#include "paced.h"
#include "seeded.h"

#define PAGE 4096
#define LONG_READ (256 << 10)

int main(int count, char **words)
{
	static char buffer[LONG_READ];
	if (count != 5 && count != 6)
		usage("page_cache FILE MIB READS SEED [PER_SECOND]");
	int single = open(words[1], O_RDONLY), ahead = open(words[1], O_RDONLY);
	if (single < 0 || ahead < 0)
		failed(words[1]);
	posix_fadvise(single, 0, 0, POSIX_FADV_RANDOM);
	uint64_t pages = strtoull(words[2], NULL, 10) << 8;
	long reads = atol(words[3]);
	seed_random(words[4]);
	for (long i = 0; i < reads; i++) {
		int is_long = next_random() % 8 == 0;
		off_t place = (off_t)(next_random() % pages) * PAGE;
		if (pread(is_long ? ahead : single, buffer, is_long ? LONG_READ : PAGE, place) < 0)
			failed("pread");
		if (count == 6)
			keep_pace(i + 1, atof(words[5]));
	}
	return 0;
}
