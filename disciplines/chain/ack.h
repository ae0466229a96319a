/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * That a version is committed: the tail's word, which each member hands on to the one before it; or
 * its answer to the client, where that passes a member by. Where answers to a client pass all
 * members, nothing else is said.
 */
#pragma once

#include "pass.h"

/* Notes with the version's client under which number answers to it pass here; 0: they do not. */
INLINE void note_way(struct work *work, __u64 client, __u64 hash, __u64 number)
{
	struct item *item = NULL;
	struct session *session = NULL;
	__be64 was = work->header.client;
	work->header.client = bpf_cpu_to_be64(client);
	if (find_session(work, hash, &item, &session))
		WRITE_ONCE(session->heard, number);
	work->header.client = was;
}

/*
 * The packet's version is committed; `by_answer`: as its client is told. COUNT_order_ack, or why
 * that is not noted.
 */
INLINE enum counter note_committed(struct work *work, struct here *here, bool by_answer)
{
	struct item *item = NULL;
	struct record *record = NULL;
	__u64 seq = version_in(work);
	if (is_held(work, here))
		return COUNT_drop_order_held;
	if (!find_key(work, &item, &record))
		return COUNT_drop_order_missing;
	if (seq <= READ_ONCE(record->clean))
		return COUNT_order_ack;
	if (!try_lock(&item->seq))
		return COUNT_drop_order_busy;
	const struct version *version = version_at(record, seq);
	__u64 client = version->client, hash = version->session;
	bool counts = is_still(work, here) && seq <= record->last;
	bool moves = counts && seq > record->clean;
	bool is_news = moves && version->seq == seq && !(version->flags & ANSWERED_BY) == by_answer;
	if (moves) {
		record->clean = seq;
		record->since = dirty_now(work);
	}
	unlock_item(item);
	if (is_news)
		note_way(work, client, hash, by_answer ? here->is.number : 0);
	return counts ? COUNT_order_ack : COUNT_drop_order_early;
}

/* The tail says that a version is committed: so it is here, and for the member before this one. */
INLINE int take_ack(struct xdp_md *ctx, struct work *work, struct here *here)
{
	if (here->is.place == NOWHERE || bpf_ntohs(work->header.node) != own_slot(here) + 1)
		return ends(COUNT_drop_order_stranger, XDP_DROP);
	if (!is_as_sent(ctx, work))
		return ends(COUNT_drop_spoiled, XDP_DROP);
	enum counter noted = note_committed(work, here, false);
	if (!here->is.place || here->view->protocol != NETCRAQ || noted == COUNT_drop_order_held)
		return ends(noted, XDP_DROP);
	/* Whoever is before this one may have what this one has not. */
	if (noted == COUNT_order_ack)
		count(noted);
	return send_ack(ctx, work, here, version_in(work), here->is.place - 1);
}

/* The tail's answer to a write passes by, and goes on as it came. */
INLINE int take_answer(struct xdp_md *ctx, struct work *work, struct here *here)
{
	if (here->is.place != NOWHERE && !is_tail(&here->is) &&
	    number_in(work) == here->is.number && !(work->header.flags & STATUS_MASK) &&
	    names_member(ctx, work, member_in(here, slot_at(here, here->is.len - 1)), true) &&
	    is_as_sent(ctx, work) && note_committed(work, here, true) == COUNT_order_ack)
		count(COUNT_order_ack);
	return send_off(ctx, work);
}
