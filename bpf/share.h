/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Shares of tables in which a key has the choice of a few places, its set: where a set is full,
 * whoever has most of it gives a place up, the newcomer counted. So a tenant that fills every set
 * leaves to each other one an equal part, and one that is alone has all of them.
 */
#pragma once

#include "maps.h"

/* Places of a set at most. */
#define SET_WAYS 16
/* In the place of a tenant. */
#define NOBODY 0xfffffffeU

/* Who has the places of a set. Stands in `scratch`, for it is too much for the stack. */
struct set_of_ways {
	__u32 tenant[SET_WAYS];
	__u32 age[SET_WAYS]; /* the higher, the sooner it goes; 0: it stays */
};
_Static_assert(sizeof(struct set_of_ways) <= sizeof(((struct work *)0)->scratch), "it has room");

INLINE struct set_of_ways *scratch_set(struct work *work)
{
	return (struct set_of_ways *)work->scratch;
}

/* 1 if they are the same, else 0, without a branch: the verifier would go both ways of each. */
INLINE __u32 is_same(__u32 a, __u32 b)
{
	__u64 differ = a ^ b;
	opaque(differ);
	return 1 - (-differ >> 63);
}

/* How many of a set's places a tenant has. */
INLINE __u32 places_of(const struct set_of_ways *set, __u32 tenant)
{
	__u32 count = 0;
	for (__u32 i = 0; i < SET_WAYS; i++)
		count += is_same(set->tenant[i], tenant);
	return count;
}

/*
 * Which place of a full set goes for a newcomer of this tenant, over how many its tenant has, the
 * newcomer counted, in the bits from WAY_COUNT on. The first `ways` of the set are there; 0: all
 * of them stay.
 */
#define WAY_COUNT 48
WHOLE __u64 way_that_goes(struct work *work, __u32 ways, __u32 newcomer)
{
	__u64 best = 0;
	if (!work)
		return 0;
	const struct set_of_ways *set = scratch_set(work);
	for (__u32 i = 0; i < SET_WAYS && i < ways; i++) {
		__u64 count = places_of(set, set->tenant[i]) + is_same(set->tenant[i], newcomer);
		__u64 rank = count << WAY_COUNT | (__u64)set->age[i] << 4 | (SET_WAYS - 1 - i);
		if (set->age[i] && rank > best)
			best = rank;
	}
	return best;
}

/* The place that it names. */
INLINE __u32 way_of(__u64 rank)
{
	return SET_WAYS - 1 - (rank & (SET_WAYS - 1));
}

/* For how long something was not used, as an age: in steps of 16 us, 1 at least. */
INLINE __u32 age_of(__u64 used_ns, __u64 now_ns)
{
	__u64 age = now_ns > used_ns ? (now_ns - used_ns) >> 14 : 0;
	return age < 0xffffffff ? age + 1 : 0xffffffff;
}
