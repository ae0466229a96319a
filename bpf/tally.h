/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What programs count of a tenant for their discipline's control half. Of those objects only that
 * include this: it takes memory for every tenant that there may be, on each CPU.
 */
#pragma once

#include "maps.h"

/* Numbers that a discipline may count of each tenant. */
#define TALLIES 136

struct tallies {
	__u64 word[TALLIES];
};

/*
 * key: a tenant's place. Per CPU, written by the programs, never reset: what a discipline's
 * programs count of a tenant for their own control half, which the agent tells each window's
 * part of.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_TENANTS);
	__type(key, __u32);
	__type(value, struct tallies);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} tallies SEC(".maps");

/*
 * Counts for the control half, in the word `which` of the packet's tenant; what that means is the
 * discipline's affair.
 */
INLINE void tally_by(const struct work *work, __u32 which, __u64 by)
{
	__u32 place = work->place;
	struct tallies *of = bpf_map_lookup_elem(&tallies, &place);
	opaque(which); /* what is compared is what is used */
	if (of && which < TALLIES)
		of->word[which] += by;
}

INLINE void tally(const struct work *work, __u32 which)
{
	tally_by(work, which, 1);
}
