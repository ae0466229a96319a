/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who may touch a cache: the tenant must be known, the tag right, the rate kept. */
#pragma once

#include "rate.h"
#include "recirculate.h"
#include "siphash.h"
#include "table.h"
#include "traffic.h"

INLINE bool is_signed_so(struct work *work)
{
	if (!has_secret(work))
		return true;
	hash_shared(work);
	return tag_of(work) == work->header.tag;
}

/*
 * Whether the tag is right, under the signer's secret or the one that is accepted as well; `work->secret` is then the
 * one that it was made with, and signs whatever becomes of the packet.
 */
INLINE bool tag_is_right(struct work *work, const struct tenant *signer)
{
	__u64 also[2] = {signer->also_secret[0], signer->also_secret[1]};
	work->secret[0] = signer->secret[0];
	work->secret[1] = signer->secret[1];
	if (is_signed_so(work))
		return true;
	if (!(also[0] | also[1]))
		return false;
	work->secret[0] = also[0];
	work->secret[1] = also[1];
	return is_signed_so(work);
}

INLINE int over_rate(struct xdp_md *ctx, struct work *work, __u32 flags)
{
	if (flags & TENANT_DROP_OVER_RATE)
		return ends(COUNT_drop_over_rate, XDP_DROP);
	count(COUNT_bypass_over_rate);
	return forward(ctx, work);
}

/* Who signs what is said about this tenant's keys; NULL if the system's secret is needed and nobody gave it. */
INLINE struct tenant *signer_of(const struct work *work, struct tenant *tenant)
{
	__u32 system = TENANT_SYSTEM;
	return op_is_system(work->op) ? bpf_map_lookup_elem(&tenants, &system) : tenant;
}

INLINE void take_hash(struct work *work)
{
	work->hash[0] = bpf_be64_to_cpu(work->header.key_hash[0]);
	work->hash[1] = bpf_be64_to_cpu(work->header.key_hash[1]) ^
			hash_salt(bpf_ntohl(work->header.tenant));
}

/*
 * What the packet's tenant says, into `work`; NULL if nobody knows the tenant. `right`: whether the tag is; it says
 * which of two secrets a packet is signed with, also where it was checked before.
 */
INLINE struct tenant *take_tenant(struct work *work, bool *right, __u32 *flags)
{
	__u32 id = bpf_ntohl(work->header.tenant);
	struct tenant *tenant = bpf_map_lookup_elem(&tenants, &id);
	if (!tenant)
		return NULL;
	work->base = tenant->discipline * PROGRAMS_PER_DISCIPLINE;
	take_hash(work);
	if (tenant->discipline != NO_DISCIPLINE)
		touch_bucket(work);
	struct tenant *signer = signer_of(work, tenant);
	*right = signer && tag_is_right(work, signer);
	*flags = work->flags = tenant->flags;
	work->parameter[0] = tenant->parameter_0;
	work->parameter[1] = tenant->parameter_1;
	work->place = tenant->flags >> TENANT_PLACE_SHIFT & (MAX_TENANTS - 1);
	barrier();
	/* Changed by the agent just now: nothing of it counts. */
	return READ_ONCE(tenant->id) == id ? tenant : NULL;
}

/*
 * CONTINUE if the packet may use the tables. Otherwise it is forwarded as it is: what a store thinks of it is the
 * store's affair, and no cache is touched on its behalf.
 */
INLINE int admit(struct xdp_md *ctx, struct work *work)
{
	bool right = false;
	__u32 flags = 0;
	struct tenant *tenant = take_tenant(work, &right, &flags);
	if (!tenant) {
		count(COUNT_bypass_unknown_tenant);
		return forward(ctx, work);
	}
	if (!right) {
		count(COUNT_bypass_bad_tag);
		return forward(ctx, work);
	}
	work->round = 0;
	work->now_ns = clock_ns(&work->clock);
	if (op_is_client_request(work->op)) {
		if (!within_rate(tenant, work->now_ns, 1))
			return over_rate(ctx, work, flags);
		if ((flags & TENANT_MEASURED) && is_sampled(work))
			count_traffic(ctx, work);
	}
	return CONTINUE;
}

/* Likewise for what stores say about whosever keys: only the system's secret counts. False: it is not signed so. */
INLINE bool admit_system(struct work *work)
{
	__u32 id = TENANT_SYSTEM;
	struct tenant *system = bpf_map_lookup_elem(&tenants, &id);
	bool right = system && tag_is_right(work, system);
	barrier();
	if (!right || READ_ONCE(system->id) != id)
		return false;
	work->round = 0;
	work->now_ns = clock_ns(&work->clock);
	take_hash(work);
	return true;
}

/* Likewise for a packet that comes back: neither its tag nor its tenant's rate decide. */
INLINE int admit_again(struct xdp_md *ctx, struct work *work)
{
	bool right = false;
	__u32 flags = 0;
	if (!take_tenant(work, &right, &flags)) {
		count(COUNT_bypass_unknown_tenant);
		return forward(ctx, work);
	}
	work->round = round_of(ctx);
	work->now_ns = clock_ns(&work->clock);
	return CONTINUE;
}
