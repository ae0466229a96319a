/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A tenant's rate: of requests, and of what one request has a switch do more often than once. */
#pragma once

#include "maps.h"

/*
 * So many requests against the tenant's rate, as a virtual schedule (GCRA): each moves the time at
 * which the next one would conform. CPUs that look at the same moment may each let a request
 * through; what each of them charges is added, and none of it is lost. One atomic, or two if
 * another CPU was the first after a pause.
 */
INLINE bool within_rate(struct tenant *tenant, __u64 now_ns, __u32 requests)
{
	if (tenant->ns_per_request == 0)
		return true;
	__u64 next = READ_ONCE(tenant->next_ns), charge = requests * tenant->ns_per_request;
	if (next > now_ns + tenant->burst_ns)
		return false;
	if (next >= now_ns || compare_and_swap(&tenant->next_ns, next, now_ns + charge) != next)
		fetch_add(&tenant->next_ns, charge);
	return true;
}

/* Charges the packet's tenant for so many more; false: it has asked for too much already. */
INLINE bool pays_for(const struct work *work, __u32 requests)
{
	__u32 id = bpf_ntohl(work->header.tenant);
	struct tenant *tenant = bpf_map_lookup_elem(&tenants, &id);
	return tenant && within_rate(tenant, work->now_ns, requests);
}
