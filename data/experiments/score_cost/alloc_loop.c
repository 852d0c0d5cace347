// SPDX-License-Identifier: GPL-2.0
/*
 * Loops of requests and frees: reading debugfs' alloc_loop prints, a line each, an order, how many
 * pages are held at once, hundredths of a nanosecond a request with its free, failures. Copy to mm/, add to mm/Makefile.
 */
#include <linux/debugfs.h>
#include <linux/gfp.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#define HELD_AT_MOST 512

static const struct { unsigned int order, held, rounds; } loops[] = {
	{ 0, 1, 400000 }, { 0, 512, 800 }, { 3, 1, 200000 }, { 3, 64, 3000 },
	{ 4, 1, 100000 }, { 4, 64, 1500 }, { 9, 1, 20000 }, { 10, 1, 10000 },
};

static struct page *held[HELD_AT_MOST];

static int alloc_loop_show(struct seq_file *m, void *unused)
{
	unsigned int each, i, j;

	for (each = 0; each < ARRAY_SIZE(loops); each++) {
		unsigned int order = loops[each].order, failed = 0;
		u64 begun = ktime_get_ns(), requests;

		for (i = 0; i < loops[each].rounds; i++) {
			for (j = 0; j < loops[each].held; j++) {
				held[j] = alloc_pages(GFP_KERNEL | __GFP_NOWARN, order);
				failed += !held[j];
			}
			for (j = 0; j < loops[each].held; j++)
				if (held[j])
					__free_pages(held[j], order);
			cond_resched();
		}
		requests = (u64)loops[each].rounds * loops[each].held;
		seq_printf(m, "%u %u %llu %u\n", order, loops[each].held,
			   div64_u64((ktime_get_ns() - begun) * 100, requests), failed);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(alloc_loop);

static int __init alloc_loop_init(void)
{
	debugfs_create_file("alloc_loop", 0400, NULL, NULL, &alloc_loop_fops);
	return 0;
}
late_initcall(alloc_loop_init);
