/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A hot key's record: which stores have it, where they are, and whose turn it is. */
#pragma once

#include "load.h"

#define TURNS_MAX 64

/*
 * A store that reads may go to. All that a packet needs on its way there stands here: no table
 * is asked.
 */
struct turn {
	__u16 store; /* holder id */
	__u16 place; /* among those whose load is counted */
	__be32 address[]; /* one word, or four */
};
#define IPV4_TURN 8
#define IPV6_TURN 20

/*
 * In an item's cells. Copies of replicas come and go without it: a wrong bit costs a reader a
 * round trip.
 */
struct replicas {
	__u32 scale; /* 2^32 over `turns`, rounded up */
	__u8 turns; /* 1 to TURNS_MAX */
	__u8 count; /* the first as many turns are of different replicas, and all that there are */
	__u16 home; /* who owns the key; in another rack's record, who has it for that: its entry */
	__u64 valid; /* bit i: the replica of turn i may be read */
	__u16 home_place; /* as a turn's */
	__u8 is_ipv6; /* what addresses the turns have: the home's kind */
	__u8 is_entry; /* whether `home` is the entry */
	__u8 turn[]; /* `turns` of them, each a struct turn of one size */
};
_Static_assert(offsetof(struct replicas, valid) == 8 && offsetof(struct replicas, turn) == 20,
	       "src/record.rs writes the same struct");

/* A copy of a turn. */
struct target {
	__u16 store;
	__u16 place;
	__be32 address[4]; /* over IPv4 the first word */
};

INLINE struct replicas *replicas_of(const struct found *found, const struct work *work)
{
	return (struct replicas *)record_of(found, work);
}

INLINE const struct turn *turn_at(const struct replicas *key, __u32 turn, bool is_ipv6)
{
	/* As 64 bits: Linux 6.1 loses the bound of a product of 32. */
	__u64 number = turn;
	opaque(number);
	number &= TURNS_MAX - 1;
	return (const struct turn *)(key->turn + number * (is_ipv6 ? IPV6_TURN : IPV4_TURN));
}

INLINE __u32 store_at(const struct replicas *key, __u32 turn)
{
	return READ_ONCE(turn_at(key, turn, key->is_ipv6)->store);
}

/*
 * Whether a read takes its turn here: none does where another switch chose a replica, or is still
 * to choose. The one that chose this rack named the rack's entry. Nor does one that was asked
 * before, and says so by a status: whoever asks may be out of reach of any store but the one that
 * it asks, as behind NAT.
 */
INLINE bool is_for_us(const struct work *work, const struct replicas *key)
{
	__u16 named = key->is_entry ? key->home : 0;
	return work->header.node == bpf_htons(named) && !(work->header.flags & STATUS_MASK);
}

/* Whether packets like this one can go to replicas: these have addresses of one kind. */
INLINE bool is_their_kind(const struct work *work, const struct replicas *key)
{
	return !work->is_ipv6 == !key->is_ipv6;
}

INLINE void read_target(const struct replicas *key, __u32 turn, bool is_ipv6, struct target *to)
{
	const struct turn *from = turn_at(key, turn, is_ipv6);
	to->store = from->store;
	to->place = from->place;
	to->address[0] = from->address[0];
	if (!is_ipv6)
		return;
	to->address[1] = from->address[1];
	to->address[2] = from->address[2];
	to->address[3] = from->address[3];
}

/* Between these two a record is read as it was at one moment, if the second says so. */
INLINE __u32 begin_reading(const struct found *found)
{
	__u32 seq = READ_ONCE(found->item->seq);
	barrier();
	return seq;
}

INLINE bool was_whole(const struct found *found, __u32 seq)
{
	barrier();
	return !(seq & 1) && READ_ONCE(found->item->seq) == seq;
}

/*
 * The turn of the packet's CPU: how many requests for the item it counted before this one, modulo
 * `turns`, without dividing.
 */
INLINE __u32 turn_of(const struct replicas *key, __u32 counted)
{
	__u32 part = (counted & 0xffff) * key->scale;
	return (__u64)part * key->turns >> 32 & (TURNS_MAX - 1);
}

/* Whether a read may take this turn. */
INLINE bool is_free(const struct replicas *key, __u32 turn)
{
	return (READ_ONCE(key->valid) >> turn & 1) || store_at(key, turn) == key->home;
}

/*
 * Of the turn and the next one that whose server was sent less, as far as both may be taken: the
 * power of two choices.
 */
INLINE __u32 better_turn(const struct work *work, const struct replicas *key, __u32 turn)
{
	if (!unlikely(work->parameter[FLAGS] & TWO_CHOICES))
		return turn;
	__u32 next = turn + 1 < key->turns ? turn + 1 : 0;
	if (!is_free(key, next))
		return turn;
	if (!is_free(key, turn))
		return next;
	__u32 place = READ_ONCE(turn_at(key, turn, key->is_ipv6)->place);
	__u32 other = READ_ONCE(turn_at(key, next, key->is_ipv6)->place);
	return sent_now(other) < sent_now(place) ? next : turn;
}

/* The number of the lowest bit of a word that is not 0: as many bits as are below it. */
INLINE __u32 lowest_bit(__u64 word)
{
	word = ~word & (word - 1);
	opaque(word); /* or the compiler would make a table of it */
	word -= word >> 1 & 0x5555555555555555;
	word = (word & 0x3333333333333333) + (word >> 2 & 0x3333333333333333);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return word * 0x0101010101010101 >> 56;
}

/* The turn from this one on whose replica may be read, as `valid` says, which is not 0. */
INLINE __u32 next_valid(__u64 valid, __u32 turn)
{
	__u64 from = valid >> turn << turn;
	return lowest_bit(from ? from : valid);
}

/*
 * The replica that this read goes to, as the one `counted`; false: it goes home. One whose turn is
 * of a replica that may not be read goes to the next that may: a home with much to do is what asks
 * most of those whose copies are still to come. `is_ipv6`: whether the packet is.
 */
INLINE bool take_turn(const struct found *found, const struct replicas *key,
		      const struct work *work, __u32 counted, const bool is_ipv6, struct target *to)
{
	__u32 seq = begin_reading(found);
	__u32 turn = better_turn(work, key, turn_of(key, counted)), home = key->home;
	bool fits = !key->is_ipv6 == !is_ipv6;
	__u64 valid = READ_ONCE(key->valid);
	if (valid && unlikely(!is_free(key, turn)))
		turn = next_valid(valid, turn);
	read_target(key, turn, is_ipv6, to);
	if (unlikely(!was_whole(found, seq) || !fits || to->store == home))
		return false;
	if (unlikely(!valid))
		count(COUNT_redirect_invalid);
	return valid;
}

/*
 * The turn of the replica whose update comes after that of another; the first, after the write or
 * the entry's update. From `count` on: there is no other. Noted in `work->scratch`, as below: the
 * verifier would follow each into all that comes after.
 */
INLINE __u32 next_replica(struct work *work, const struct replicas *key, __u32 after)
{
	__u32 *next = (__u32 *)work->scratch;
	*next = after == NODE_ALL || after == key->home ? 0 : TURNS_MAX;
	for (__u32 i = 0; i < TURNS_MAX; i++) {
		if (i >= key->count)
			break;
		if (store_at(key, i) == after)
			*next = i + 1;
	}
	return is_their_kind(work, key) ? READ_ONCE(*next) : TURNS_MAX;
}

/* The bits of a store's turns. */
INLINE __u64 turns_of(struct work *work, const struct replicas *key, __u32 store)
{
	__u64 *bits = (__u64 *)work->scratch;
	*bits = 0;
	for (__u32 i = 0; i < TURNS_MAX; i++) {
		if (i >= key->turns)
			break;
		if (store_at(key, i) == store)
			*bits |= 1ULL << i;
	}
	return READ_ONCE(*bits);
}
