/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A hot key's record: which stores have it, where they are, and whose turn it is; and how a packet is sent to another store. */
#pragma once

#include "load.h"

#define TURNS_MAX 64

/* A store that reads may go to. All that a packet needs on its way there stands here: no table is asked. */
struct turn {
	__u16 store; /* holder id */
	__u16 place; /* among those whose load is counted */
	__be32 address[]; /* one word, or four */
};
#define IPV4_TURN 8
#define IPV6_TURN 20

/* In an item's cells. Copies of replicas come and go without it: a wrong bit costs a reader a round trip. */
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
	turn &= TURNS_MAX - 1;
	return (const struct turn *)(key->turn + turn * (is_ipv6 ? IPV6_TURN : IPV4_TURN));
}

INLINE __u32 store_at(const struct replicas *key, __u32 turn)
{
	return READ_ONCE(turn_at(key, turn, key->is_ipv6)->store);
}

/*
 * Whether a read takes its turn here: none does where another switch chose a replica, or is still to choose. The one that chose this rack
 * named the rack's entry.
 */
INLINE bool is_for_us(const struct work *work, const struct replicas *key)
{
	__u16 named = key->is_entry ? key->home : 0;
	return work->header.node == bpf_htons(named);
}

/* Whether packets like this one can go to replicas: these have addresses of one kind. */
INLINE bool is_their_kind(const struct work *work, const struct replicas *key)
{
	return !work->is_ipv6 == !key->is_ipv6;
}

INLINE void read_target(const struct work *work, const struct replicas *key, __u32 turn,
			struct target *to)
{
	const struct turn *from = turn_at(key, turn, work->is_ipv6);
	to->store = from->store;
	to->place = from->place;
	to->address[0] = from->address[0];
	if (!work->is_ipv6)
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

/* The turn of the packet's CPU: how many requests for the item it counted before this one, modulo `turns`, without dividing. */
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

/* Of the turn and the next one that whose server was sent less, as far as both may be taken: the power of two choices. */
INLINE __u32 better_turn(const struct work *work, const struct replicas *key, __u32 turn)
{
	__u32 next = turn + 1 < key->turns ? turn + 1 : 0;
	if (!(work->parameter[FLAGS] & TWO_CHOICES) || !is_free(key, next))
		return turn;
	if (!is_free(key, turn))
		return next;
	__u32 place = READ_ONCE(turn_at(key, turn, key->is_ipv6)->place);
	__u32 other = READ_ONCE(turn_at(key, next, key->is_ipv6)->place);
	return sent_now(other) < sent_now(place) ? next : turn;
}

/* The replica that this read goes to, as the one `counted`; false: it goes home. */
INLINE bool take_turn(const struct found *found, const struct work *work, __u32 counted,
		      struct target *to)
{
	const struct replicas *key = replicas_of(found, work);
	__u32 seq = begin_reading(found);
	__u32 turn = better_turn(work, key, turn_of(key, counted)), home = key->home;
	bool fits = is_their_kind(work, key), valid = READ_ONCE(key->valid) >> turn & 1;
	read_target(work, key, turn, to);
	if (!was_whole(found, seq) || !fits || to->store == home)
		return false;
	if (!valid)
		count(COUNT_redirect_invalid);
	return valid;
}

/*
 * The turn of the replica whose update comes after that of another; the first, after the write or the entry's update. From `count` on:
 * there is no other. Noted in `work->scratch`, as below: the verifier would follow each into all that comes after.
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

/* What it adds to a sum over the words that they become others. `count` is a constant. */
INLINE __u64 sum_moved(const __be32 *from, const __be32 *to, int count)
{
	__u64 sum = 0;
	for (int i = 0; i < count; i++)
		sum += (__u64)to[i] + (__u32)~from[i];
	return sum;
}

/* What becomes of an address, and of the checksum over a header that has it. */
INLINE void write_destination(struct xdp_md *ctx, const struct work *work, const __be32 *to)
{
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (ip)
			__builtin_memcpy(&ip->daddr, to, sizeof(ip->daddr));
		return;
	}
	struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
	if (!ip)
		return;
	ip->check = checksum_of((__u16)~ip->check + sum_moved(&ip->daddr, to, 1));
	ip->daddr = to[0];
}

/* What the datagram's checksum gains by that; false: there is no IP header. */
INLINE bool gain(struct xdp_md *ctx, const struct work *work, const __be32 *to, __u64 *moved)
{
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (!ip)
			return false;
		*moved = sum_moved((const __be32 *)&ip->daddr, to, 4);
		return true;
	}
	struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
	if (!ip)
		return false;
	*moved = sum_moved(&ip->daddr, to, 1);
	return true;
}

/* What may change in a header on the way to a store: op and flags of an update, the store's number, the tag. */
#define WORDS_OF_STORE (HEADER_WORD(op) | HEADER_WORD(node) | HEADER_WORD(tag))

/* Writes whole words: what is read again as one, and was written in smaller pieces, waits for all that came before it. */
INLINE void name_store(struct work *work, __u32 store)
{
	__u64 *first = (__u64 *)&work->header.node, word = *first;
	_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
		       "the first bytes are the low ones");
	word = (word & ~0xffffULL) | bpf_htons(store);
	opaque(word); /* or the compiler would write two bytes after all */
	*first = word;
}

INLINE void write_words(struct kv_header *to, const struct kv_header *from, __u32 words)
{
	__u64 *out = (__u64 *)to;
	const __u64 *in = (const __u64 *)from;
	for (int i = KV_SHARED_LEN / 8; i < KV_HEADER_LEN / 8; i++) {
		if (words >> i & 1)
			out[i] = in[i];
	}
}

/*
 * Makes the packet, with `work->header` as it is now, one for the store: its address, its number, signed. False: a header is
 * missing, and nothing was changed.
 */
INLINE bool send_to(struct xdp_md *ctx, struct work *work, const struct target *to)
{
	struct udphdr *udp = header_at(ctx, work->l4, struct udphdr);
	struct kv_header *kv = header_at(ctx, work->kv, struct kv_header);
	__u64 moved = 0;
	if (!udp || !kv || !gain(ctx, work, to->address, &moved))
		return false;
	name_store(work, to->store);
	sign(work);
	carry_checksum_of(ctx, work, udp, kv, WORDS_OF_STORE, moved);
	write_words(kv, &work->header, WORDS_OF_STORE);
	write_destination(ctx, work, to->address);
	return true;
}
