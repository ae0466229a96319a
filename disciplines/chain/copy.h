/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What an agent copies to a last member that has not all yet (rule 10). */
#pragma once

#include "pass.h"

/* Back to the agent: what is here, under which number it was filled. */
INLINE int say_copied(struct xdp_md *ctx, struct work *work, const struct here *here, __u64 version,
		      __u64 fill)
{
	struct peer peer = {.kind = COPIED, .fill = bpf_cpu_to_be64(fill)};
	make_peer_header(work, here, version);
	if (!write_behind_key(ctx, work, &peer, sizeof(peer)) ||
	    !finish_back(ctx, work, sizeof(peer), fold(sum_words(&peer, sizeof(peer) / 8))))
		return ends(COUNT_drop_refused, XDP_DROP);
	return send_here(ctx);
}

/*
 * The version, or word that there is none up to it, unless the key is filled. The item is locked.
 */
WHOLE int fill_key(struct xdp_md *ctx, const struct work *work, struct record *record,
		   const struct message *message)
{
	if (!work || !record || !message)
		return false;
	const struct write *write = &message->write;
	bool is_filled = record->filled >= write->is.fill_number;
	if ((is_filled && !MUTANT(order_copies_over)) || !message->peer.fill)
		return true;
	if (!(message->peer.flags & BARE) && !put_version(ctx, work, record, write))
		return false;
	record->last = record->clean = record->base = write->seq;
	record->filled = write->is.fill_number;
	return true;
}

INLINE int take_copy(struct xdp_md *ctx, struct work *work, const struct config *config,
		     const struct here *here)
{
	struct message message = {};
	struct pair pair = {};
	enum counter wrong = read_message(ctx, work, &message);
	__u64 fill = bpf_be64_to_cpu(message.peer.fill);
	if (wrong != NOTHING)
		return ends(wrong, XDP_DROP);
	message.write.is = here->is;
	if (!is_filling_tail(&here->is) || !is_from_predecessor(work, here) ||
	    (fill && fill != here->is.fill_number))
		return ends(COUNT_drop_order_stranger, XDP_DROP);
	if (!find_key(work, &pair.key_item, &pair.key))
		return missing(work, config, &message, false);
	if (!try_lock(&pair.key_item->seq))
		return ends(COUNT_drop_order_busy, XDP_DROP);
	bool done = is_still(work, here) && fill_key(ctx, work, pair.key, &message);
	__u64 last = pair.key->last, filled = pair.key->filled;
	unlock_item(pair.key_item);
	if (!done)
		return ends(COUNT_drop_order_busy, XDP_DROP);
	count(COUNT_order_copy);
	return say_copied(ctx, work, here, last, filled);
}

/* As src/packets.rs writes it. */
struct sent_note {
	__be64 request;
	__be64 seq;
	__u8 refused;
	__u8 absent;
	__u8 chain;
	__u8 unused[5];
};
_Static_assert(sizeof(struct sent_note) * NOTES <= sizeof(((struct work *)0)->scratch),
	       "a session's notes");

/*
 * Which chains this switch is the last member of, and is filled in under that number by whoever
 * sends the packet: a bit for each. It is gathered where the verifier does not follow each value.
 */
INLINE __u64 chains_filled(struct work *work, const struct here *here, __u64 fill)
{
	__u64 *all = (__u64 *)(work->scratch + sizeof(work->scratch) - sizeof(*all));
	__u32 sender = bpf_ntohs(work->header.node) - 1;
	WRITE_ONCE(*all, 0);
	for (__u32 i = 0; i < CHAINS; i++) {
		const struct chain *chain = &here->view->chain[i];
		__u32 last = (chain->len - 1) & (CHAIN_MEMBERS - 1);
		__u32 before = (chain->len - 2) & (CHAIN_MEMBERS - 1);
		__u32 others =
			(chain->slot[last] ^ here->view->self) | (chain->slot[before] ^ sender);
		if (i < here->view->chains && chain->filling && chain->fill_number == fill &&
		    !others)
			WRITE_ONCE(*all, READ_ONCE(*all) | 1ULL << i);
	}
	return READ_ONCE(*all);
}

/*
 * What was noted of these chains' writes before they are filled here is of an earlier membership,
 * of writes that may never have been, or was copied once more. What stays is that older writes at
 * the same place have ended.
 */
INLINE void outdate(struct note *note, __u64 fill, __u64 chains)
{
	__u32 chain = note->chain;
	bool is_new = note->under && (__s32)(note->under - (__u32)fill) >= 0;
	if (note->refused == NOTE_FORGOTTEN || note->request < NOTES || (chain && is_new) ||
	    (chain && !(chains >> ((chain - 1) & (CHAINS - 1)) & 1)))
		return;
	if (chain)
		note->request -= NOTES;
	note->seq = 0;
	note->refused = NOTE_FORGOTTEN;
	note->absent = 0;
}

WHOLE int merge_notes(const struct work *work, struct session *session, __u64 fill, __u64 chains)
{
	if (!work || !session)
		return false;
	const struct sent_note *sent = (const struct sent_note *)work->scratch;
	for (__u32 i = 0; i < NOTES; i++) {
		struct note *note = &session->note[i];
		__u64 request = bpf_be64_to_cpu(sent[i].request);
		outdate(note, fill, chains);
		if (request <= note->request)
			continue;
		note->under = 0;
		note->chain = sent[i].chain;
		note->request = request;
		note->seq = bpf_be64_to_cpu(sent[i].seq);
		note->refused = sent[i].chain ? sent[i].refused : NOTE_FORGOTTEN;
		note->absent = sent[i].absent;
	}
	return true;
}

/* A client's session, all of it. */
INLINE int take_session_copy(struct xdp_md *ctx, struct work *work, const struct config *config,
			     const struct here *here)
{
	struct message message = {};
	struct found found = {};
	enum counter wrong = read_message(ctx, work, &message);
	if (wrong != NOTHING)
		return ends(wrong, XDP_DROP);
	__u64 fill = bpf_be64_to_cpu(message.peer.fill);
	if (message.write.len != sizeof(struct sent_note) * NOTES)
		return ends(COUNT_drop_refused, XDP_DROP);
	__u64 chains = chains_filled(work, here, fill);
	if (!chains)
		return ends(COUNT_drop_order_stranger, XDP_DROP);
	if (!find_given(work, &found) || found.item->value_len != sizeof(struct session))
		return missing(work, config, &message, false);
	struct session *session = (struct session *)record_of(&found, work);
	if (bpf_xdp_load_bytes(ctx, message.write.at, work->scratch,
			       sizeof(struct sent_note) * NOTES) < 0 ||
	    !try_lock(&found.item->seq))
		return ends(COUNT_drop_order_busy, XDP_DROP);
	bool is_ours = is_still(work, here);
	if (is_ours) {
		merge_notes(work, session, fill, chains);
		if (version_in(work) > session->seen)
			session->seen = version_in(work);
		if (fill > session->filled)
			session->filled = fill;
	}
	__u64 seen = session->seen, filled = session->filled;
	unlock_item(found.item);
	if (!is_ours)
		return ends(COUNT_drop_order_busy, XDP_DROP);
	count(COUNT_order_copy);
	return say_copied(ctx, work, here, seen, filled);
}
