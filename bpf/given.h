/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Items whose record the control half gave: no store has it, no lease and no grant belong to it,
 * and it is valid for as long as the item is there. Programs on every CPU may change it in place,
 * and the agent beside them: under the item's `seq`, or one aligned word at a time by
 * compare-and-swap.
 */
#pragma once

#include "table.h"

/*
 * In `lease` of such an item. No lease has this slot, so whoever asks for one is told that it does
 * not hold.
 */
#define NO_LEASE 0xffff
_Static_assert(NO_LEASE >= MAX_LEASES, "no lease has this slot");

/* Longest record: what is left of the longest item beside the longest key. */
#define GIVEN_MAX 1744

#define LOCK_TRIES 64
#define READ_TRIES 8

/* Finds the key's item, if its record was given. */
INLINE bool find_given(const struct work *work, struct found *found)
{
	return find(work, found) && found->item->lease == NO_LEASE;
}

/* The record of an item of this packet's key: `item->value_len` bytes, on a word's boundary. */
INLINE __u8 *record_of(const struct found *found, const struct work *work)
{
	return value_of(found, work->key_len);
}

/*
 * The first `len` bytes of the record as they were at one moment; `len` is a constant. False:
 * shorter, or changing.
 */
INLINE bool read_record(const struct found *found, const struct work *work, void *to, __u32 len)
{
	const struct item *item = found->item;
	for (int i = 0; i < READ_TRIES && item->value_len >= len; i++) {
		__u32 seq = READ_ONCE(item->seq);
		barrier();
		__builtin_memcpy(to, record_of(found, work), len);
		barrier();
		if (!(seq & 1) && READ_ONCE(item->seq) == seq)
			return true;
	}
	return false;
}

/* Makes a count odd that was even. False: others kept it odd for too long. */
WHOLE int lock_seq(__u32 *count)
{
	if (!count)
		return false;
	for (int i = 0; i < LOCK_TRIES; i++) {
		__u32 seq = READ_ONCE(*count);
		if (!(seq & 1) && compare_and_swap(count, seq, seq + 1) == seq)
			return true;
	}
	return false;
}

INLINE void unlock_seq(__u32 *count)
{
	barrier();
	fetch_add(count, 1);
}

/*
 * Keeps others from changing the record, and from taking it for whole. Held for a few instructions,
 * never over a helper that can fail. False: others kept it for longer than that.
 */
INLINE bool lock_item(struct item *item)
{
	return lock_seq(&item->seq);
}

INLINE void unlock_item(struct item *item)
{
	unlock_seq(&item->seq);
}
