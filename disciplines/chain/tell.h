/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Clients that watch a key are told of its writes. */
#pragma once

#include "read.h"

/* Sends it to that client; its source is this switch already. */
WHOLE int address_to_client(struct xdp_md *ctx, const struct work *work, const struct watch *to)
{
	struct udphdr *udp = work ? header_at(ctx, work->l4, struct udphdr) : NULL;
	if (!udp || !to)
		return false;
	udp->dest = to->port;
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (!ip)
			return false;
		__builtin_memcpy(&ip->daddr, to->address, 16);
		ip->hop_limit = PROTOCOL_HOPS;
		return true;
	}
	struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
	if (!ip)
		return false;
	__builtin_memcpy(&ip->daddr, to->address, 4);
	ip->ttl = PROTOCOL_HOPS;
	return true;
}

/* In `node` of what a watcher is told, over the place of the next one. */
#define TELL_WATCHERS 0x40

/*
 * Makes the packet, which went round, the answer that the watcher from that place on is told; and
 * round for the one after it. Each counts as a request of the tenant: whoever may write little must
 * not have a switch send much. Who is not told finds out when it asks.
 */
INLINE int tell_watcher(struct xdp_md *ctx, struct work *work, struct here *here, __u32 from)
{
	struct watch_set *set = watches_of(work);
	struct watch watch = {};
	struct spot spot = {};
	struct seen seen = {};
	__u32 behind = set ? next_watch(work, set, from, &watch) : 0;
	if (!behind || !is_tail(&here->is) || is_held(work, here) ||
	    !find_key(work, &spot.item, &spot.record) ||
	    !see(spot.item, spot.record, &seen, work->now_ns))
		return ends(COUNT_consume, XDP_DROP);
	if (!pays_for(work, 1))
		return ends(COUNT_drop_order_untold, XDP_DROP);
	work->header.client = watch.client;
	work->header.request = watch.request;
	if (!sign_as(work, watch.tenant, watch.is_also))
		return ends(COUNT_drop_refused, XDP_DROP);
	int status = copy_seen(ctx, work, spot.item, spot.record, &seen);
	if ((status && status != STATUS_NOT_FOUND) || !is_still(work, here))
		return ends(COUNT_drop_order_busy, XDP_DROP);
	make_header(work, here, OP_CHAIN_READ_REPLY, FLAG_CACHED | status, seen.last);
	work->header.node = bpf_htons(TELL_WATCHERS | behind);
	if (!address_to_client(ctx, work, &watch) ||
	    !finish(ctx, work, status ? 0 : seen.len, status ? 0 : seen.sum))
		return ends(COUNT_drop_refused, XDP_DROP);
	count(COUNT_order_watch);
	int verdict = send_off(ctx, work);
	return is_watched(work, behind) ? round_too(work, verdict) : verdict;
}
