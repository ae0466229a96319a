/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the last member does with a write that all have: the client is answered, and the others are
 * told, one packet becoming the next.
 */
#pragma once

#include "watch.h"

/* The port that the packet leaves by, with the one that it goes round by. */
INLINE int round_too(const struct work *work, int verdict)
{
	const void *pair = verdict == XDP_REDIRECT
				   ? find_pair(work->out, round_for_truth(work->hash[0]))
				   : NULL;
	return pair ? ends(COUNT_order_round, clone_to(pair)) : verdict;
}

/*
 * Whether others are told of this version: all of them, one by the other, or the head of all
 * versions but some.
 */
INLINE bool is_told(const struct here *here, __u64 seq, __u64 versions, __u32 flags)
{
	if (here->is.len < 2)
		return false;
	if (flags & AGAIN)
		return true;
	if (flags & HEARD)
		return false;
	return here->view->protocol == NETCRAQ || versions < 4 || !(seq & (versions / 2 - 1));
}

/* With a place: whoever watches is told next. */
#define THEN_WATCHERS 0x100

/* Makes the packet word to the member at that place, who hands it on to the one before it. */
OUTLINE int send_ack(struct xdp_md *ctx, struct work *work, const struct here *here, __u64 seq,
		     __u32 place_and_then)
{
	__u32 place = place_and_then & (THEN_WATCHERS - 1);
	if (!work || !here || place + 1 >= here->is.len)
		return ends(COUNT_consume, XDP_DROP);
	bool more = (place_and_then & THEN_WATCHERS) && is_watched(work, 0);
	make_header(work, here, OP_CHAIN_ACK, 0, seq);
	work->header.node = bpf_htons(slot_at(here, place) + 1);
	if (!sign_as_system(work) || !address_to(ctx, work, here, slot_at(here, place), true) ||
	    !finish(ctx, work, 0, 0))
		return ends(COUNT_drop_refused, XDP_DROP);
	int verdict = send_off(ctx, work);
	return more ? round_too(work, verdict) : verdict;
}

/* The tail's: to the member before it, or, of NetChain, to the head, which alone has to know. */
INLINE int begin_ack(struct xdp_md *ctx, struct work *work, const struct here *here, __u64 seq)
{
	__u32 place = here->view->protocol == NETCRAQ ? here->is.len - 2 : 0;
	return send_ack(ctx, work, here, seq, place | THEN_WATCHERS);
}

/* Answers the client of a write that this packet passes on, from this member. */
INLINE bool make_reply(struct xdp_md *ctx, struct work *work, const struct here *here, __u32 status,
		       __u64 version, __u32 also)
{
	make_header(work, here, OP_CHAIN_WRITE_REPLY, FLAG_CACHED | status, version);
	return sign_as(work, bpf_ntohl(work->header.tenant), also) && finish_back(ctx, work, 0, 0);
}

/* A version is committed: `flags` are the message's, `versions` the ring's. */
OUTLINE int commit(struct xdp_md *ctx, struct work *work, const struct here *here, __u64 seq,
		   __u32 flags_and_versions)
{
	if (!work || !here)
		return XDP_DROP;
	__u32 flags = flags_and_versions & 0xff, versions = flags_and_versions >> 8;
	bool is_said = is_told(here, seq, versions, flags);
	if (!(flags & REPLY))
		return is_said ? begin_ack(ctx, work, here, seq) : ends(COUNT_consume, XDP_DROP);
	if (!make_reply(ctx, work, here, 0, seq, flags & ALSO))
		return ends(COUNT_drop_refused, XDP_DROP);
	int verdict = send_off(ctx, work);
	return is_said || is_watched(work, 0) ? round_too(work, verdict) : verdict;
}
