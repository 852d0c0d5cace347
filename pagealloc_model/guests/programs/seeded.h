/* Random numbers from a seed (xorshift64), so that every run of a program asks for the same. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t random_state;

static inline void seed_random(const char *text)
{
	random_state = 88172645463325252ULL + 2654435761ULL * strtoull(text, NULL, 10);
}

static inline uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static inline void usage(const char *words)
{
	fprintf(stderr, "usage: %s\n", words);
	exit(2);
}

static inline void failed(const char *what)
{
	perror(what);
	exit(1);
}
