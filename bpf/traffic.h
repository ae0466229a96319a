/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A sample of which clients ask which stores: where a tenant's pages would save most hops. */
#pragma once

#include "forward.h"

/*
 * One request in 64, by its number: clients count theirs up, so this needs no random number and
 * no state.
 */
#define TRAFFIC_SAMPLE_MASK 63

INLINE bool is_sampled(const struct work *work)
{
	return !(bpf_be64_to_cpu(work->header.request) & TRAFFIC_SAMPLE_MASK);
}

INLINE bool flow_of(struct xdp_md *ctx, const struct work *work, struct flow *flow)
{
	flow->tenant = bpf_ntohl(work->header.tenant);
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (!ip)
			return false;
		__builtin_memcpy(flow->client, &ip->saddr, 16);
		__builtin_memcpy(flow->store, &ip->daddr, 16);
		return true;
	}
	struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
	if (!ip)
		return false;
	mapped_ipv4(flow->client, ip->saddr);
	mapped_ipv4(flow->store, ip->daddr);
	return true;
}

/*
 * Counts an admitted request. Of two CPUs that begin a flow at once, one's first request goes
 * uncounted.
 */
OUTLINE int count_traffic(struct xdp_md *ctx, struct work *work)
{
	struct flow flow;
	if (!work || !flow_of(ctx, work, &flow))
		return 0;
	__u64 one = 1, *requests = bpf_map_lookup_elem(&traffic, &flow);
	if (requests)
		fetch_add(requests, 1);
	else
		bpf_map_update_elem(&traffic, &flow, &one, BPF_NOEXIST);
	return 0;
}
