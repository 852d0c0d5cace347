/*
 * many_files DIRECTORY FILES SEED: slab growth.
 *
 * Makes FILES small files in directories of 256, so that inodes and directory entries fill slabs,
 * and then removes every other one, so that most slabs stay with holes in them.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "seeded.h"

#define PER_DIRECTORY 256

int main(int count, char **words)
{
	static char content[4096];
	char name[512];
	if (count != 4)
		usage("many_files DIRECTORY FILES SEED");
	long files = atol(words[2]);
	seed_random(words[3]);
	for (long i = 0; i < files; i++) {
		if (i % PER_DIRECTORY == 0) {
			snprintf(name, sizeof(name), "%s/%ld", words[1], i / PER_DIRECTORY);
			if (mkdir(name, 0755))
				failed(name);
		}
		snprintf(name, sizeof(name), "%s/%ld/%ld", words[1], i / PER_DIRECTORY, i);
		int made = open(name, O_CREAT | O_EXCL | O_WRONLY, 0644);
		if (made < 0 || write(made, content, 1 + next_random() % sizeof(content)) < 0)
			failed(name);
		close(made);
	}
	for (long i = 0; i < files; i += 2) {
		snprintf(name, sizeof(name), "%s/%ld/%ld", words[1], i / PER_DIRECTORY, i);
		if (unlink(name))
			failed(name);
	}
	return 0;
}
