/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who may touch a cache: the tenant must be known, the tag right, the rate kept. */
#pragma once

#include "forward.h"
#include "siphash.h"
#include "traffic.h"

/*
 * One request against the tenant's rate, as a virtual schedule (GCRA): each request moves the time at which
 * the next one would conform. Two CPUs may race for one step of it; then one request goes uncounted.
 */
INLINE bool within_rate(struct tenant *tenant, __u64 now_ns)
{
	if (tenant->ns_per_request == 0)
		return true;
	__u64 next = READ_ONCE(tenant->next_ns);
	if (next > now_ns + tenant->burst_ns)
		return false;
	WRITE_ONCE(tenant->next_ns, (next > now_ns ? next : now_ns) + tenant->ns_per_request);
	return true;
}

/*
 * Whether the tag is right, under the tenant's secret or the one that is accepted as well; `work->secret` is then the
 * one that it was made with, and signs whatever becomes of the packet.
 */
INLINE bool tag_is_right(struct work *work, const struct tenant *tenant)
{
	__u64 also[2] = {tenant->also_secret[0], tenant->also_secret[1]};
	work->secret[0] = tenant->secret[0];
	work->secret[1] = tenant->secret[1];
	if (!has_secret(work) || tag_of(work) == work->header.tag)
		return true;
	if (!(also[0] | also[1]))
		return false;
	work->secret[0] = also[0];
	work->secret[1] = also[1];
	return tag_of(work) == work->header.tag;
}

INLINE int over_rate(struct xdp_md *ctx, struct work *work, __u32 flags)
{
	if (flags & TENANT_DROP_OVER_RATE)
		return ends(COUNT_drop_over_rate, XDP_DROP);
	count(COUNT_bypass_over_rate);
	return forward(ctx, work);
}

/*
 * CONTINUE and the discipline's number if the packet may use the tables. Otherwise it is forwarded as it
 * is: what a store thinks of it is the store's affair, and no cache is touched on its behalf.
 */
INLINE int admit(struct xdp_md *ctx, struct work *work, __u32 *discipline)
{
	__u32 id = bpf_ntohl(work->header.tenant);
	struct tenant *tenant = bpf_map_lookup_elem(&tenants, &id);
	if (!tenant) {
		count(COUNT_bypass_unknown_tenant);
		return forward(ctx, work);
	}
	bool right = tag_is_right(work, tenant);
	__u32 flags = tenant->flags;
	*discipline = tenant->discipline;
	work->hot_threshold = tenant->hot_threshold;
	barrier();
	if (READ_ONCE(tenant->id) != id) { /* changed by the agent just now: nothing of it counts */
		count(COUNT_bypass_unknown_tenant);
		return forward(ctx, work);
	}
	if (!right) {
		count(COUNT_bypass_bad_tag);
		return forward(ctx, work);
	}
	work->now_ns = bpf_ktime_get_coarse_ns();
	if (op_is_client_request(work->op)) {
		if (!within_rate(tenant, work->now_ns))
			return over_rate(ctx, work, flags);
		if ((flags & TENANT_MEASURED) && is_sampled(work))
			count_traffic(ctx, work);
	}
	work->hash[0] = bpf_be64_to_cpu(work->header.key_hash[0]);
	work->hash[1] = bpf_be64_to_cpu(work->header.key_hash[1]) ^ hash_salt(id);
	return CONTINUE;
}
