/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Answers to clients, in the place of their requests. */
#pragma once

#include "packet.h"

INLINE __u8 op_of_answer(const struct work *work)
{
	return work->op == OP_CHAIN_READ ? OP_CHAIN_READ_REPLY : OP_CHAIN_WRITE_REPLY;
}

/* Without a value. */
OUTLINE int answer_bare(struct xdp_md *ctx, struct work *work, const struct here *here,
			__u32 status, __u64 version)
{
	if (!work || !here)
		return XDP_DROP;
	/* What another switch sent here does not leave by where it came in. */
	bool was_sent_on = work->op == OP_CHAIN_READ && work->header.node;
	make_header(work, here, op_of_answer(work), FLAG_CACHED | status, version);
	if (!finish_back(ctx, work, 0, 0))
		return ends(COUNT_drop_refused, XDP_DROP);
	return was_sent_on ? send_off(ctx, work) : send_here(ctx);
}

INLINE int try_again(struct xdp_md *ctx, struct work *work, const struct here *here,
		     enum counter why)
{
	count(why);
	return answer_bare(ctx, work, here, STATUS_TRY_AGAIN, 0);
}

/* Where to ask: crates/wire/src/chain.rs. */
struct route {
	__be64 number;
	__u8 protocol;
	__u8 len;
	__u8 place;
	__u8 family;
	__be16 part;
	__be16 parts;
	__be32 address[CHAIN_MEMBERS][4];
};
#define ROUTE_HEAD 16
_Static_assert(offsetof(struct route, address) == ROUTE_HEAD, "no padding");

INLINE void write_route(const struct here *here, struct route *route)
{
	route->number = bpf_cpu_to_be64(here->is.number);
	route->protocol = here->view->protocol;
	route->len = here->is.len;
	route->place = here->is.place;
	route->family = here->view->flags & VIEW_IPV6 ? 6 : 4;
	route->part = bpf_htons(here->part);
	route->parts = bpf_htons(here->view->chains);
	for (__u32 i = 0; i < CHAIN_MEMBERS; i++) {
		const struct member *member = member_in(here, slot_at(here, i));
		__builtin_memcpy(route->address[i], member->address, 16);
	}
}

/* The request was for another arrangement, or for another switch: says which is in force. */
OUTLINE int moved(struct xdp_md *ctx, struct work *work, const struct here *here)
{
	if (!work || !here)
		return XDP_DROP;
	struct route *route = (struct route *)work->scratch;
	__u32 len = ROUTE_HEAD + (here->is.len & 0xf) * 16;
	__u32 at = behind_key(work);
	bool was_sent_on = work->op == OP_CHAIN_READ && work->header.node;
	count(COUNT_order_moved);
	if (!make_room(ctx, work, KV_HEADER_LEN + work->key_len + len)) {
		work->header.total = bpf_htonl(len);
		__be32 total = work->header.total;
		make_header(work, here, op_of_answer(work), FLAG_CACHED | STATUS_NEED_PADDING, 0);
		work->header.total = total;
		if (!finish_back(ctx, work, 0, 0))
			return ends(COUNT_drop_refused, XDP_DROP);
		return send_here(ctx);
	}
	write_route(here, route);
	__u32 sum = sum_of_scratch(work, len);
	len = ((len - 1) & 0xff) + 1; /* as the verifier sees it */
	make_header(work, here, op_of_answer(work), FLAG_CACHED | STATUS_MOVED, 0);
	if (bpf_xdp_store_bytes(ctx, at, work->scratch, len) < 0 ||
	    !finish_back(ctx, work, len, sum))
		return ends(COUNT_drop_refused, XDP_DROP);
	return was_sent_on ? send_off(ctx, work) : send_here(ctx);
}
