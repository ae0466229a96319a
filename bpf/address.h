/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames for somebody else, which a port in promiscuous mode sees, or a network that does not know
 * yet where its receiver is. The kernel drops them after XDP; a program that answered one would
 * teach the network that its receiver is here.
 */
#pragma once

#include "parse.h"

#define PORT_PLACES 1024

/* An interface's hardware address, in the order of the frame in its low 48 bits. */
struct port_address {
	__u64 mac;
	__u32 ifindex; /* 0: nobody's place */
	__u32 unused;
};

/*
 * key: interface index, modulo PORT_PLACES. Written by the agent; of two interfaces in one place
 * the first is unknown here.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORT_PLACES);
	__type(key, __u32);
	__type(value, struct port_address);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} port_addresses SEC(".maps");

/*
 * False: the frame is for another receiver than the interface that it came in by. What is not known
 * here is taken as it comes.
 */
INLINE bool is_for_this_port(struct xdp_md *ctx)
{
	__u32 ifindex = ctx->ingress_ifindex, place = ifindex & (PORT_PLACES - 1);
	const struct port_address *port = bpf_map_lookup_elem(&port_addresses, &place);
	const struct ethhdr *eth = eth_of(ctx);
	if (unlikely(!port || !eth || port->ifindex != ifindex))
		return true;
	/*
	 * Words of the frame at once: the struct is packed, and so they would be read byte by byte.
	 */
	__u64 mac = *(const __u32 *)eth | (__u64) * ((const __u16 *)eth + 2) << 32;
	return mac == port->mac;
}
