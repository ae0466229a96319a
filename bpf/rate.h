/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A tenant's rate: of requests, and of what one request has a switch do more often than once. */
#pragma once

#include "maps.h"

/*
 * So many requests against the tenant's rate, as a virtual schedule (GCRA): each moves the time at
 * which the next one would conform. Two CPUs may race for one step of it; then one goes uncounted.
 */
INLINE bool within_rate(struct tenant *tenant, __u64 now_ns, __u32 requests)
{
	if (tenant->ns_per_request == 0)
		return true;
	__u64 next = READ_ONCE(tenant->next_ns);
	if (next > now_ns + tenant->burst_ns)
		return false;
	WRITE_ONCE(tenant->next_ns,
		   (next > now_ns ? next : now_ns) + requests * tenant->ns_per_request);
	return true;
}

/* Charges the packet's tenant for so many more; false: it has asked for too much already. */
INLINE bool pays_for(const struct work *work, __u32 requests)
{
	__u32 id = bpf_ntohl(work->header.tenant);
	struct tenant *tenant = bpf_map_lookup_elem(&tenants, &id);
	return tenant && within_rate(tenant, work->now_ns, requests);
}
