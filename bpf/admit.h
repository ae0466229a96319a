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
	return !has_secret(work) || tag_anew(work) == work->header.tag;
}

/* Likewise, as a function of its own: while a secret is changed only. */
OUTLINE int is_signed_otherwise(struct work *work)
{
	return work && is_signed_so(work);
}

/*
 * Whether the tag is right, under the signer's secret or the one that is accepted as well;
 * `work->secret` is then the one that it was made with, and signs whatever becomes of the packet.
 */
INLINE bool tag_is_right(struct work *work, const struct known_tenant *signer)
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
	return is_signed_otherwise(work);
}

INLINE int over_rate(struct xdp_md *ctx, struct work *work)
{
	if (work->flags & TENANT_DROP_OVER_RATE)
		return ends(COUNT_drop_over_rate, XDP_DROP);
	count(COUNT_bypass_over_rate);
	return forward(ctx, work);
}

/*
 * Notes the tenant. False: nobody knows it, or it was changed by the agent just now, and nothing of
 * it counts.
 */
OUTLINE int learn_tenant(struct known_tenant *known, __u32 id, __u64 as_of)
{
	const struct tenant *tenant = bpf_map_lookup_elem(&tenants, &id);
	if (!known || !tenant)
		return false;
	known->as_of = 0;
	known->id = id;
	known->discipline = tenant->discipline;
	known->secret[0] = tenant->secret[0];
	known->secret[1] = tenant->secret[1];
	known->also_secret[0] = tenant->also_secret[0];
	known->also_secret[1] = tenant->also_secret[1];
	known->flags = tenant->flags;
	known->parameter[0] = tenant->parameter_0;
	known->parameter[1] = tenant->parameter_1;
	known->is_limited = tenant->ns_per_request != 0;
	barrier();
	if (READ_ONCE(tenant->id) != id)
		return false;
	known->as_of = as_of;
	return true;
}

/* Numbers that follow each other have places of their own. */
INLINE __u32 first_place(__u32 id)
{
	return id & (KNOWN_TENANTS - 1);
}

/*
 * Where a tenant is noted whose first place another has: of a thousand with numbers by chance four
 * in ten share theirs.
 */
INLINE __u32 second_place(__u32 id)
{
	return id * 0x9e3779b1U >> 21 & (KNOWN_TENANTS - 1);
}

/* What the switch knows of a tenant; NULL: nothing. */
INLINE const struct known_tenant *know_tenant(const struct config *config, __u32 id)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct known_tenants *all = bpf_map_lookup_elem(&known_tenants, &cpu);
	if (!all)
		return NULL;
	struct known_tenant *known = &all->place[first_place(id)];
	struct known_tenant *second = &all->place[second_place(id)];
	__u64 as_of = READ_ONCE(config->tenants_changed) + 1;
	if (known->id == id && known->as_of == as_of)
		return known;
	if (second->id == id && second->as_of == as_of)
		return second;
	if (known->as_of == as_of && second->as_of != as_of)
		known = second; /* who came first keeps the first place */
	barrier(); /* who has seen the count sees what was counted */
	return learn_tenant(known, id, as_of) ? known : NULL;
}

/*
 * Who signs what is said about this tenant's keys; NULL if the system's secret is needed and nobody
 * gave it.
 */
INLINE const struct known_tenant *signer_of(const struct config *config, const struct work *work,
					    const struct known_tenant *tenant)
{
	return op_is_system(work->op) ? know_tenant(config, TENANT_SYSTEM) : tenant;
}

INLINE void take_hash(struct work *work)
{
	work->hash[0] = bpf_be64_to_cpu(work->header.key_hash[0]);
	work->hash[1] = bpf_be64_to_cpu(work->header.key_hash[1]) ^
			hash_salt(bpf_ntohl(work->header.tenant));
}

/*
 * What the packet's tenant says, into `work`; NULL if nobody knows the tenant. `right`: whether the
 * tag is; it says which of two secrets a packet is signed with, also where it was checked before.
 */
INLINE const struct known_tenant *take_tenant(const struct config *config, struct work *work,
					      bool *right)
{
	const struct known_tenant *tenant = know_tenant(config, bpf_ntohl(work->header.tenant));
	if (!tenant)
		return NULL;
	work->base = tenant->discipline * PROGRAMS_PER_DISCIPLINE;
	take_hash(work);
	if (tenant->discipline != NO_DISCIPLINE)
		touch_bucket(work);
	work->flags = tenant->flags;
	work->parameter[0] = tenant->parameter[0];
	work->parameter[1] = tenant->parameter[1];
	work->place = tenant->flags >> TENANT_PLACE_SHIFT & (MAX_TENANTS - 1);
	const struct known_tenant *signer = signer_of(config, work, tenant);
	*right = signer && tag_is_right(work, signer);
	meanwhile();
	return tenant;
}

/*
 * CONTINUE if the packet may use the tables. Otherwise it is forwarded as it is: what a store
 * thinks of it is the store's affair, and no cache is touched on its behalf.
 */
INLINE int admit(struct xdp_md *ctx, struct work *work, const struct config *config)
{
	bool right = false;
	const struct known_tenant *tenant = take_tenant(config, work, &right);
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
		if (tenant->is_limited && !pays_for(work, 1))
			return over_rate(ctx, work);
		if ((work->flags & TENANT_MEASURED) && is_sampled(work))
			count_traffic(ctx, work);
	}
	return CONTINUE;
}

/*
 * Likewise for what stores say about whosever keys: only the system's secret counts. False: it is
 * not signed so.
 */
INLINE bool admit_system(struct work *work, const struct config *config)
{
	const struct known_tenant *system = know_tenant(config, TENANT_SYSTEM);
	if (!system || !tag_is_right(work, system))
		return false;
	work->round = 0;
	work->flags = 0; /* the packet before had others */
	work->now_ns = clock_ns(&work->clock);
	take_hash(work);
	return true;
}

/* Likewise for a packet that comes back: neither its tag nor its tenant's rate decide. */
INLINE int admit_again(struct xdp_md *ctx, struct work *work, const struct config *config)
{
	bool right = false;
	if (!take_tenant(config, work, &right)) {
		count(COUNT_bypass_unknown_tenant);
		return forward(ctx, work);
	}
	work->round = round_of(ctx);
	work->now_ns = clock_ns(&work->clock);
	return CONTINUE;
}
