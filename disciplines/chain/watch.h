/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who watches a key: the tail tells each of them of a write, after the members. A watch lasts some
 * seconds, and is asked for anew by whoever still wants it; where there is no room for it, or a
 * word is lost, the client finds out when it asks. So it does where its tenant has most of a full
 * set, and another tenant's watch needs a place there.
 */
#pragma once

#include "share.h"
#include "packet.h"

#define WATCH_NS (3000 * NS_PER_MS)
#define WATCHES 8
#define WATCH_SETS 1024

struct watch {
	__u64 hash; /* of the key, as `work->hash[1]` has it */
	__u64 until_ns;
	__be64 client; /* the read that asked for it */
	__be64 request;
	__u8 address[16]; /* over IPv4 the first four bytes */
	__u32 tenant;
	__be16 port;
	__u16 is_also; /* the client signed with the tenant's other secret */
};

struct watch_set {
	__u32 lock;
	__u32 unused;
	struct watch watch[WATCHES];
};
_Static_assert(sizeof(struct watch_set) == 8 + WATCHES * 56, "no padding");

/* key: the low bits of a key's hash. Written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WATCH_SETS);
	__type(key, __u32);
	__type(value, struct watch_set);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} chain_watches SEC(".maps");

INLINE struct watch_set *watches_of(const struct work *work)
{
	__u32 index = work->hash[1] & (WATCH_SETS - 1);
	return bpf_map_lookup_elem(&chain_watches, &index);
}

INLINE bool is_of(const struct watch *watch, const struct work *work)
{
	return watch->hash == work->hash[1] && watch->tenant == bpf_ntohl(work->header.tenant) &&
	       watch->until_ns > work->now_ns;
}

/*
 * Where all places of a set are in use: the one that is taken from a tenant that has more of them
 * than this one would have then, so that neither takes from the other for ever. WATCHES: there is
 * none.
 */
WHOLE __u32 watch_of_others(struct work *work, const struct watch_set *in_use)
{
	if (!work || !in_use)
		return WATCHES;
	__u32 own = bpf_ntohl(work->header.tenant);
	struct set_of_ways *set = scratch_set(work);
	for (__u32 i = 0; i < WATCHES; i++) {
		set->tenant[i] = in_use->watch[i].tenant;
		/* Each may go; the one that is asked for anew last stays longest. */
		set->age[i] = age_of(in_use->watch[i].until_ns, work->now_ns + WATCH_NS);
	}
	/* Those beyond are not there. */
	for (__u32 i = WATCHES; i < SET_WAYS; i++)
		set->tenant[i] = NOBODY;
	__u64 goes = way_that_goes(work, WATCHES, own);
	return goes >> WAY_COUNT > places_of(set, own) + 1 ? way_of(goes) : WATCHES;
}

/* In the place of the client's former one, of one that is over, or of another tenant's. */
WHOLE int add_watch(struct work *work, struct watch_set *set, const struct watch *fresh)
{
	__u32 place = WATCHES;
	if (!work || !set || !fresh || !try_lock(&set->lock))
		return false;
	for (__u32 i = 0; i < WATCHES; i++) {
		const struct watch *watch = &set->watch[i];
		if (is_of(watch, work) && watch->client == fresh->client) {
			place = i;
			break;
		}
		if (watch->until_ns <= work->now_ns)
			place = i;
	}
	if (place >= WATCHES)
		place = watch_of_others(work, set);
	if (place < WATCHES)
		set->watch[place] = *fresh;
	unlock_seq(&set->lock);
	return place < WATCHES;
}

/* The key's first watch from that place on, into `found`; the place behind it, or 0. */
WHOLE int next_watch(const struct work *work, struct watch_set *set, __u32 from,
		     struct watch *found)
{
	int behind = 0;
	if (!work || !set || !found || !try_lock(&set->lock))
		return 0;
	for (__u32 i = 0; i < WATCHES; i++) {
		if (i < from || behind || !is_of(&set->watch[i], work))
			continue;
		*found = set->watch[i];
		behind = i + 1;
	}
	unlock_seq(&set->lock);
	return behind;
}

/* Whether the packet's key is watched from that place on. */
OUTLINE int is_watched(const struct work *work, __u32 from)
{
	struct watch watch = {};
	struct watch_set *set = work ? watches_of(work) : NULL;
	return set && next_watch(work, set, from, &watch);
}

/* Nobody is told who cannot prove who he is. */
OUTLINE int register_watch(struct xdp_md *ctx, struct work *work)
{
	struct watch_set *set = work ? watches_of(work) : NULL;
	struct udphdr *udp = work ? header_at(ctx, work->l4, struct udphdr) : NULL;
	if (!set || !udp || !has_secret(work))
		return false;
	struct watch watch = {
		.hash = work->hash[1],
		.until_ns = work->now_ns + WATCH_NS,
		.client = work->header.client,
		.request = work->header.request,
		.tenant = bpf_ntohl(work->header.tenant),
		.port = udp->source,
		.is_also = is_signed_also(work),
	};
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (!ip)
			return false;
		__builtin_memcpy(watch.address, &ip->saddr, 16);
	} else {
		struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
		if (!ip)
			return false;
		__builtin_memcpy(watch.address, &ip->saddr, 4);
	}
	return add_watch(work, set, &watch);
}
