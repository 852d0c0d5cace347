/* fault_loop ROUNDS MIB: ROUNDS times, map MIB of memory, touch each page, unmap; prints ns a page. As page_fault1 of will-it-scale does. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

int main(int count, char **words)
{
	long rounds = atol(words[1]), bytes = atol(words[2]) << 20;
	struct timespec begun, ended;

	clock_gettime(CLOCK_MONOTONIC, &begun);
	for (long round = 0; round < rounds; round++) {
		char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		madvise(memory, bytes, MADV_NOHUGEPAGE);
		for (long at = 0; at < bytes; at += 4096)
			memory[at] = 1;
		munmap(memory, bytes);
	}
	clock_gettime(CLOCK_MONOTONIC, &ended);
	printf("%.2f\n", ((ended.tv_sec - begun.tv_sec) * 1e9 + ended.tv_nsec - begun.tv_nsec) / (rounds * (bytes / 4096.0)));
	return 0;
}
