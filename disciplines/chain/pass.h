/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A write on its way down the chain. */
#pragma once

#include "write.h"

#define ROUNDS 4 /* that a version waits for the one before it */

/* A message between members, and what is here of what it is about. */
struct message {
	struct peer peer;
	struct write write;
	__u64 boundary; /* newest version that the filling tail is copied */
	__u64 mark_seq; /* first that it is passed */
};

enum pass_outcome { APPLIED, WAS_APPLIED, IS_EARLY, IS_UNFILLED, IS_BUSY };

/* Whether the packet comes from the member before this one. */
INLINE bool is_from_predecessor(const struct work *work, const struct here *here)
{
	return here->is.place && here->is.place < CHAIN_MEMBERS &&
	       bpf_ntohs(work->header.node) == slot_at(here, here->is.place - 1) + 1;
}

/* What the packet says, `message` to be zeros before. */
INLINE enum counter read_message(struct xdp_md *ctx, struct work *work, struct message *message)
{
	struct peer *peer = &message->peer;
	struct write *write = &message->write;
	if (!read_behind_key(ctx, work, peer, sizeof(*peer)))
		return COUNT_drop_refused;
	write->len = work->value_len - sizeof(*peer);
	write->at = behind_key(work) + sizeof(*peer);
	write->flags = peer->flags & DELETE;
	write->ask.session = peer->session;
	write->seq = version_in(work);
	write->accepted = bpf_be64_to_cpu(peer->accepted);
	__u64 before = sum_words(peer, sizeof(*peer) / 8);
	return value_sum(ctx, work, before, &write->sum) ? NOTHING : COUNT_drop_spoiled;
}

/*
 * Remembers the write with its client's others, unless a newer one has the place. What one that is
 * being filled noted of the same write may be of an earlier membership.
 */
INLINE void note_write(const struct work *work, struct session *session, const struct write *write,
		       __u8 refused, __u8 absent)
{
	struct note *note = note_of(work, session);
	__u64 request = bpf_be64_to_cpu(work->header.request);
	if (request > note->request || (request == note->request && is_filling_tail(&write->is)))
		write_note(note, request, write->seq, refused, absent, &write->is);
	session->seen = write->is.number;
}

/*
 * What is not filled here yet takes the first version that this tail has part in, no other; rule 9.
 * False: it is to be copied first.
 */
INLINE bool jump(struct record *record, const struct message *message)
{
	const struct write *write = &message->write;
	__u64 clean = bpf_be64_to_cpu(message->peer.clean);
	bool is_written = record->last != record->base || has_version(record, record->last);
	if (is_filling_tail(&write->is) && record->filled < write->is.fill_number) {
		if (!(message->peer.flags & JUMP))
			return false;
		record->last = record->clean = record->base = write->seq - 1;
		record->filled = write->is.fill_number;
	} else if (!is_written && clean > record->last && clean + 1 == write->seq) {
		/*
		 * Never written here. What was before is committed, and this one comes right
		 * behind it.
		 */
		record->last = record->clean = record->base = clean;
	}
	return true;
}

INLINE void count_diverged(struct record *record, const struct write *write)
{
	const struct version *version = version_at(record, write->seq);
	if (version->seq == write->seq && version->accepted != write->accepted)
		count(COUNT_order_diverged);
}

/* What those who send it on have to know. */
INLINE void settle(struct record *record, struct message *message)
{
	struct write *write = &message->write;
	commit_own(record, &write->is);
	message->boundary = boundary_of(&write->is, record);
	message->mark_seq = record->mark_seq;
	write->clean = record->clean;
	write->versions = versions_of(record);
}

/* Between the locks: an enum pass_outcome. */
WHOLE int decide_pass(struct xdp_md *ctx, const struct work *work, struct record *record,
		      struct session *session, struct message *message)
{
	if (!work || !record || !session || !message)
		return IS_BUSY;
	struct write *write = &message->write;
	__u64 clean = bpf_be64_to_cpu(message->peer.clean);
	if (write->len > value_most(record))
		return IS_BUSY; /* not the ring of the members before */
	if (!jump(record, message))
		return IS_UNFILLED;
	if (write->seq > record->last + 1 && !MUTANT(order_any_sequence))
		return IS_EARLY;
	if (write->seq <= record->last) {
		count_diverged(record, write);
		settle(record, message);
		return WAS_APPLIED;
	}
	write->heard = session->heard == write->is.number;
	if (!put_version(ctx, work, record, write))
		return IS_BUSY;
	if (!MUTANT(order_noted_by_head))
		note_write(work, session, write, 0, 0);
	if (clean > record->last)
		clean = record->last;
	if (clean > record->clean && !write->is.held)
		record->clean = clean;
	settle(record, message);
	return APPLIED;
}

/* To the next member; a filling one is passed what is not copied to it. */
INLINE int pass_on(struct xdp_md *ctx, struct work *work, const struct here *here,
		   struct message *message)
{
	struct peer *peer = &message->peer;
	struct write *write = &message->write;
	if (fills(&here->is) && write->seq <= message->boundary)
		return ends(COUNT_consume, XDP_DROP);
	peer->flags &= ~(JUMP | MORE);
	if (!write->heard)
		peer->flags &= ~HEARD;
	if (fills(&here->is) && write->seq > message->boundary && write->seq == message->mark_seq)
		peer->flags |= JUMP;
	peer->clean = bpf_cpu_to_be64(write->clean);
	peer->unused = value_of_peer(write->len, write->sum);
	make_peer_header(work, here, write->seq);
	count(COUNT_order_pass);
	return send_peer(ctx, work, here, peer, here->is.place + 1);
}

/* Something before it has not come: it may be on its way, or it is asked for. */
INLINE int wait_for_earlier(struct xdp_md *ctx, struct work *work, const struct here *here,
			    struct record *record)
{
	if (work->round < ROUNDS)
		return recirculate(ctx, work, ROUNDS);
	if (!may_nack(record))
		return ends(COUNT_drop_order_early, XDP_DROP);
	return send_nack(ctx, work, here, READ_ONCE(record->last));
}

/*
 * A version that was committed before the tail began to be filled: who asks for it again is
 * answered by the member before that one, or else those before it are told.
 */
INLINE int last_word(struct xdp_md *ctx, struct work *work, const struct here *here,
		     struct message *message)
{
	__u8 flags = message->peer.flags;
	if (!(flags & REPLY))
		return here->is.place
			       ? send_ack(ctx, work, here, message->boundary, here->is.place - 1)
			       : ends(COUNT_consume, XDP_DROP);
	if (!make_reply(ctx, work, here, 0, message->write.seq, flags & ALSO))
		return ends(COUNT_drop_refused, XDP_DROP);
	return send_off(ctx, work);
}

/* What the tail does with the version of a message. */
INLINE int commit_message(struct xdp_md *ctx, struct work *work, const struct here *here,
			  const struct message *message)
{
	return commit(ctx, work, here, message->write.seq,
		      message->peer.flags | (__u32)message->write.versions << 8);
}

/* A write that was applied here before, and was sent again. */
INLINE int again(struct xdp_md *ctx, struct work *work, const struct here *here,
		 struct message *message)
{
	if (!(message->peer.flags & AGAIN))
		return ends(COUNT_drop_order_again, XDP_DROP);
	if (here->is.held)
		return ends(COUNT_drop_order_held, XDP_DROP);
	count(COUNT_order_known);
	if (fills(&here->is) && message->write.seq <= message->boundary)
		return last_word(ctx, work, here, message);
	if (!is_tail(&here->is))
		return pass_on(ctx, work, here, message);
	return commit_message(ctx, work, here, message);
}

/* It is applied here; unless something is held back, it goes on, or is committed. */
INLINE int applied(struct xdp_md *ctx, struct work *work, const struct here *here,
		   struct message *message)
{
	count(COUNT_order_apply);
	if (here->is.held)
		return ends(COUNT_drop_order_held, XDP_DROP);
	if (!is_tail(&here->is))
		return pass_on(ctx, work, here, message);
	count(COUNT_order_commit);
	return commit_message(ctx, work, here, message);
}

/* Key or session are not here, though the members before have them. */
INLINE int missing(struct work *work, const struct config *config, const struct message *message,
		   bool has_key)
{
	if (!has_key)
		report_key(work, config);
	else
		report_session(work, config, bpf_be64_to_cpu(message->write.ask.session));
	return ends(COUNT_drop_order_missing, XDP_DROP);
}

/* Reads what the member before this one says, and whether anything is held back here. */
INLINE enum counter hear_predecessor(struct xdp_md *ctx, struct work *work, struct here *here,
				     struct message *message)
{
	enum counter wrong = read_message(ctx, work, message);
	if (wrong != NOTHING)
		return wrong;
	if (!is_from_predecessor(work, here))
		return COUNT_drop_order_stranger;
	is_held(work, here);
	message->write.is = here->is;
	return NOTHING;
}

INLINE int take_pass(struct xdp_md *ctx, struct work *work, const struct config *config,
		     struct here *here)
{
	struct message message = {};
	struct pair pair = {};
	enum counter wrong = hear_predecessor(ctx, work, here, &message);
	if (wrong != NOTHING)
		return ends(wrong, XDP_DROP);
	bool has_key = find_key(work, &pair.key_item, &pair.key);
	if (!has_key || !find_session(work, bpf_be64_to_cpu(message.peer.session),
				      &pair.session_item, &pair.session))
		return missing(work, config, &message, has_key);
	if (!lock_pair(&pair))
		return ends(COUNT_drop_order_busy, XDP_DROP);
	int outcome = IS_BUSY;
	if (is_still(work, here))
		outcome = decide_pass(ctx, work, pair.key, pair.session, &message);
	unlock_pair(&pair);
	switch (outcome) {
	case APPLIED:
		return applied(ctx, work, here, &message);
	case WAS_APPLIED:
		return again(ctx, work, here, &message);
	case IS_EARLY:
		return wait_for_earlier(ctx, work, here, pair.key);
	case IS_UNFILLED:
		return ends(COUNT_drop_order_unfilled, XDP_DROP);
	default:
		return ends(COUNT_drop_order_busy, XDP_DROP);
	}
}

/* ---- LOST: a write that was refused */

/* Between the locks: an enum pass_outcome. The key may have no item. */
WHOLE int decide_lost(const struct work *work, const struct record *record, struct session *session,
		      struct message *message)
{
	if (!work || !session || !message)
		return IS_BUSY;
	struct write *write = &message->write;
	bool is_unfilled =
		record && is_filling_tail(&write->is) && record->filled < write->is.fill_number;
	if (is_unfilled && !(message->peer.flags & JUMP))
		return IS_UNFILLED;
	/* Rule 4: what refused it is here, or was committed before this tail began to be filled. */
	if (!is_unfilled && (record ? record->last : 0) < write->seq &&
	    !MUTANT(order_refused_early))
		return IS_EARLY;
	if (record)
		message->boundary = boundary_of(&write->is, record);
	note_write(work, session, write, bpf_ntohs(message->peer.status) + 1,
		   !!(message->peer.flags & DELETE));
	return APPLIED;
}

INLINE int answer_lost(struct xdp_md *ctx, struct work *work, const struct here *here,
		       const struct message *message)
{
	__u8 flags = message->peer.flags;
	__u64 version = flags & DELETE ? 0 : message->write.seq;
	if (!(flags & REPLY))
		return ends(COUNT_consume, XDP_DROP);
	count(COUNT_order_commit);
	if (!make_reply(ctx, work, here, bpf_ntohs(message->peer.status) << 4 & STATUS_MASK,
			version, flags & ALSO))
		return ends(COUNT_drop_refused, XDP_DROP);
	return send_off(ctx, work);
}

INLINE int pass_lost(struct xdp_md *ctx, struct work *work, const struct here *here,
		     struct message *message)
{
	struct peer *peer = &message->peer;
	peer->flags &= ~(JUMP | MORE);
	if (fills(&here->is) && message->write.seq <= message->boundary)
		peer->flags |= JUMP;
	peer->unused = 0;
	make_peer_header(work, here, message->write.seq);
	count(COUNT_order_pass);
	return send_peer(ctx, work, here, peer, here->is.place + 1);
}

INLINE int take_lost(struct xdp_md *ctx, struct work *work, const struct config *config,
		     struct here *here)
{
	struct message message = {};
	struct pair pair = {};
	enum counter wrong = hear_predecessor(ctx, work, here, &message);
	if (wrong != NOTHING)
		return ends(wrong, XDP_DROP);
	if (!find_session(work, bpf_be64_to_cpu(message.peer.session), &pair.session_item,
			  &pair.session))
		return missing(work, config, &message, true);
	bool has_key = find_key(work, &pair.key_item, &pair.key);
	if (has_key ? !lock_pair(&pair) : !try_lock(&pair.session_item->seq))
		return ends(COUNT_drop_order_busy, XDP_DROP);
	int outcome = IS_BUSY;
	if (is_still(work, here))
		outcome = decide_lost(work, has_key ? pair.key : NULL, pair.session, &message);
	unlock_item(pair.session_item);
	if (has_key)
		unlock_item(pair.key_item);
	if (outcome == IS_UNFILLED)
		return ends(COUNT_drop_order_unfilled, XDP_DROP);
	if (outcome == IS_EARLY)
		return has_key ? wait_for_earlier(ctx, work, here, pair.key)
			       : missing(work, config, &message, false);
	if (outcome != APPLIED)
		return ends(COUNT_drop_order_busy, XDP_DROP);
	count(COUNT_order_refuse);
	if (here->is.held)
		return ends(COUNT_drop_order_held, XDP_DROP);
	return is_tail(&here->is) ? answer_lost(ctx, work, here, &message)
				  : pass_lost(ctx, work, here, &message);
}
