/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A read of all parts of a value: it waits for the first, and then for each of the others that goes round, in their queues.
 * So each part answers it once, at its own time, and one round is enough for all of them.
 */
#pragma once

#include "orbits.h"

/* As many parts one read is answered with at most: what a socket of the usual size takes at once. */
#define FOLLOWING_PARTS 64

/* The first part has answered a read, the others are to follow. */
struct following {
	__u64 item;
	__u64 shape; /* of the first part */
	__u64 word; /* under which they all were made */
	__u32 parts; /* that the value has, and that may be sent */
	__u32 next; /* place of the one whose turn it is */
	__u32 joined; /* queues that the read is in */
};

INLINE __u64 shape_of_part(const struct following *all, __u32 part)
{
	return all->shape | (__u64)part * (KV_PART_BYTES / KV_PART) << SHAPE_PART_SHIFT;
}

/* Where that part goes round and a read may wait for it; ORBITS: nowhere, or it is the end. */
INLINE __u32 place_of_part(const struct work *work, const struct following *all, __u32 part)
{
	__u64 shape = shape_of_part(all, part);
	__u32 first = set_of(shape);
	if (part >= all->parts)
		return ORBITS;
	for (__u32 i = 0; i < WAYS; i++) {
		const struct orbit *orbit = orbit_at(first + i);
		if (!orbit)
			break;
		if (orbit->item == all->item && orbit->shape == shape)
			return goes_round(orbit, work->now_ns) && orbit->word == all->word &&
					       READ_ONCE(orbit->waiting) < depth_of(work)
				       ? first + i
				       : ORBITS;
	}
	return ORBITS;
}

/* The read waits there as well. False: it cannot, any more. */
INLINE bool join_part(const struct work *work, const struct following *all, __u32 part,
		      struct orbit *orbit, const struct waiting *one)
{
	bool joins = false;
	if (!try_orbit(orbit)) /* once: the verifier follows every way out of this loop's loop */
		return false;
	__u32 waiting = orbit->waiting;
	if (orbit->item == all->item && orbit->shape == shape_of_part(all, part) &&
	    orbit->word == all->word && waiting < depth_of(work)) {
		orbit->queue[(orbit->first + waiting) & (QUEUE - 1)] = *one;
		orbit->waiting = waiting + 1;
		joins = true;
	}
	unlock_orbit(orbit);
	return joins;
}

/* For each part behind the first, in their order, up to one that does not go round. Nonzero ends it. */
static long follow(__u32 index, void *context)
{
	struct following *all = context;
	struct work *work = get_work();
	struct orbit *orbit = orbit_at(all->next);
	__u32 part = index + 1;
	if (!work || !orbit)
		return 1;
	struct waiting *one = (struct waiting *)work->scratch;
	all->next = place_of_part(work, all, part + 1);
	one->all = all->next < ORBITS;
	if (!join_part(work, all, part, orbit, one))
		return 1;
	all->joined++;
	return 0;
}

/* The read that the first part answers, in `scratch`, waits for the others. False: they do not go round. */
INLINE bool others_follow(struct work *work, const struct orbit *orbit, __u64 word)
{
	struct waiting *one = (struct waiting *)work->scratch;
	__u32 parts = (bpf_ntohl(work->header.total) + KV_PART_BYTES - 1) / KV_PART_BYTES;
	struct following all = {
		.item = orbit->item,
		.shape = orbit->shape,
		.word = word,
		.parts = parts < FOLLOWING_PARTS ? parts : FOLLOWING_PARTS,
	};
	all.next = place_of_part(work, &all, 1);
	one->follows = (__u16)word; /* odd: it was valid */
	bpf_loop(FOLLOWING_PARTS - 1, follow, &all, 0);
	return all.joined;
}
