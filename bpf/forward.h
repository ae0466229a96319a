/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * To the next hop by the kernel's own routes, so that any routing daemon works. Whatever the lookup
 * cannot answer goes to the kernel's stack, which knows the rest: resolving neighbours, ICMP
 * errors, fragments.
 */
#pragma once

#include "udp.h"

#define AF_INET 2
#define AF_INET6 10

/* An address as ::ffff:a.b.c.d. */
INLINE void mapped_ipv4(__u8 to[16], __be32 address)
{
	__builtin_memset(to, 0, 10);
	to[10] = to[11] = 0xff;
	__builtin_memcpy(to + 12, &address, 4);
}

/* Why the kernel is to send it. */
INLINE enum counter fib_failure(long code)
{
	switch (code) {
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		return COUNT_pass_no_neighbour;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return COUNT_pass_mtu;
	default:
		/* This host, no route, forwarding off, blackhole, tunnel: the kernel decides. */
		return COUNT_pass_local;
	}
}

INLINE enum counter ask_ipv4(struct xdp_md *ctx, struct work *work, struct bpf_fib_lookup *fib)
{
	struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
	if (!ip)
		return COUNT_pass_local;
	if (ip->ttl <= 1)
		return COUNT_pass_ttl;
	fib->family = AF_INET;
	fib->tos = ip->tos;
	fib->tot_len = bpf_ntohs(ip->tot_len);
	fib->ipv4_src = ip->saddr;
	fib->ipv4_dst = ip->daddr;
	return NOTHING;
}

INLINE enum counter ask_ipv6(struct xdp_md *ctx, struct work *work, struct bpf_fib_lookup *fib)
{
	struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
	if (!ip)
		return COUNT_pass_local;
	if (ip->hop_limit <= 1)
		return COUNT_pass_ttl;
	fib->family = AF_INET6;
	fib->flowinfo = *(__be32 *)ip & bpf_htonl(0x0fffffff);
	fib->tot_len = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	__builtin_memcpy(fib->ipv6_src, &ip->saddr, 16);
	__builtin_memcpy(fib->ipv6_dst, &ip->daddr, 16);
	return NOTHING;
}

INLINE void step_hop_limit(struct xdp_md *ctx, struct work *work)
{
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (ip)
			ip->hop_limit--;
		return;
	}
	struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
	if (!ip)
		return;
	ip->ttl--;
	__u32 check = ip->check + bpf_htons(0x0100); /* one less in the high byte of its word */
	ip->check = check + (check >= 0xffff);
}

/* COUNT_forward: it is one for the next hop now. Otherwise why it is left to the kernel. */
INLINE enum counter send_on(struct xdp_md *ctx, struct work *work)
{
	if (work->is_vlan)
		return COUNT_pass_vlan;
	struct bpf_fib_lookup fib = {
		.l4_protocol = IPPROTO_UDP,
		.ifindex = ctx->ingress_ifindex,
	};
	enum counter why = work->is_ipv6 ? ask_ipv6(ctx, work, &fib) : ask_ipv4(ctx, work, &fib);
	if (why != NOTHING)
		return why;
	long code = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	if (code != BPF_FIB_LKUP_RET_SUCCESS)
		return fib_failure(code);
	struct ethhdr *eth = eth_of(ctx);
	if (!eth)
		return COUNT_pass_local;
	/* Looks the port up; the packet must not have changed yet where there is none. */
	if (bpf_redirect_map(&ports, fib.ifindex, XDP_PASS) != XDP_REDIRECT)
		return COUNT_pass_no_port;
	__builtin_memcpy(eth->h_dest, fib.dmac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, fib.smac, ETH_ALEN);
	step_hop_limit(ctx, work);
	work->out = fib.ifindex;
	return COUNT_forward;
}

/* Counts what `send_on` said, and is the verdict. */
INLINE int sent_on(enum counter how)
{
	return ends(how, how == COUNT_forward ? XDP_REDIRECT : XDP_PASS);
}

INLINE int forward_here(struct xdp_md *ctx, struct work *work)
{
	return sent_on(send_on(ctx, work));
}

/*
 * Likewise where it is not worth its place: a call costs what a cold line does where returns
 * are guarded.
 */
WHOLE int forward(struct xdp_md *ctx, struct work *work)
{
	return work ? forward_here(ctx, work) : XDP_PASS;
}

/* Writes `work->header` over the packet's, signed again. */
INLINE bool rewrite_header(struct xdp_md *ctx, struct work *work)
{
	struct udphdr *udp = header_at(ctx, work->l4, struct udphdr);
	struct kv_header *kv = header_at(ctx, work->kv, struct kv_header);
	if (!udp || !kv)
		return false;
	carry_checksum(ctx, work, udp, kv);
	*kv = work->header;
	return true;
}
