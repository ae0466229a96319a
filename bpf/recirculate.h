/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The recirculation port: a pair of virtual links, what goes out by the one comes in by the other.
 * Between the two nobody needs Ethernet addresses, so the source's place holds how often the packet
 * went round: no discipline can lose count by accident, and what it does to the rest of the packet
 * does not matter.
 */
#pragma once

#include "forward.h"

/*
 * The far end's address: what a program there passes to the kernel is taken as addressed to
 * this host.
 */
#define RECIRCULATION_MAC 0x02, 0x73, 0x68, 0x6f, 0x72, 0x74
/* The step of its discipline that a packet comes back to. */
#define RECIRCULATED_STEP 1
/*
 * How many recirculation ports a discipline may tell apart; where there are fewer, several numbers
 * lead to one.
 */
#define RECIRCULATION_PORTS 4
/*
 * What is the only copy of something, and words about it, goes by the first two numbers; what a
 * store has too, or the next read brings again, by the others: where there is a port for each, what
 * many copies lose they lose among themselves.
 */
INLINE __u32 round_for_truth(__u32 spread)
{
	return spread & 1;
}

INLINE __u32 round_for_copies(__u32 spread)
{
	return 2 | (spread & 1);
}

/* Ports that a packet can be cloned to, each beside any of the recirculation ports. */
#define CLONED_PORTS 256

struct clone_key {
	__u32 port; /* interface index */
	__u32 round; /* number of the recirculation port */
};

/* How often the packet went round; 0 unless it is on the port. */
INLINE __u32 round_of(struct xdp_md *ctx)
{
	struct ethhdr *eth = eth_of(ctx);
	__be32 round = 0;
	if (eth)
		__builtin_memcpy(&round, eth->h_source + 2, sizeof(round));
	return bpf_ntohl(round);
}

/*
 * Addresses the packet to the far end, as the kernel wants what is left to it there; a clone has
 * the address of wherever its twin went. NULL where there is no Ethernet header.
 */
INLINE struct ethhdr *address_to_far_end(struct xdp_md *ctx)
{
	static const __u8 to[ETH_ALEN] = {RECIRCULATION_MAC};
	struct ethhdr *eth = eth_of(ctx);
	if (eth)
		__builtin_memcpy(eth->h_dest, to, ETH_ALEN);
	return eth;
}

/* Makes the packet one that has gone `round` times. False where there is no Ethernet header. */
INLINE bool write_round(struct xdp_md *ctx, __u32 round)
{
	struct ethhdr *eth = address_to_far_end(ctx);
	__be32 number = bpf_htonl(round);
	if (!eth)
		return false;
	eth->h_source[0] = 2; /* locally administered */
	eth->h_source[1] = 0;
	__builtin_memcpy(eth->h_source + 2, &number, sizeof(number));
	return true;
}
