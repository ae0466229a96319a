/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What goes round: places, who waits there, and how a read joins them. */
#pragma once

#include "discipline.h"
#include "share.h"

/*
 * In the low 24 bits how long a value goes round for nobody, in microseconds: 0 is PARK_US, all
 * ones is for ever. Above them how many reads may wait for it: 0 is QUEUE.
 */
#define ORBIT 1
#define PARK_MASK 0xffffff
#define PARK_US 1000
#define DEPTH_SHIFT 24

/* Values that go round at most, in sets: one has the choice of as many places. */
#define ORBITS 256
#define WAYS 16
#define SETS (ORBITS / WAYS)
/* Reads that may wait for one value. */
#define QUEUE 8

/* A packet looks at its item after as many rounds for nobody. */
#define LOOK_EVERY 4
/* One that was not seen for so long is lost: the next read makes another. */
#define STALE_NS (20 * NS_PER_MS)
/* What was lost so often in a row has a port that carries nothing: it is tried again after this. */
#define LOST_MOST 4
#define LOST_PAUSE_NS (1000 * NS_PER_MS)
/* The client of a read that waited for so long has asked again. */
#define LATE_NS (1000 * NS_PER_MS)

/* A read that waits: what its answer repeats, and where it goes. */
struct waiting {
	__be64 client;
	__be64 request;
	__be64 key_hash[2];
	__u64 secret[2]; /* that it was signed with */
	__u64 since_ns;
	__u8 from[16]; /* addresses; IPv4 in the last four bytes */
	__u8 to[16];
	__u32 port; /* interface that it came in by */
	__u8 from_mac[ETH_ALEN];
	__u8 to_mac[ETH_ALEN];
	__be16 from_port;
	__be16 to_port;
	__be16 vlan;
	__be16 tag; /* the EtherType before it */
	__be16 life;
	__be16 node;
	__u16 room; /* longest answer that it allows, as UDP payload in bytes */
	__u16 unused;
};
_Static_assert(sizeof(struct waiting) == 120, "no padding");

/*
 * A value that goes round, or did. Its packets carry its place and `generation`; those of another
 * are dropped. Everything but `generation`, `waiting` and `seen_ns` is read and written under the
 * lock only.
 */
struct orbit {
	__u32 lock;
	__u32 generation; /* odd while packets of it go round; never comes again */
	__u64 item; /* tenant over fingerprint */
	__u64 word; /* of the item, under which its packets were made */
	__u64 seen_ns; /* when one of them last looked at the item */
	__u64 busy_ns; /* when one last answered */
	__u64 shape; /* slot, and what headers packets have: answers to others come from others */
	__u32 waiting; /* how many wait */
	__u16 first; /* of them */
	__u16 sum; /* of the value or part that its packets have, as `sum_of` has it */
	__u32 lost; /* packets in a row that never came round */
	__u32 unfinished; /* not 0: so are the checksums of its packets, whomever they answer */
	struct waiting queue[QUEUE];
};

/* key: a place. Written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ORBITS);
	__type(key, __u32);
	__type(value, struct orbit);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} orbitcache_orbits SEC(".maps");

INLINE struct orbit *orbit_at(__u32 place)
{
	return bpf_map_lookup_elem(&orbitcache_orbits, &place);
}

/* Held for a few instructions. False: others kept it for longer than that. */
INLINE bool lock_orbit(struct orbit *orbit)
{
	for (int i = 0; i < 4 * LOCK_TRIES; i++)
		if (compare_and_swap(&orbit->lock, 0, 1) == 0)
			return true;
	return false;
}

INLINE void unlock_orbit(struct orbit *orbit)
{
	barrier();
	compare_and_swap(&orbit->lock, 1, 0);
}

/* As far as anybody knows. The clock of `now_ns` may be behind the one of `seen_ns`. */
INLINE bool goes_round(const struct orbit *orbit, __u64 now_ns)
{
	return (READ_ONCE(orbit->generation) & 1) && now_ns < READ_ONCE(orbit->seen_ns) + STALE_NS;
}

/* Packets of this orbit do not come round, as often as it was tried. */
INLINE bool is_hopeless(const struct orbit *orbit, __u64 now_ns)
{
	return (orbit->generation & 1) && orbit->lost >= LOST_MOST &&
	       now_ns < orbit->seen_ns + LOST_PAUSE_NS;
}

INLINE __u64 item_of(const struct work *work)
{
	return (__u64)bpf_ntohl(work->header.tenant) << 32 | (work->hash[1] >> 32 ?: 1);
}

INLINE __u64 shape_of(const struct work *work, const struct found *found)
{
	return (__u64)found->slot << 2 | (work->is_vlan ? 2 : 0) | (work->is_ipv6 ? 1 : 0);
}

/* The first place of a set. */
INLINE __u32 first_of_set(__u64 shape)
{
	return (shape * 0x9e3779b97f4a7c15ULL >> 48 & (SETS - 1)) * WAYS;
}

/* The first place of a set by which nothing goes round, whoever waits there; ORBITS: none is so. */
INLINE __u32 find_left(__u32 first, __u64 now_ns)
{
	for (__u32 i = 0; i < WAYS; i++) {
		const struct orbit *orbit = orbit_at(first + i);
		if (orbit && !goes_round(orbit, now_ns))
			return first + i;
	}
	return ORBITS;
}

/*
 * The place of this item's value, or one that it may take, at best where nobody waits; ORBITS:
 * others that go round have them all. Looked at once by the verifier, which would go through all
 * places for each way to here.
 */
WHOLE __u32 find_place(__u64 item, __u64 shape, __u64 now_ns)
{
	__u32 first = first_of_set(shape), free = ORBITS;
	for (__u32 i = 0; i < WAYS; i++) {
		const struct orbit *orbit = orbit_at(first + i);
		if (!orbit)
			break;
		if (orbit->item == item && orbit->shape == shape)
			return first + i;
		if (free == ORBITS && !READ_ONCE(orbit->waiting) && !goes_round(orbit, now_ns))
			free = first + i;
	}
	return free == ORBITS ? find_left(first, now_ns) : free;
}

/*
 * Where all places of the item's set go round for others: the one that is taken from a tenant that
 * has more of them than this one would have then, so that neither takes from the other for ever.
 * Nobody waits there. ORBITS: there is none.
 */
WHOLE __u32 place_of_others(struct work *work, __u64 item, __u64 shape)
{
	__u32 first = first_of_set(shape), own = item >> 32;
	if (!work)
		return ORBITS;
	struct set_of_ways *set = scratch_set(work);
	for (__u32 i = 0; i < WAYS; i++) {
		const struct orbit *orbit = orbit_at(first + i);
		if (!orbit)
			return ORBITS;
		set->tenant[i] = orbit->item >> 32;
		set->age[i] = READ_ONCE(orbit->waiting) ? 0 : age_of(orbit->busy_ns, work->now_ns);
	}
	__u64 goes = way_that_goes(work, WAYS, own);
	if (goes >> WAY_COUNT <= places_of(set, own) + 1)
		return ORBITS;
	return first + way_of(goes);
}

/* What the packets of an orbit carry: its place over its generation. */
INLINE __be64 name_packet(const struct config *config, __u32 place, __u32 generation)
{
	return bpf_cpu_to_be64(epoch_pair(config->switch_id, (__u64)place << 32 | generation));
}

/* Addresses as they stand in the packet; false where there is no such header. */
INLINE bool read_addresses(struct xdp_md *ctx, const struct work *work, struct waiting *one)
{
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (!ip)
			return false;
		__builtin_memcpy(one->from, &ip->saddr, 16);
		__builtin_memcpy(one->to, &ip->daddr, 16);
		return true;
	}
	struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
	if (!ip)
		return false;
	__builtin_memcpy(one->from + 12, &ip->saddr, 4);
	__builtin_memcpy(one->to + 12, &ip->daddr, 4);
	return true;
}

INLINE bool write_addresses(struct xdp_md *ctx, const struct work *work, const struct waiting *one)
{
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (!ip)
			return false;
		__builtin_memcpy(&ip->saddr, one->from, 16);
		__builtin_memcpy(&ip->daddr, one->to, 16);
		return true;
	}
	struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
	if (!ip)
		return false;
	__builtin_memcpy(&ip->saddr, one->from + 12, 4);
	__builtin_memcpy(&ip->daddr, one->to + 12, 4);
	return true;
}

/* What of a tenant without a secret may be sent: it could be anybody, and nobody is amplified. */
INLINE __u32 room_of(const struct work *work)
{
	return has_secret(work) ? ~0U : work->payload_len;
}

/* The read waits, in an orbit that the caller has locked. False: there is no room. */
INLINE bool join(struct xdp_md *ctx, const struct work *work, struct orbit *orbit)
{
	__u32 depth = work->parameter[ORBIT] >> DEPTH_SHIFT ?: QUEUE, waiting = orbit->waiting;
	struct ethhdr *eth = eth_of(ctx);
	struct udphdr *udp = header_at(ctx, work->l4, struct udphdr);
	struct waiting *one = &orbit->queue[(orbit->first + waiting) & (QUEUE - 1)];
	if (waiting >= depth || waiting >= QUEUE || !eth || !udp || !read_addresses(ctx, work, one))
		return false;
	one->client = work->header.client;
	one->request = work->header.request;
	one->key_hash[0] = work->header.key_hash[0];
	one->key_hash[1] = work->header.key_hash[1];
	one->life = work->header.life;
	one->node = work->header.node;
	one->secret[0] = work->secret[0];
	one->secret[1] = work->secret[1];
	one->since_ns = work->now_ns;
	one->port = ctx->ingress_ifindex;
	__builtin_memcpy(one->from_mac, eth->h_source, ETH_ALEN);
	__builtin_memcpy(one->to_mac, eth->h_dest, ETH_ALEN);
	one->from_port = udp->source;
	one->to_port = udp->dest;
	one->room = room_of(work) < 0xffff ? room_of(work) : 0xffff;
	if (work->is_vlan) {
		struct vlan_tag *vlan = header_at(ctx, sizeof(*eth), struct vlan_tag);
		one->vlan = vlan ? vlan->control : 0;
		one->tag = eth->h_proto;
	}
	orbit->waiting = waiting + 1;
	return true;
}
