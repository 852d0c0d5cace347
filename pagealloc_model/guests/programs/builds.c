/*
 * builds DIRECTORY SOURCES ROUNDS SEED [MARKS [COMMAND]]: a build, cleaned and made again.
 *
 * Makes SOURCES small files in DIRECTORY, unless they are there. A round is a wave of jobs, two at
 * a time, each of which reads sources, writes to memory of its own, makes files that it removes
 * again, and leaves an object; then all objects are read and written into one file, and those of
 * the round before are removed. Every job leaves a process that holds open files and page tables.
 * Most end with the round, so that the kernel's own memory rises and falls; one of eight stays until
 * four rounds later.
 *
 * COMMAND runs in sh beside each round, with ROUND in its environment; a round is over when both
 * are. At each round's begin, and at the end, MARKS gets a line in rounds.csv (round, nanoseconds on
 * CLOCK_MONOTONIC) and a copy of /proc/kpageflags, NN.kpageflags; none where MARKS is "".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "seeded.h"

#define PAGE 4096
#define PER_DIRECTORY 64
#define PER_JOB 24
#define HEADERS 16
#define AT_ONCE 2
#define MOST_PAGES 512
#define TEMPORARY 4
#define OBJECT_PAGES 16
#define LONGER 8
#define OPEN_FILES 32
#define TABLES 24
#define STAY_ROUNDS 4
#define MOST_STAYING 1024
#define LINE 512

static const char *directory;
static long sources;
static pid_t builder;
static pid_t staying[STAY_ROUNDS + 1][MOST_STAYING];
static long stay[STAY_ROUNDS + 1]; /* the last row: until the round's end */
static char content[OBJECT_PAGES * PAGE];

static void source_name(char *name, long i)
{
	snprintf(name, LINE, "%s/%ld/%ld.c", directory, i / PER_DIRECTORY, i);
}

static void object_name(char *name, long job, long round)
{
	snprintf(name, LINE, "%s/%ld.%ld.o", directory, job, round);
}

static long any_source(void)
{
	return next_random() % (uint64_t)sources;
}

static void write_file(const char *name, size_t size)
{
	int made = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);
	if (made < 0 || write(made, content, size) < 0)
		failed(name);
	close(made);
}

static void read_file(const char *name)
{
	static char buffer[OBJECT_PAGES * PAGE];
	int opened = open(name, O_RDONLY);
	if (opened < 0)
		failed(name);
	while (read(opened, buffer, sizeof(buffer)) > 0)
		;
	close(opened);
}

static void make_sources(void)
{
	char name[LINE];
	struct stat there;
	source_name(name, sources - 1);
	if (!stat(name, &there))
		return;
	for (long i = 0; i < sources; i++) {
		if (i % PER_DIRECTORY == 0) {
			snprintf(name, LINE, "%s/%ld", directory, i / PER_DIRECTORY);
			if (mkdir(name, 0755))
				failed(name);
		}
		source_name(name, i);
		write_file(name, 1 + next_random() % (3 * PAGE));
	}
}

static char *memory(size_t size)
{
	char *mine = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mine == MAP_FAILED)
		failed("mmap");
	madvise(mine, size, MADV_NOHUGEPAGE);
	return mine;
}

static void run_job(long job, long round)
{
	char name[LINE];
	for (long i = 0; i < PER_JOB + HEADERS; i++) {
		source_name(name, i < PER_JOB ? job * PER_JOB + i : any_source());
		read_file(name);
	}
	long pages = 1 + next_random() % MOST_PAGES;
	char *mine = memory(pages * PAGE);
	for (long page = 0; page < pages; page++)
		mine[page * PAGE] = 1;
	for (int i = 0; i < TEMPORARY; i++) {
		snprintf(name, LINE, "%s/%ld.%d.s", directory, job, i);
		write_file(name, 1 + next_random() % PAGE);
		unlink(name);
	}
	object_name(name, job, round);
	write_file(name, 1 + next_random() % sizeof(content));
	_exit(0);
}

static void run_staying(void)
{
	char name[LINE];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != builder) /* it ended before it could be asked for the signal */
		_exit(0);
	for (int i = 0; i < OPEN_FILES; i++) {
		source_name(name, any_source());
		if (open(name, O_RDONLY) < 0)
			failed(name);
	}
	char *mine = memory((size_t)TABLES << 21);
	for (int i = 0; i < TABLES; i++)
		mine[(size_t)i << 21] = 1;
	for (;;)
		pause();
}

static pid_t forked(void)
{
	next_random(); /* children differ */
	pid_t pid = fork();
	if (pid < 0)
		failed("fork");
	return pid;
}

static void wait_for(pid_t pid)
{
	int status;
	if (waitpid(pid, &status, 0) < 0 || status) {
		fprintf(stderr, "builds: a child failed\n");
		exit(1);
	}
}

static void end_staying(long row)
{
	for (long i = 0; i < stay[row]; i++) {
		kill(staying[row][i], SIGKILL);
		waitpid(staying[row][i], NULL, 0);
	}
	stay[row] = 0;
}

static void leave_one(long row)
{
	if (stay[row] == MOST_STAYING)
		return;
	pid_t pid = forked();
	if (!pid)
		run_staying();
	staying[row][stay[row]++] = pid;
}

static void build(long round)
{
	char name[LINE];
	long jobs = sources / PER_JOB, slot = round % STAY_ROUNDS;
	pid_t running[AT_ONCE] = { 0 };
	end_staying(slot);
	for (long job = 0; job < jobs; job++) {
		pid_t *place = &running[job % AT_ONCE];
		if (*place)
			wait_for(*place);
		if (!(*place = forked()))
			run_job(job, round);
		leave_one(job % LONGER ? STAY_ROUNDS : slot);
	}
	for (int i = 0; i < AT_ONCE; i++)
		if (running[i])
			wait_for(running[i]);
	end_staying(STAY_ROUNDS);
	for (long job = 0; job < jobs; job++) {
		object_name(name, job, round);
		read_file(name);
		object_name(name, job, round - 1);
		unlink(name);
	}
	snprintf(name, LINE, "%s/linked", directory);
	unlink(name);
	for (long job = 0; job < jobs; job += 2) {
		int out = open(name, O_CREAT | O_APPEND | O_WRONLY, 0644);
		if (out < 0 || write(out, content, sizeof(content)) < 0)
			failed(name);
		close(out);
	}
}

static void mark(const char *marks, long round)
{
	static char part[1 << 16];
	char name[LINE];
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(name, LINE, "%s/rounds.csv", marks);
	FILE *table = fopen(name, round ? "a" : "w");
	if (!table)
		failed(name);
	if (!round)
		fprintf(table, "round,time_ns\n");
	fprintf(table, "%ld,%lld\n", round, now.tv_sec * 1000000000LL + now.tv_nsec);
	fclose(table);
	snprintf(name, LINE, "%s/%02ld.kpageflags", marks, round);
	int from = open("/proc/kpageflags", O_RDONLY), to = open(name, O_CREAT | O_WRONLY, 0644);
	if (to < 0)
		failed(name);
	for (ssize_t got; from >= 0 && (got = read(from, part, sizeof(part))) > 0;)
		if (write(to, part, got) != got)
			failed(name);
	close(from);
	close(to);
}

int main(int count, char **words)
{
	if (count < 5 || count > 7)
		usage("builds DIRECTORY SOURCES ROUNDS SEED [MARKS [COMMAND]]");
	const char *marks = count > 5 && *words[5] ? words[5] : NULL, *command = count > 6 ? words[6] : NULL;
	directory = words[1];
	sources = atol(words[2]);
	long rounds = atol(words[3]);
	builder = getpid();
	seed_random(words[4]);
	make_sources();
	for (long round = 0; round < rounds; round++) {
		pid_t beside = 0;
		char number[32];
		if (marks)
			mark(marks, round);
		snprintf(number, sizeof(number), "%ld", round);
		setenv("ROUND", number, 1);
		if (command && !(beside = forked())) {
			execl("/bin/sh", "sh", "-ec", command, NULL);
			failed("sh");
		}
		build(round);
		if (beside)
			wait_for(beside);
	}
	if (marks && rounds)
		mark(marks, rounds);
	for (long row = 0; row <= STAY_ROUNDS; row++)
		end_staying(row);
	return 0;
}
