/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known of a tenant's stores, and how many requests are sent to each. */
#pragma once

#include "discipline.h"

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

/* Parameter word: the reads per window from which a key is reported that servers have to answer. */
#define HOT_THRESHOLD 0

/* Tallies, as src/servers.rs counts them: writes of the tenant, updates that they became, and reads that were answered here. */
#define WRITES 0
#define UPDATES 1
#define HITS 2
/* Tallies: from this one on what each store has to do, as src/servers.rs counts them. */
#define LOADS 8
#define LOADED_STORES 64
_Static_assert(LOADS + LOADED_STORES == TALLIES, "one for each of them");

/* In a store's tally: requests that were sent to it, over them the replies that it sent. */
#define SENT 1ULL
#define REPLIED (1ULL << 32)

INLINE void count_at(const struct work *work, __u32 place, __u64 what)
{
	if (place < LOADED_STORES)
		tally_by(work, LOADS + place, what);
}

/* Counts a packet for the store that it goes to, or comes from. Of no interest: a host that is no store of the tenant's. */
OUTLINE int count_load(struct xdp_md *ctx, struct work *work, bool comes)
{
	struct address_key key;
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
	if (place)
		count_at(work, *place, comes ? REPLIED : SENT);
	return 0;
}
