/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What every discipline of copies does with requests and replies, however it answers reads:
 * coherence.h has the rules that this keeps.
 */
#pragma once

#include "probation.h"

/* A read of a part goes to the store. */
INLINE int pass_part(struct xdp_md *ctx, struct work *work, const struct config *config)
{
	count(COUNT_bypass_part);
	disown(ctx, work, config);
	return forward(ctx, work);
}

/*
 * Rule 6: what speaks against an answer from this item now, as the counter of the read that meets
 * it; NOTHING: it may be answered, as long as the item's word is `word`.
 */
INLINE enum counter objection(const struct work *work, const struct item *item,
			      const struct lease *lease, __u64 word)
{
	if (!lease || !lease_holds(lease, work->now_ns))
		return COUNT_read_no_lease;
	if ((!is_valid(word) && !MUTANT(serves_invalid)) ||
	    (epoch_of(word) <= READ_ONCE(lease->floor) && !MUTANT(serves_earlier_term)))
		return COUNT_read_invalid;
	if ((item->flags & ITEM_EXPIRES) && !is_before(work->now_ns, item->expiry_ns) &&
	    !MUTANT(serves_expired))
		return COUNT_read_expired;
	return NOTHING;
}

/*
 * Whether the read may be answered from the item, as long as its word is `word`. If not, the read
 * asks for a grant, where that helps: it is to go to the store.
 */
INLINE bool may_answer(struct xdp_md *ctx, struct work *work, struct config *config,
		       struct item *item, __u64 *word)
{
	*word = READ_ONCE(item->word);
	struct lease *lease = lease_of(item);
	enum counter why = objection(work, item, lease, *word);
	if (why == NOTHING)
		return true;
	count(why);
	if (lease && why != COUNT_read_no_lease)
		ask_for_grant(ctx, work, config, item, lease);
	return false;
}

/*
 * CONTINUE: `found` leads to an item that the read may be answered from, as long as its word is
 * `word`. Otherwise the read was sent on. Keys that miss are reported from `threshold` reads in a
 * window on, and may get an item on probation; with NEVER neither. Reads of parts are the caller's
 * affair, here and afterwards.
 */
INLINE int find_answer(struct xdp_md *ctx, struct work *work, struct config *config,
		       __u32 threshold, struct found *found, __u64 *word)
{
	if (!find(work, found)) {
		count(COUNT_miss);
		struct miss miss = count_miss(work, config, threshold);
		disown(ctx, work, config);
		if (is_read_enough(work, &miss))
			begin_probation(ctx, work);
		return forward_here(ctx, work);
	}
	touch_rest(found);
	count_request(found, config);
	return may_answer(ctx, work, config, found->item, word) ? CONTINUE : forward(ctx, work);
}

/* The header of a read's answer. `expiry_ns` is 0 for a value that lives for ever. */
INLINE void make_answer(struct work *work, const struct config *config, __u32 value_len,
			__u64 version, __u64 expiry_ns)
{
	work->header.op = OP_READ_REPLY;
	work->header.flags = FLAG_CACHED;
	work->header.value_len = bpf_htons(value_len);
	work->header.epoch = bpf_cpu_to_be64(epoch_pair(config->switch_id, 0));
	work->header.version = bpf_cpu_to_be64(version);
	work->header.expiry_ms =
		expiry_ns ? bpf_htonl((expiry_ns - work->now_ns) / NS_PER_MS + 1) : 0;
}

/*
 * Values up to this length are copied in pieces: the helper's calls and returns cost more
 * than those.
 */
#define PIECE_BYTES 32
#define PIECES_MAX 8

struct piece {
	__u64 word[PIECE_BYTES / 8];
};

INLINE bool put_piece(struct xdp_md *ctx, __u32 at, const __u8 *from)
{
	at &= 0x3ff;
	opaque(at);
	__u8 *to = (void *)(long)ctx->data + (at & 0x3ff);
	if (to + PIECE_BYTES > (__u8 *)(long)ctx->data_end)
		return false;
	*(struct piece *)to = *(const struct piece *)from;
	return true;
}

/* Copies a value of an item into the packet at the offset `at`. False: there is no room. */
INLINE bool put_value(struct xdp_md *ctx, __u32 at, __u8 *value, __u32 len)
{
	__u32 done = 0;
	if (len >= PIECE_BYTES && len <= PIECE_BYTES * PIECES_MAX) {
		for (int i = 0; i < PIECES_MAX; i++) {
			if (len - done < PIECE_BYTES || !put_piece(ctx, at + done, value + done))
				break;
			done += PIECE_BYTES;
		}
		__u32 last = (len - PIECE_BYTES) & 0xff;
		if (done < len && put_piece(ctx, at + last, value + last))
			done = len;
		if (done == len)
			meanwhile();
	}
	__u32 size = 0;
	return done == len || (is_size(len, VALUE_MAX_BYTES, &size) &&
			       bpf_xdp_store_bytes(ctx, at, value, size) == 0);
}

/*
 * CONTINUE: the item's value stands in the packet, the answer's header in `work`, to be sent by
 * `answer_read` with these two. The copy is checked after it was made, before the packet becomes
 * the reply; otherwise the read was sent on.
 */
INLINE int load_answer(struct xdp_md *ctx, struct work *work, const struct config *config,
		       const struct found *found, __u64 word, __u32 *payload_len, __u32 *value_sum)
{
	struct item *item = found->item;
	__u32 seq = READ_ONCE(item->seq);
	barrier();
	__u64 version = item->version;
	__u64 expiry_ns = item->flags & ITEM_EXPIRES ? item->expiry_ns : 0;
	__u32 len = item->value_len;
	*value_sum = item->sum;
	*payload_len = KV_HEADER_LEN + work->key_len + len;
	if (len > VALUE_MAX_BYTES || !make_room(ctx, work, *payload_len)) {
		count(COUNT_bypass_no_room);
		return forward(ctx, work);
	}
	__u8 *value = value_of(found, work->key_len);
	if (!put_value(ctx, work->kv + KV_HEADER_LEN + work->key_len, value, len)) {
		count(COUNT_bypass_no_room);
		return forward(ctx, work);
	}
	barrier();
	bool torn = (seq & 1) || READ_ONCE(item->seq) != seq || READ_ONCE(item->word) != word;
	if (torn && !MUTANT(serves_torn)) {
		count(COUNT_bypass_torn);
		restore_padding(ctx, work, len);
		return forward(ctx, work);
	}
	make_answer(work, config, len, version, expiry_ns);
	return CONTINUE;
}

/* The read is answered with the item's value, or sent on. */
INLINE int answer_from_cells(struct xdp_md *ctx, struct work *work, const struct config *config,
			     const struct found *found, __u64 word)
{
	__u32 payload_len = 0, value_sum = 0;
	int verdict = load_answer(ctx, work, config, found, word, &payload_len, &value_sum);
	if (verdict != CONTINUE)
		return verdict;
	count(COUNT_hit);
	return answer_read(ctx, work, payload_len, value_sum);
}

/* Rule 2: invalid here first, then on to the store with the epoch that proves it. */
INLINE int write_request(struct xdp_md *ctx, struct work *work, struct config *config)
{
	__u64 epoch = MUTANT(write_takes_no_epoch) ? newest_epoch(config) : take_epoch(config);
	struct found found;
	bool have = find(work, &found);
	if (MUTANT(epoch_after_lookup)) {
		barrier();
		epoch = take_epoch(config);
	}
	count(COUNT_write);
	if (have && !MUTANT(write_invalidates_nothing) &&
	    !raise_epoch(found.item, epoch, work->now_ns)) {
		count(COUNT_write_contended);
		disown(ctx, work, config);
		return forward(ctx, work);
	}
	if (have)
		count(COUNT_write_invalidated);
	/*
	 * Another switch may have stamped it before us: it keeps the place unless only we have an
	 * entry, and none named itself as the second.
	 * What claims to be our own stamp is replaced: only we know our epochs.
	 */
	if (!MUTANT(write_carries_nothing) &&
	    (!work->header.epoch || names_this_switch(work, config) ||
	     (have && !(work->header.flags & FLAG_GRANT) && !work->header.node)))
		stamp(ctx, work, config, epoch, have ? FLAG_GRANT : 0);
	return forward(ctx, work);
}

INLINE bool op_carries_grant(__u8 op)
{
	return op == OP_READ_REPLY || op == OP_WRITE_REPLY || op == OP_FETCH_REPLY;
}

/* Whether the reply grants something to this switch. */
INLINE bool is_grant(const struct work *work, const struct config *config)
{
	return (work->header.flags & FLAG_GRANT) && names_this_switch(work, config);
}

/* A grant for this switch is installed on its way to the client. */
INLINE int reply(struct xdp_md *ctx, struct work *work, struct config *config)
{
	if (is_grant(work, config))
		count(install(ctx, work, config));
	return forward(ctx, work);
}

INLINE int fetch_reply(struct xdp_md *ctx, struct work *work, struct config *config)
{
	if (!names_this_switch(work, config))
		return forward(ctx, work);
	if (work->header.flags & FLAG_GRANT)
		count(install(ctx, work, config));
	return ends(COUNT_fetch_reply, XDP_DROP);
}

/* What is no read. */
INLINE int other_than_read(struct xdp_md *ctx, struct work *work, struct config *config)
{
	switch (work->op) {
	case OP_WRITE_REQUEST:
	case OP_DELETE_REQUEST:
		return write_request(ctx, work, config);
	case OP_READ_REPLY:
	case OP_WRITE_REPLY:
		return reply(ctx, work, config);
	case OP_FETCH_REPLY:
		return fetch_reply(ctx, work, config);
	case OP_CORRECTION_REQUEST:
		count(COUNT_bypass_correction);
		return forward(ctx, work);
	default:
		return forward(ctx, work);
	}
}
