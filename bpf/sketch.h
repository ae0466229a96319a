/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which uncached keys are hot: a count-min sketch counts reads that missed, and a Bloom filter lets
 * each key be reported once in a window. Per CPU, so nothing bounces between cores.
 *
 * All tenants share the cells. Which ones a key has depends on its tenant and on a seed that no
 * client knows, so the hash that a request claims leads to cells of its own tenant's, which nobody
 * can choose. A tenant has its share of the reports of a window, and with it of the filter's cells
 * and of the ring; half of all are for whoever comes first.
 */
#pragma once

#include "events.h"

#define BLOOM_PROBES 3
/*
 * Reports of a window that are in nobody's share. As many are shared out: together a third of the
 * filter's cells.
 */
#define REPORTS_OF_ALL 4096

/*
 * Mixes both halves of the hash, so that the rows' columns are independent of bucket and partition.
 */
INLINE __u64 mix(__u64 a, __u64 b)
{
	__u64 x = a ^ b * 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

/* What a cell counted in this window. */
INLINE __u32 counted(__u32 cell, __u32 window)
{
	return cell >> 24 == (window & 0xff) ? cell & 0xffffff : 0;
}

/*
 * A row's cell counts so far one by one, and from there on in steps of so many, each by
 * that chance.
 */
#define SKETCH_EXACT 2048
#define SKETCH_STEP 64
#define SKETCH_MOST 0xfff

/*
 * What a row's cell counted in this window. Like what follows without a branch: which cell has
 * least nobody can predict.
 */
INLINE __u32 steps_in(__u32 cell, __u32 window)
{
	__s32 others = cell >> 12 ^ (window & 0xf);
	return cell & SKETCH_MOST & (others - 1) >> 31;
}

/* The reads that such a count stands for. */
INLINE __u32 reads_of(__u32 steps)
{
	return steps <= SKETCH_EXACT ? steps : SKETCH_EXACT + (steps - SKETCH_EXACT) * SKETCH_STEP;
}

/*
 * Counts one read; returns the estimate of this CPU's reads of this key in this window. Only those
 * of the key's cells are raised that have least: the others count other keys too, and are no nearer
 * to the truth for being higher.
 */
INLINE __u32 sketch_add(struct sketch *sketch, __u64 mixed, __u32 window)
{
	__u16 *cell[SKETCH_ROWS];
	__s32 steps[SKETCH_ROWS], least = SKETCH_MOST;
	for (int i = 0; i < SKETCH_ROWS; i++) {
		cell[i] = &sketch->row[i][mixed >> (16 * i) & (SKETCH_COLUMNS - 1)];
		steps[i] = steps_in(*cell[i], window);
		__s32 less = steps[i] - least;
		least += less & less >> 31;
	}
	if (unlikely(least >= SKETCH_EXACT) &&
	    (least == SKETCH_MOST || (bpf_get_prandom_u32() & (SKETCH_STEP - 1))))
		return reads_of(least);
	least++;
	for (int i = 0; i < SKETCH_ROWS; i++)
		*cell[i] = (window & 0xf) << 12 | (steps[i] - ((steps[i] - least) >> 31));
	return reads_of(least);
}

/* The mark of a cell of this window: never 0, which those have that were never written. */
INLINE __u8 bloom_tag(__u32 window)
{
	return window % 255 + 1;
}

INLINE bool bloom_has(struct sketch *sketch, __u64 mixed, __u32 window)
{
	for (int i = 0; i < BLOOM_PROBES; i++)
		if (sketch->bloom[mixed >> (16 * i) & (BLOOM_CELLS - 1)] != bloom_tag(window))
			return false;
	return true;
}

INLINE void bloom_add(struct sketch *sketch, __u64 mixed, __u32 window)
{
	for (int i = 0; i < BLOOM_PROBES; i++)
		sketch->bloom[mixed >> (16 * i) & (BLOOM_CELLS - 1)] = bloom_tag(window);
}

/* What the tenant's next report is counted under; NULL if it had its share, and others the rest. */
INLINE __u32 *account_of(struct sketch *sketch, const struct work *work,
			 const struct config *config)
{
	__u32 window = config->window;
	__u32 *own = &sketch->reports[work->place & (MAX_TENANTS - 1)];
	if (counted(*own, window) < config->share)
		return own;
	if (counted(sketch->reports_of_all, window) < REPORTS_OF_ALL)
		return &sketch->reports_of_all;
	return NULL;
}

/* The key's hash, scattered as nobody outside of the switch knows. */
INLINE __u64 seeded(const struct work *work, const struct config *config)
{
	__u64 seed = config->seed * (2ULL * bpf_ntohl(work->header.tenant) + 1);
	return mix(work->hash[0] ^ seed, work->hash[1]);
}

/*
 * Reports a key whose `seeded` hash this is, once in a window. A report that finds no room is not
 * marked, so the key's next read tries again.
 */
INLINE void report_hot(struct work *work, const struct config *config, struct sketch *sketch,
		       __u64 mixed, __u32 estimate, __u8 kind)
{
	/* With the window: two keys that meet in one part in the next. */
	__u32 window = config->window;
	__u64 probes = mix(mixed + window, work->hash[0]);
	if (bloom_has(sketch, probes, window))
		return;
	__u32 *account = account_of(sketch, work, config);
	if (!account) {
		count(COUNT_hot_report_share);
		return;
	}
	if (!send_event(work, kind, estimate, 0, window)) {
		count(COUNT_hot_report_lost);
		return;
	}
	bloom_add(sketch, probes, window);
	*account = window << 24 | (counted(*account, window) + 1);
	count(COUNT_hot_report);
}

INLINE struct sketch *get_sketch(void)
{
	__u32 cpu = bpf_get_smp_processor_id();
	return bpf_map_lookup_elem(&sketches, &cpu);
}

/* Reads are a burst if they come within a stretch of 2^this ns: 67 ms. */
#define BURST_SHIFT 26

/* The threshold of keys that may not be cached. */
#define NEVER ~0U

/* A read that missed. */
struct miss {
	struct sketch *sketch; /* NULL: it was not counted, or the key may not be cached */
	__u64 mixed; /* the key's `seeded` hash */
};

/*
 * Counts one read of a burst; returns how many this CPU saw of the key in this stretch. Another key
 * in the same cell makes it fewer, if it comes in between; one in 65,536 of those makes it more.
 */
INLINE __u32 count_burst(const struct work *work, const struct miss *miss)
{
	if (!miss->sketch)
		return 0;
	__u32 *cell = &miss->sketch->burst[miss->mixed & (BURST_CELLS - 1)];
	/* The low bits of a stretch's number come again after 17 s: the others change the hash. */
	__u32 key = (miss->mixed >> 32 & 0xffff0000) ^ (__u32)(work->now_ns >> BURST_SHIFT) << 8;
	__u32 before = *cell, reads = (before & ~0xffU) == key ? before & 0xff : 0;
	if (reads < 0xff)
		reads++;
	*cell = key | reads;
	return reads;
}

/*
 * Counts a read that missed in this CPU's sketch; the key is reported from `threshold` reads in a
 * window on.
 */
INLINE struct miss count_miss(struct work *work, const struct config *config, __u32 threshold)
{
	struct miss miss = {};
	if (config->sample_mask && (bpf_get_prandom_u32() & config->sample_mask))
		return miss;
	struct sketch *sketch = get_sketch();
	if (!sketch)
		return miss;
	miss.mixed = seeded(work, config);
	__u32 estimate = sketch_add(sketch, miss.mixed, config->window);
	if (estimate >= threshold)
		report_hot(work, config, sketch, miss.mixed, estimate, EVENT_HOT);
	if (threshold != NEVER)
		miss.sketch = sketch;
	return miss;
}
