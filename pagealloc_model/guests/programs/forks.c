/*
 * forks WAVES WIDTH PAGES SEED: waves of processes that begin and end together.
 *
 * Each wave forks WIDTH children; every child writes to up to PAGES pages of its own and waits for
 * the wave to be complete; then all end at once and return what they had, page tables and stacks
 * included.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "seeded.h"

#define PAGE 4096

static void child(long pages, int go)
{
	char *mine = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char word;
	if (mine == MAP_FAILED)
		_exit(1);
	for (long page = 0; page < pages; page++)
		mine[page * PAGE] = 1;
	if (read(go, &word, 1) < 0)
		_exit(1);
	_exit(0);
}

int main(int count, char **words)
{
	if (count != 5)
		usage("forks WAVES WIDTH PAGES SEED");
	long waves = atol(words[1]), width = atol(words[2]), most = atol(words[3]);
	seed_random(words[4]);
	for (long wave = 0; wave < waves; wave++) {
		int go[2];
		if (pipe(go))
			failed("pipe");
		for (long i = 0; i < width; i++) {
			long pages = 1 + next_random() % most;
			pid_t pid = fork();
			if (pid < 0)
				failed("fork");
			if (!pid) {
				close(go[1]);
				child(pages, go[0]);
			}
		}
		close(go[0]);
		close(go[1]);
		while (wait(NULL) > 0)
			;
	}
	return 0;
}
