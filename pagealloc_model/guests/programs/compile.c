/*
 * compile DIRECTORY FILES SEED: a small build.
 *
 * Writes FILES C sources of some hundred made-up functions each and compiles them, two at a time,
 * with the system's cc.
 */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>
#include "seeded.h"

#define FUNCTIONS 120
#define AT_ONCE 2

static void write_source(const char *name)
{
	FILE *source = fopen(name, "w");
	if (!source)
		failed(name);
	for (int i = 0; i < FUNCTIONS; i++) {
		fprintf(source, "int function%d(int a, int b)\n{\n\tint c = %d;\n", i,
			(int)(next_random() % 1000));
		for (int line = 0; line < 8; line++)
			fprintf(source, "\tif (a > %d) c += b * %d; else c ^= a + %d;\n",
				(int)(next_random() % 100), (int)(next_random() % 100),
				(int)(next_random() % 100));
		fprintf(source, "\treturn c%s;\n}\n", i ? " + function0(b, a)" : "");
	}
	if (fclose(source))
		failed(name);
}

static void wait_for_one(int *bad)
{
	int status;
	if (wait(&status) > 0 && status)
		*bad = 1;
}

int main(int count, char **words)
{
	char source[512], object[512];
	int running = 0, bad = 0;
	if (count != 4)
		usage("compile DIRECTORY FILES SEED");
	seed_random(words[3]);
	for (long i = 0; i < atol(words[2]); i++) {
		snprintf(source, sizeof(source), "%s/%ld.c", words[1], i);
		snprintf(object, sizeof(object), "%s/%ld.o", words[1], i);
		write_source(source);
		if (running == AT_ONCE) {
			wait_for_one(&bad);
			running--;
		}
		if (!fork()) {
			execlp("cc", "cc", "-O1", "-c", source, "-o", object, NULL);
			failed("cc");
		}
		running++;
	}
	while (running--)
		wait_for_one(&bad);
	return bad;
}
