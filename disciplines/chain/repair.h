/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What was lost between members: asked for, and sent again; and what goes round at one. */
#pragma once

#include "pass.h"
#include "tell.h"

/* A version as it goes to the next member. */
struct sent {
	struct seen_version {
		__u64 client;
		__u64 request;
		__u64 session;
		__u64 accepted;
		__u64 clean;
		__u64 last;
		__u16 len;
		__u16 sum;
		__u8 flags;
	} is;
	struct item *item;
	struct record *record;
	__u32 item_seq;
	__u8 jump;
};

/*
 * Reads it from the ring; false: it is not there, or is being changed. `seq` may move on to what is
 * not copied by agents.
 */
INLINE bool read_version(const struct here *here, struct sent *sent, __u64 *seq)
{
	struct record *record = sent->record;
	sent->item_seq = READ_ONCE(sent->item->seq);
	barrier();
	if (fills(&here->is) && *seq <= boundary_of(&here->is, record))
		*seq = boundary_of(&here->is, record) + 1;
	sent->jump = fills(&here->is) && *seq == record->mark_seq;
	const struct version *version = version_at(record, *seq);
	sent->is.client = version->client;
	sent->is.request = version->request;
	sent->is.session = version->session;
	sent->is.accepted = version->accepted;
	sent->is.len = version->len;
	sent->is.sum = version->sum;
	sent->is.flags = version->flags;
	sent->is.clean = record->clean;
	sent->is.last = record->last;
	bool is_there = version->seq == *seq && *seq <= record->last;
	barrier();
	return is_there && !(sent->item_seq & 1) && READ_ONCE(sent->item->seq) == sent->item_seq;
}

/*
 * Makes the packet the version's, from this member or from whom it came; with MORE the next
 * one follows.
 */
INLINE int send_version(struct xdp_md *ctx, struct work *work, const struct here *here,
			struct sent *sent, __u64 seq, __u32 flags)
{
	struct peer peer = {.kind = PASS};
	__u32 len = sent->is.len;
	__u32 payload_len = KV_HEADER_LEN + work->key_len + sizeof(peer) + len;
	if (!make_long(ctx, work, payload_len) ||
	    !give_value(ctx, sent->record, seq, behind_key(work) + sizeof(peer), len))
		return ends(COUNT_drop_refused, XDP_DROP);
	barrier();
	if (READ_ONCE(sent->item->seq) != sent->item_seq || !is_still(work, here))
		return ends(COUNT_drop_order_busy, XDP_DROP);
	bool more = (flags & MORE) && seq < sent->is.last;
	peer.flags = flags & (REPLY | AGAIN | ALSO);
	peer.flags |= (more ? MORE : 0) | (sent->jump ? JUMP : 0);
	peer.flags |= sent->is.flags & DELETED ? DELETE : 0;
	peer.session = bpf_cpu_to_be64(sent->is.session);
	peer.clean = bpf_cpu_to_be64(sent->is.clean);
	peer.accepted = bpf_cpu_to_be64(sent->is.accepted);
	peer.unused = value_of_peer(len, sent->is.sum);
	make_peer_header(work, here, seq);
	work->header.client = bpf_cpu_to_be64(sent->is.client);
	work->header.request = bpf_cpu_to_be64(sent->is.request);
	count(COUNT_order_stream);
	int verdict = send_peer(ctx, work, here, &peer, here->is.place + 1);
	return more ? round_too(work, verdict) : verdict;
}

/* The version of the header's number, with the flags that `carry` has. */
INLINE int take_stream(struct xdp_md *ctx, struct work *work, struct here *here)
{
	struct sent sent = {};
	__u64 seq = version_in(work);
	if (here->is.place == NOWHERE || is_tail(&here->is))
		return ends(COUNT_drop_order_stranger, XDP_DROP);
	if (is_held(work, here))
		return ends(COUNT_drop_order_held, XDP_DROP);
	if (!find_key(work, &sent.item, &sent.record) || !read_version(here, &sent, &seq))
		return ends(COUNT_drop_order_early, XDP_DROP);
	/* What a client sent again goes as its own write only. */
	if ((work->carry & REPLY) &&
	    (seq != version_in(work) || sent.is.client != bpf_be64_to_cpu(work->header.client) ||
	     sent.is.request != bpf_be64_to_cpu(work->header.request)))
		return ends(COUNT_drop_order_early, XDP_DROP);
	return send_version(ctx, work, here, &sent, seq, work->carry);
}

/*
 * The first version behind `after` that is here, or may be: what is before the first is committed.
 */
INLINE __u64 first_behind(struct record *record, __u64 after)
{
	if (has_version(record, after + 1) || record->clean <= after)
		return after + 1;
	return record->clean + 1;
}

/* The next member, or the tail in its place, lacks what comes after a version. */
INLINE int take_nack(struct xdp_md *ctx, struct work *work, struct here *here)
{
	struct item *item = NULL;
	struct record *record = NULL;
	if (here->is.place == NOWHERE || is_tail(&here->is))
		return ends(COUNT_drop_order_stranger, XDP_DROP);
	if (!is_as_sent(ctx, work))
		return ends(COUNT_drop_spoiled, XDP_DROP);
	if (!find_key(work, &item, &record))
		return ends(COUNT_drop_order_missing, XDP_DROP);
	if (is_held(work, here))
		return ends(COUNT_drop_order_held, XDP_DROP);
	__u64 after = version_in(work), last = READ_ONCE(record->last);
	__u64 first = first_behind(record, after);
	if (first <= last && has_version(record, first))
		return stream(ctx, work, first, MORE);
	if (!here->is.place)
		return ends(COUNT_drop_order_early, XDP_DROP);
	return send_nack(ctx, work, here, after < last ? after : last);
}

/* The place of that slot in the chain, or NOWHERE. */
INLINE __u32 place_of(struct work *work, const struct here *here, __u32 slot)
{
	__u32 place = NOWHERE;
	for (__u32 i = 0; i < CHAIN_MEMBERS; i++)
		if (i < here->is.len && slot_at(here, i) == slot)
			place = i;
	return blurred(work, place);
}

/* A tail that has not the key yet lets the member before it answer. */
INLINE int ask_predecessor(struct xdp_md *ctx, struct work *work, const struct here *here)
{
	struct peer peer = {.kind = ASK};
	return send_peer(ctx, work, here, &peer, here->is.place - 1);
}

/* An agent asks the tail whether what its switch has is committed. */
INLINE int take_ask(struct xdp_md *ctx, struct work *work, struct here *here)
{
	struct item *item = NULL;
	struct record *record = NULL;
	__u32 place = place_of(work, here, (bpf_ntohs(work->header.node) - 1) & (SLOTS - 1));
	if (here->is.place == NOWHERE || place == NOWHERE ||
	    !(is_tail(&here->is) || fills(&here->is)))
		return ends(COUNT_drop_order_stranger, XDP_DROP);
	if (!is_as_sent(ctx, work))
		return ends(COUNT_drop_spoiled, XDP_DROP);
	if (!find_key(work, &item, &record))
		return ends(COUNT_drop_order_missing, XDP_DROP);
	if (is_held(work, here))
		return ends(COUNT_drop_order_held, XDP_DROP);
	if (!try_lock(&item->seq))
		return ends(COUNT_drop_order_busy, XDP_DROP);
	bool is_ours = is_still(work, here);
	bool is_filled = !is_filling_tail(&here->is) || record->filled >= here->is.fill_number;
	if (is_ours && is_filled)
		commit_own(record, &here->is);
	__u64 clean = record->clean;
	unlock_item(item);
	if (!is_ours)
		return ends(COUNT_drop_order_busy, XDP_DROP);
	if (!is_filled)
		return ask_predecessor(ctx, work, here);
	if (is_tail(&here->is) && clean < version_in(work))
		return send_nack(ctx, work, here, clean);
	if (place == here->is.place)
		return ends(COUNT_consume, XDP_DROP);
	return send_ack(ctx, work, here, clean, place);
}

/* What went round at this member: its own packet, which becomes the next one. */
INLINE int take_round(struct xdp_md *ctx, struct work *work, struct here *here)
{
	__u32 node = bpf_ntohs(work->header.node);
	__u64 seq = version_in(work);
	if (here->is.place == NOWHERE)
		return ends(COUNT_round_gone, XDP_DROP);
	if (work->op == OP_CHAIN_READ_REPLY && node == TELL_PREDECESSOR)
		return send_nack(ctx, work, here, seq);
	if (work->op == OP_CHAIN_READ_REPLY && !(node & TELL_WATCHERS))
		return send_ack(ctx, work, here, seq, place_of(work, here, node - 1));
	/* After a write: the other members, then who watches. */
	if (work->op == OP_CHAIN_WRITE_REPLY && here->is.len > 1)
		return begin_ack(ctx, work, here, seq);
	return tell_watcher(ctx, work, here, work->op == OP_CHAIN_READ_REPLY ? node & 0xf : 0);
}
