/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A hot key's record: which stores have it, and whose turn it is; and how a packet is sent to another store. */
#pragma once

#include "load.h"

#define TURNS_MAX 64

/* In an item's cells. Copies of replicas come and go without it: a wrong bit costs a reader a round trip. */
struct replicas {
	__u32 scale; /* 2^32 over `turns`, rounded up */
	__u8 turns; /* 1 to TURNS_MAX */
	__u8 count; /* the first as many turns are of different replicas, and all that there are */
	__u16 home; /* who owns the key */
	__u64 valid; /* bit i: the replica of turn i may be read */
	__u16 store[TURNS_MAX]; /* holder ids by turn; the record ends after `turns` of them */
};
_Static_assert(offsetof(struct replicas, store) == 16, "src/record.rs writes the same struct");

/* No store has this number. */
#define NOBODY 0

INLINE struct replicas *replicas_of(const struct found *found, const struct work *work)
{
	return (struct replicas *)record_of(found, work);
}

/* The turn of the packet's CPU: how many requests for the item it counted before this one, modulo `turns`, without dividing. */
INLINE __u32 turn_of(const struct replicas *key, __u32 counted)
{
	__u32 part = (counted & 0xffff) * key->scale;
	return (__u64)part * key->turns >> 32 & (TURNS_MAX - 1);
}

/* The replica that this read goes to, as the one `counted`; NOBODY: it goes home. */
INLINE __u32 take_turn(const struct found *found, const struct work *work, __u32 counted)
{
	const struct replicas *key = replicas_of(found, work);
	__u32 seq = READ_ONCE(found->item->seq);
	barrier();
	__u32 turn = turn_of(key, counted);
	__u32 store = key->store[turn], home = key->home;
	bool valid = READ_ONCE(key->valid) >> turn & 1;
	barrier();
	if ((seq & 1) || READ_ONCE(found->item->seq) != seq || store == home)
		return NOBODY;
	if (valid)
		return store;
	count(COUNT_redirect_invalid);
	return NOBODY;
}

/* The replica whose update comes after that of another; the first, after the write itself. NOBODY: there is no other. */
INLINE __u32 next_replica(const struct found *found, const struct work *work, __u32 after)
{
	const struct replicas *key = replicas_of(found, work);
	bool seen = after == NODE_ALL;
	for (__u32 i = 0; i < TURNS_MAX; i++) {
		if (i >= key->count)
			break;
		__u32 store = READ_ONCE(key->store[i]);
		if (seen)
			return store;
		seen = store == after;
	}
	return NOBODY;
}

/* Whether it is an IPv4 address. */
INLINE bool is_mapped(const __be32 *address)
{
	return !address[0] && !address[1] && address[2] == bpf_htonl(0xffff);
}

/* Replicas in a row that a write is not sent to, before it goes no further: their home calls all that are left. */
#define LEFT_OUT_MAX 8

/* Whether a packet like this one can be sent to the store: its address is known, and of the packet's family. */
INLINE bool can_send_to(const struct work *work, __u32 store)
{
	const struct server *server = find_server(work, store);
	return server && work->is_ipv6 != is_mapped(server->address);
}

/* As next_replica, of those that can be sent to. */
INLINE __u32 next_in_reach(const struct found *found, const struct work *work, __u32 after)
{
	for (int i = 0; i < LEFT_OUT_MAX; i++) {
		after = next_replica(found, work, after);
		if (after == NOBODY || can_send_to(work, after))
			return after;
	}
	return NOBODY;
}

/* The bits of a store's turns. Noted in `work->scratch`: the verifier would follow each of them into all that comes after. */
INLINE __u64 turns_of(struct work *work, const struct replicas *key, __u32 store)
{
	__u64 *bits = (__u64 *)work->scratch;
	*bits = 0;
	for (__u32 i = 0; i < TURNS_MAX; i++) {
		if (i >= key->turns)
			break;
		if (READ_ONCE(key->store[i]) == store)
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
	ip->check = checksum_of((__u16)~ip->check + sum_moved(&ip->daddr, to + 3, 1));
	ip->daddr = to[3];
}

/* What the datagram's checksum gains by that; false: the packet has no address of this family. */
INLINE bool gain(struct xdp_md *ctx, const struct work *work, const __be32 *to, __u64 *moved)
{
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (!ip || is_mapped(to))
			return false;
		*moved = sum_moved((const __be32 *)&ip->daddr, to, 4);
		return true;
	}
	struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
	if (!ip || !is_mapped(to))
		return false;
	*moved = sum_moved(&ip->daddr, to + 3, 1);
	return true;
}

/*
 * Makes the packet, with `work->header` as it is now, one for the store: its address, its number, signed. False: nothing of it
 * was changed, for nobody knows the store, or only by an address of the other family.
 */
INLINE bool send_to(struct xdp_md *ctx, struct work *work, __u32 store)
{
	const struct server *server = find_server(work, store);
	struct udphdr *udp = header_at(ctx, work->l4, struct udphdr);
	struct kv_header *kv = header_at(ctx, work->kv, struct kv_header);
	__u64 moved = 0;
	if (!server || !udp || !kv || !gain(ctx, work, server->address, &moved))
		return false;
	work->header.node = bpf_htons(store);
	sign(work);
	carry_checksum(ctx, work, udp, kv, moved);
	*kv = work->header;
	write_destination(ctx, work, server->address);
	count_at(work, server->place, SENT);
	return true;
}
