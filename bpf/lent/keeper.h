/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The second switch of a loan: it keeps the writes that the owner answers, and each once. */
#pragma once

#include "windows.h"

/* What becomes of a write. */
enum keep {
	KEEP_NEW = WINDOW_NEW,
	KEEP_AGAIN = WINDOW_KEPT,
	KEEP_TOO_OLD = WINDOW_TOO_OLD,
	KEEP_NO_ROOM = WINDOW_NO_ROOM,
	KEEP_BUSY,
	KEEP_OVER,
};

/* The loan that the packet's write belongs to; only its owner's writes are kept. */
INLINE bool find_loan(const struct work *work, struct lent *lent)
{
	__u16 owner = bpf_be64_to_cpu(work->header.epoch) >> EPOCH_NUMBER_BITS;
	if (MUTANT(lent_keeps_any_loan))
		return find_kept(work, WHILE_ACTIVE | WHILE_SEALED, 0, 0, lent);
	return find_kept(work, WHILE_ACTIVE, bpf_ntohs(work->header.life), 0, lent) &&
	       !lent->record->is_owner && lent->record->node == owner;
}

/* Marked and kept in one step, or neither. */
OUTLINE int keep(struct xdp_md *ctx, struct work *work, struct lent *lent, __u32 sum)
{
	if (!work || !lent)
		return KEEP_OVER;
	struct kept *record = lent->record;
	__u32 states = MUTANT(lent_keeps_any_loan) ? WHILE_ACTIVE | WHILE_SEALED : WHILE_ACTIVE;
	if (!lock_kept(lent, states))
		return is_still_active(lent) ? KEEP_BUSY : KEEP_OVER;
	__u64 *word = NULL, bit = 0;
	int result = find_word(lent, work->header.client, bpf_be64_to_cpu(work->header.request),
			       &word, &bit);
	if (result == KEEP_NEW && word) {
		if (bpf_be64_to_cpu(work->header.version) > record->version &&
		    !store_kept(ctx, work, record, sum))
			result = KEEP_BUSY;
		else
			*word |= bit;
	}
	unlock_seq(&record->seq);
	return result;
}

/* A write that had been kept is answered with the newest value: the owner may not have that yet. */
INLINE int keep_again(struct xdp_md *ctx, struct work *work, const struct lent *lent)
{
	struct kept_value value = {};
	if (load_kept(ctx, work, loan_of(lent), WHILE_ACTIVE, &value) != KEPT_LOADED)
		return ends(COUNT_drop_lent_busy, XDP_DROP);
	work->header.op = OP_KEEP_REPLY;
	work->header.value_len = bpf_htons(value.len);
	work->header.version = bpf_cpu_to_be64(value.version);
	work->header.expiry_ms = 0;
	count(COUNT_keep_again);
	return send_back(ctx, work, KV_HEADER_LEN + work->key_len + value.len, value.sum);
}

INLINE int keep_request(struct xdp_md *ctx, struct work *work)
{
	struct lent lent = {};
	__u32 sum = 0;
	int result = KEEP_OVER;
	if (find_loan(work, &lent)) {
		if (!is_whole(ctx, work, &sum))
			return ends(COUNT_drop_spoiled, XDP_DROP);
		result = keep(ctx, work, &lent, sum);
	}
	switch (result) {
	case KEEP_NEW:
		/*
		 * Version and value are the write's own: whoever has them has what must not
		 * be lost.
		 */
		work->header.op = OP_KEEP_REPLY;
		count(COUNT_keep);
		return send_back(ctx, work, work->payload_len, sum);
	case KEEP_AGAIN:
		return keep_again(ctx, work, &lent);
	case KEEP_TOO_OLD:
		return ends(COUNT_drop_keep_old, XDP_DROP);
	case KEEP_BUSY:
		return ends(COUNT_drop_lent_busy, XDP_DROP);
	default: /* the store hears of it, and calls the key back */
		count(COUNT_keep_pass);
		return forward(ctx, work);
	}
}
