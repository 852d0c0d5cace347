/* Work at a rate: waits until as much time has passed as the work done so far should take. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define AHEAD_US 5000

static double seconds_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

static inline void keep_pace(long done, double per_second)
{
	static double began;
	if (!began)
		began = seconds_now();
	double ahead_us = (done / per_second - (seconds_now() - began)) * 1e6;
	if (ahead_us > AHEAD_US)
		usleep(ahead_us);
}
