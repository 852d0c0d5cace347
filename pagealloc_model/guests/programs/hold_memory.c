/*
 * hold_memory LEAVE_MIB: takes memory out of use until so much is free.
 *
 * For each line on its input it takes or returns memory until LEAVE_MIB megabytes of the machine are
 * free, and answers with a line: megabytes held, megabytes free. What it holds is locked, touched by
 * a thread on each CPU, and in huge pages where the machine gives any. The end of its input ends it,
 * and with it all that it held: so nothing stays held when its caller is gone.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#include "seeded.h"

#define MIB ((size_t)1 << 20)
#define HUGE (2 * MIB)
#define PAGE 4096
#define TRIES 8
#define NEAR (8 * MIB)
#define MOST_THREADS 256

struct part {
	char *start;
	size_t size;
};

static char *region;
static size_t whole, held;

static size_t free_bytes(void)
{
	struct sysinfo now;
	if (sysinfo(&now))
		failed("sysinfo");
	return (size_t)now.freeram * now.mem_unit;
}

static void *touch(void *given)
{
	struct part *mine = given;
	for (size_t place = 0; place < mine->size; place += PAGE)
		mine->start[place] = 1;
	return NULL;
}

static void take(size_t more)
{
	pthread_t threads[MOST_THREADS];
	struct part parts[MOST_THREADS];
	long count = sysconf(_SC_NPROCESSORS_ONLN);
	if (count > MOST_THREADS)
		count = MOST_THREADS;
	size_t each = (more / count + HUGE - 1) & ~(HUGE - 1), done = 0;
	for (count = 0; done < more; count++, done += parts[count - 1].size) {
		size_t size = more - done < each ? more - done : each;
		parts[count] = (struct part){ region + held + done, size };
		if (pthread_create(&threads[count], NULL, touch, &parts[count]))
			failed("pthread_create");
	}
	while (count--)
		pthread_join(threads[count], NULL);
	held += more;
}

static void give_back(size_t less)
{
	char *from = region + held - less;
	if (munlock(from, less) || madvise(from, less, MADV_DONTNEED) ||
	    mlock2(from, less, MLOCK_ONFAULT))
		failed("give back");
	held -= less;
}

static void adjust(size_t leave)
{
	for (int i = 0; i < TRIES; i++) {
		size_t now = free_bytes();
		if (now > leave + NEAR && held < whole) {
			size_t more = (now - leave) & ~(HUGE - 1);
			take(more < whole - held ? more : whole - held);
		} else if (now + NEAR < leave && held) {
			size_t less = (leave - now + HUGE - 1) & ~(HUGE - 1);
			give_back(less < held ? less : held);
		} else {
			return;
		}
	}
}

static void spare_from_the_oom_killer(void)
{
	int file = open("/proc/self/oom_score_adj", O_WRONLY);
	if (file < 0 || write(file, "-1000", 5) < 0)
		perror("hold_memory: may be killed when memory runs out: oom_score_adj");
	close(file);
}

int main(int count, char **words)
{
	struct sysinfo machine;
	char line[64];
	if (count != 2)
		usage("hold_memory LEAVE_MIB");
	if (sysinfo(&machine))
		failed("sysinfo");
	whole = (size_t)machine.totalram * machine.mem_unit & ~(HUGE - 1);
	char *got = mmap(NULL, whole + HUGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (got == MAP_FAILED)
		failed("mmap");
	region = (char *)(((uintptr_t)got + HUGE - 1) & ~(HUGE - 1));
	madvise(region, whole, MADV_HUGEPAGE);
	if (mlock2(region, whole, MLOCK_ONFAULT))
		failed("mlock2");
	spare_from_the_oom_killer();
	while (fgets(line, sizeof(line), stdin)) {
		adjust(strtoull(words[1], NULL, 10) * MIB);
		printf("%zu %zu\n", held / MIB, free_bytes() / MIB);
		fflush(stdout);
	}
	return 0;
}
