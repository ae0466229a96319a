/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A request is turned into its reply where it stands, and leaves through the interface it came in
 * by. Room for the value: the request's own padding, else the tail, else the head room (the front
 * of the packet moves back), else there is none and the store answers.
 */
#pragma once

#include "forward.h"
#include "siphash.h"

/* Moves everything before the value `by` bytes towards the head room. */
INLINE bool grow_at_head(struct xdp_md *ctx, struct work *work, __u32 by)
{
	__u32 front = work->kv + KV_HEADER_LEN + work->key_len;
	front = ((front - 1) & 0x1ff) + 1;
	if (bpf_xdp_load_bytes(ctx, 0, work->scratch, front) < 0)
		return false;
	if (bpf_xdp_adjust_head(ctx, -(int)by) < 0)
		return false;
	lose_place_of_sum(work);
	return bpf_xdp_store_bytes(ctx, 0, work->scratch, front) == 0;
}

/* Whether the switch's links carry a frame that is longer than the one that came. */
INLINE bool is_carried(__u32 frame_bytes)
{
	struct config *config = get_config();
	if (!config)
		return false;
	__u64 most = READ_ONCE(config->frame_most);
	return !most || frame_bytes <= most;
}

/*
 * Makes the frame at least `payload_len` long behind the UDP header. A tenant without a secret
 * could be anybody, so its replies are never larger than its requests: nobody is amplified.
 */
INLINE bool make_room(struct xdp_md *ctx, struct work *work, __u32 payload_len)
{
	if (payload_len <= work->payload_len)
		return true;
	if (!has_secret(work))
		return false;
	__u32 have = frame_len(ctx), need = work->kv + payload_len;
	if (need <= have)
		return true;
	if (!is_carried(need))
		return false;
	if (bpf_xdp_adjust_tail(ctx, need - have) == 0)
		return true;
	return grow_at_head(ctx, work, need - have);
}

/*
 * Zeros over `len` bytes behind the key: a value was copied there that must not be sent. The
 * request's padding is zeros, so the checksum it came with is right again.
 */
OUTLINE int restore_padding(struct xdp_md *ctx, struct work *work, __u32 len)
{
	if (!work)
		return 0;
	__u32 at = work->kv + KV_HEADER_LEN + work->key_len;
	__builtin_memset(work->scratch, 0, sizeof(work->scratch));
	for (int i = 0; i < 3 && len; i++) {
		__u32 part = len < sizeof(work->scratch) ? len : sizeof(work->scratch);
		part = ((part - 1) & 0x1ff) + 1; /* 1..512, as the verifier sees it */
		bpf_xdp_store_bytes(ctx, at, work->scratch, part);
		at += part;
		len -= part;
	}
	return 0;
}

INLINE void swap_macs(struct ethhdr *eth)
{
	__u8 mac[ETH_ALEN];
	__builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, mac, ETH_ALEN);
}

#define REPLY_HOP_LIMIT 64

INLINE void turn_ipv4(struct iphdr *ip)
{
	__be32 source = ip->daddr;
	ip->daddr = ip->saddr;
	ip->saddr = source;
	ip->ttl = REPLY_HOP_LIMIT;
}

INLINE void turn_ipv6(struct ipv6hdr *ip)
{
	struct in6_addr source = ip->daddr;
	ip->daddr = ip->saddr;
	ip->saddr = source;
	ip->hop_limit = REPLY_HOP_LIMIT;
}

/*
 * Ends the frame behind `len` bytes. One whose first buffer ends there counts as no longer: buffers
 * are filled in order, and none is as small as a datagram of ours. If one were, its sender would
 * get back what it sent behind the datagram, and nobody else.
 */
INLINE void cut_frame(struct xdp_md *ctx, __u32 len)
{
	if (ctx->data_end - ctx->data == len)
		return;
	__u32 have = frame_len(ctx);
	if (have > len)
		bpf_xdp_adjust_tail(ctx, (int)len - (int)have);
}

/* What becomes of a packet's addresses when it is written over. */
enum heading {
	ONWARDS, /* they stay */
	TURNED, /* those of IP and UDP are swapped: `forward` finds the way */
	TURNED_BACK, /* those of Ethernet too: it leaves by where it came in */
};

/*
 * Writes `work->header` (signed here) over the old header, and the lengths and checksums that go
 * with it; cut to `payload_len`. `value_sum` is that of the value behind the key, as `sum_of` has
 * it. `counted`: the checksum is the request's, counted on (`answer_checksum`), if that has one;
 * else it is made anew, of what is known to have arrived whole. False where there are no such
 * headers.
 */
INLINE bool write_over(struct xdp_md *ctx, struct work *work, __u32 payload_len, __u32 value_sum,
		       const enum heading heading, const bool counted)
{
	__u16 check = 0, udp_len = sizeof(struct udphdr) + payload_len;
	struct ethhdr *eth = eth_of(ctx);
	struct udphdr *udp = header_at(ctx, work->l4, struct udphdr);
	struct kv_header *kv = header_at(ctx, work->kv, struct kv_header);
	if (!eth || !udp || !kv)
		return false;
	sign(work);
	if (counted)
		check = answer_checksum(ctx, work, udp, kv, bpf_htons(udp_len), value_sum);
	*kv = work->header;
	if (heading == TURNED_BACK)
		swap_macs(eth);
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (!ip)
			return false;
		if (heading != ONWARDS)
			turn_ipv6(ip);
		ip->payload_len = bpf_htons(udp_len);
	} else {
		struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
		if (!ip)
			return false;
		if (heading != ONWARDS)
			turn_ipv4(ip);
		ip->tot_len = bpf_htons(sizeof(*ip) + udp_len);
		ipv4_checksum(ip);
	}
	if (heading != ONWARDS) {
		__be16 port = udp->dest;
		udp->dest = udp->source;
		udp->source = port;
	}
	udp->len = bpf_htons(udp_len);
	if (check)
		udp->check = check;
	else if (!write_checksum(ctx, work, udp, value_sum))
		return false;
	cut_frame(ctx, work->kv + payload_len);
	return true;
}

/* Likewise, with a checksum that is made anew. */
INLINE bool rewrite_packet(struct xdp_md *ctx, struct work *work, __u32 payload_len,
			   __u32 value_sum, const enum heading heading)
{
	return write_over(ctx, work, payload_len, value_sum, heading, false);
}

/*
 * Sends a read back as its answer. What flipped in the read on its way shows at the client: nothing
 * of it but the header's tag, where there is one, was looked at.
 */
INLINE int answer_read(struct xdp_md *ctx, struct work *work, __u32 payload_len, __u32 value_sum)
{
	return write_over(ctx, work, payload_len, value_sum, TURNED_BACK, true) ? XDP_TX : XDP_DROP;
}

/* Sends the packet back to where it came from. */
INLINE int send_back(struct xdp_md *ctx, struct work *work, __u32 payload_len, __u32 value_sum)
{
	return rewrite_packet(ctx, work, payload_len, value_sum, TURNED_BACK) ? XDP_TX : XDP_DROP;
}

/* A reply without a value, in the place of a request that may have been longer. */
INLINE int send_back_bare(struct xdp_md *ctx, struct work *work)
{
	work->header.value_len = 0;
	return send_back(ctx, work, KV_HEADER_LEN + work->key_len, 0);
}
