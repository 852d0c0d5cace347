/*
 * kernel_pages DIRECTORY PIPES STEPS SEED [PER_SECOND]: memory of the kernel that comes and goes.
 *
 * Each step takes one of PIPES pipes at random, and fills it, or empties it if it is full: 16 pages
 * that cannot be moved. Then it looks up 50 names that DIRECTORY has no file of, each of which the
 * kernel remembers until it reclaims memory. PER_SECOND bounds the steps in a second.
 */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <unistd.h>
#include "paced.h"
#include "seeded.h"

#define FULL (64 << 10)
#define NAMES 50

int main(int count, char **words)
{
	static char buffer[FULL];
	char name[4096];
	if (count != 5 && count != 6)
		usage("kernel_pages DIRECTORY PIPES STEPS SEED [PER_SECOND]");
	long pipes = atol(words[2]), steps = atol(words[3]);
	seed_random(words[4]);
	struct rlimit files = {2 * pipes + 16, 2 * pipes + 16};
	if (setrlimit(RLIMIT_NOFILE, &files))
		failed("setrlimit");
	int (*ends)[2] = calloc(pipes, sizeof(*ends));
	char *is_full = calloc(pipes, 1);
	for (long i = 0; i < pipes; i++)
		if (pipe(ends[i]))
			failed("pipe");
	for (long i = 0; i < steps; i++) {
		long at = next_random() % pipes;
		ssize_t moved = is_full[at] ? read(ends[at][0], buffer, FULL) : write(ends[at][1], buffer, FULL);
		if (moved != FULL)
			failed("pipe");
		is_full[at] = !is_full[at];
		for (int each = 0; each < NAMES; each++) {
			snprintf(name, sizeof(name), "%s/%016llx", words[1], (unsigned long long)next_random());
			access(name, F_OK);
		}
		if (count == 6)
			keep_pace(i + 1, atof(words[5]));
	}
	return 0;
}
