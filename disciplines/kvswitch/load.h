/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known of a tenant's stores, and how many requests are sent to each. */
#pragma once

#include "discipline.h"
#include "tally.h"

struct address_key {
	__u32 tenant;
	__u8 address[16];
};
_Static_assert(sizeof(struct address_key) == 20, "src/servers.rs writes the same struct");

/* A store's place among those whose load is counted. Rows of the configuration. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256); /* set when loading */
	__type(key, struct address_key);
	__type(value, __u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} kvswitch_addresses SEC(".maps");

/* Parameter words: the reads per window from which a cold key is reported, and flags. */
#define HOT_THRESHOLD 0
#define FLAGS 1
#define FAN_OUT 0x1
#define ON_TOP 0x2
#define TWO_CHOICES 0x4

/*
 * Tallies, as src/servers.rs counts them: writes of the tenant, as such or as updates of entries,
 * and reads that were answered here.
 */
#define WRITES 0
#define ENTERED 1
#define HITS 2
/* Tallies: from this one on what each store has to do, as src/servers.rs counts them. */
#define LOADS 8
#define LOADED_STORES 64
/* From this one on how many updates of replicas each is sent: other work, which nobody answers. */
#define UPDATES (LOADS + LOADED_STORES)
_Static_assert(UPDATES + LOADED_STORES == TALLIES, "one for each of them");

/* In a store's tally: requests that were sent to it, over them the replies that it sent. */
#define SENT 1ULL
#define REPLIED (1ULL << 32)

/*
 * Where servers are racks: what each was sent in a window, by this CPU, for all tenants; all of
 * them count them alike.
 */
struct racks {
	__u32 window;
	__u32 sent[LOADED_STORES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct racks);
} kvswitch_racks SEC(".maps");

/* Those of this window. */
INLINE struct racks *racks_now(void)
{
	__u32 zero = 0;
	struct racks *racks = bpf_map_lookup_elem(&kvswitch_racks, &zero);
	const struct config *config = get_config();
	if (racks && config && racks->window != config->window) {
		__builtin_memset(racks->sent, 0, sizeof(racks->sent));
		racks->window = config->window;
	}
	return racks;
}

INLINE __u32 sent_now(__u32 place)
{
	const struct racks *racks = racks_now();
	if (!racks || place >= LOADED_STORES)
		return 0;
	return racks->sent[index_below(LOADED_STORES, place)];
}

INLINE void count_at(const struct work *work, __u32 place, __u64 what)
{
	if (place >= LOADED_STORES)
		return;
	tally_by(work, LOADS + place, what);
	if (what != SENT || !unlikely(work->parameter[FLAGS] & TWO_CHOICES))
		return;
	struct racks *racks = racks_now();
	if (racks)
		racks->sent[index_below(LOADED_STORES, place)]++;
}

INLINE void count_update(const struct work *work, __u32 place)
{
	if (place < LOADED_STORES)
		tally(work, UPDATES + place);
}

/* What is counted for the store that a packet goes to, or comes from. */
enum load { REQUEST, REPLY, UPDATE };

/*
 * Counts it. 0: it is of no interest: the host is no store of the tenant's, or of none that this
 * switch sees to.
 */
OUTLINE int count_load(struct xdp_md *ctx, struct work *work, enum load what)
{
	struct address_key key;
	bool comes = what == REPLY;
	if (!work)
		return 0;
	key.tenant = bpf_ntohl(work->header.tenant);
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (!ip)
			return 0;
		__builtin_memcpy(key.address, comes ? &ip->saddr : &ip->daddr, 16);
	} else {
		struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
		if (!ip)
			return 0;
		mapped_ipv4(key.address, comes ? ip->saddr : ip->daddr);
	}
	const __u32 *place = bpf_map_lookup_elem(&kvswitch_addresses, &key);
	if (!place)
		return 0;
	if (what == UPDATE)
		count_update(work, *place);
	else
		count_at(work, *place, comes ? REPLIED : SENT);
	return 1;
}
