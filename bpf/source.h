/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is forwarded here never meets the kernel's own check of source addresses (rp_filter), nor
 * its filters. So the switch can be told to look itself (docs/security.md).
 */
#pragma once

#include "forward.h"

/* In `source_check` of the configuration. 0: sources are not looked at. */
#define SOURCE_LOOSE 1 /* some route must lead to the source */
#define SOURCE_STRICT 2 /* by the interface that the packet came in by */

/* Asks for the way of a reply. */
INLINE bool way_back(struct xdp_md *ctx, const struct work *work, struct bpf_fib_lookup *fib)
{
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (!ip)
			return false;
		fib->family = AF_INET6;
		__builtin_memcpy(fib->ipv6_src, &ip->daddr, 16);
		__builtin_memcpy(fib->ipv6_dst, &ip->saddr, 16);
		return true;
	}
	struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
	if (!ip)
		return false;
	fib->family = AF_INET;
	fib->ipv4_src = ip->daddr;
	fib->ipv4_dst = ip->saddr;
	return true;
}

/*
 * CONTINUE for a packet whose source may be what it says; the kernel judges what cannot be looked
 * up here.
 */
OUTLINE int check_source(struct xdp_md *ctx, struct work *work, __u32 how)
{
	if (!work)
		return XDP_PASS;
	if (work->is_vlan)
		return ends(COUNT_pass_vlan, XDP_PASS);
	struct bpf_fib_lookup fib = {
		.l4_protocol = IPPROTO_UDP,
		.ifindex = ctx->ingress_ifindex,
	};
	if (!way_back(ctx, work, &fib))
		return ends(COUNT_pass_local, XDP_PASS);
	long code = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	switch (code) {
	case BPF_FIB_LKUP_RET_NO_NEIGH: /* a way all the same */
		if (!fib.ifindex)
			return ends(COUNT_pass_no_neighbour, XDP_PASS);
		__attribute__((fallthrough));
	case BPF_FIB_LKUP_RET_SUCCESS:
		if (how != SOURCE_STRICT || fib.ifindex == ctx->ingress_ifindex)
			return CONTINUE;
		return ends(COUNT_drop_source, XDP_DROP);
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
	case BPF_FIB_LKUP_RET_UNSUPP_LWT:
		return ends(COUNT_pass_local, XDP_PASS);
	default: /* an address of this host, of nobody, or behind a route that refuses */
		return ends(COUNT_drop_source, XDP_DROP);
	}
}
