/*
 * purger CHUNKS SEED: what one CPU allocates, another frees.
 *
 * A thread on each CPU but the last maps and touches chunks of 64 KiB to 2 MiB and hands them over;
 * a thread on the last CPU frees them. CHUNKS in all.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>
#include "seeded.h"

#define PAGE 4096
#define QUEUED 64

struct chunk {
	char *start;
	size_t size;
};

static struct chunk queue[QUEUED];
static long put, taken, drawn, chunks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void run_on(long cpu)
{
	cpu_set_t only;
	CPU_ZERO(&only);
	CPU_SET(cpu, &only);
	sched_setaffinity(0, sizeof(only), &only);
}

static void *allocate(void *cpu)
{
	run_on((long)cpu);
	for (;;) {
		pthread_mutex_lock(&lock);
		if (drawn == chunks) {
			pthread_mutex_unlock(&lock);
			return NULL;
		}
		drawn++;
		size_t size = (16 + next_random() % 497) * PAGE;
		pthread_mutex_unlock(&lock);
		char *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (start == MAP_FAILED)
			failed("mmap");
		madvise(start, size, MADV_NOHUGEPAGE);
		for (size_t place = 0; place < size; place += PAGE)
			start[place] = 1;
		pthread_mutex_lock(&lock);
		while (put - taken == QUEUED)
			pthread_cond_wait(&changed, &lock);
		queue[put++ % QUEUED] = (struct chunk){ start, size };
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
}

static void *purge(void *cpu)
{
	run_on((long)cpu);
	for (long i = 0; i < chunks; i++) {
		pthread_mutex_lock(&lock);
		while (put == taken)
			pthread_cond_wait(&changed, &lock);
		struct chunk mine = queue[taken++ % QUEUED];
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
		madvise(mine.start, mine.size, MADV_DONTNEED);
		munmap(mine.start, mine.size);
	}
	return NULL;
}

int main(int count, char **words)
{
	if (count != 3)
		usage("purger CHUNKS SEED");
	chunks = atol(words[1]);
	seed_random(words[2]);
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	long producers = cpus > 1 ? cpus - 1 : 1;
	pthread_t *threads = calloc(producers + 1, sizeof(*threads));
	for (long i = 0; i < producers; i++)
		pthread_create(&threads[i], NULL, allocate, (void *)i);
	pthread_create(&threads[producers], NULL, purge, (void *)(cpus - 1));
	for (long i = 0; i <= producers; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
