/*
 * atomics SLOTS PERIOD_US MILLISECONDS: atomic requests of orders 0 to 3 from timers on every CPU.
 *
 * The requests are made by a part of the guest's kernel that has to be built into it: files "slots",
 * "period_us" and "stat" in debugfs' directory atomic_churn; a period of 0 ends it and frees what it
 * holds. Fails where the kernel has no such part.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "seeded.h"

#define PLACE "/sys/kernel/debug/atomic_churn/"

static void set(const char *file, const char *value)
{
	int opened = open(file, O_WRONLY);
	if (opened < 0 || write(opened, value, strlen(value)) < 0)
		failed(file);
	close(opened);
}

int main(int count, char **words)
{
	if (count != 4)
		usage("atomics SLOTS PERIOD_US MILLISECONDS");
	set(PLACE "slots", words[1]);
	set(PLACE "period_us", words[2]);
	usleep(1000 * atol(words[3]));
	set(PLACE "period_us", "0");
	return 0;
}
