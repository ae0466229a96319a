/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a store says to the two switches of a loan: prepare, begin, and give back. Each packet may
 * come again, an hour later too: what begins names an epoch that this switch took for it, and what
 * ends names the loan's life.
 */
#pragma once

#include "windows.h"

/* Sends the packet back as its answer. */
INLINE int answer_loan(struct xdp_md *ctx, struct work *work, const struct config *config,
		       __u64 epoch, __u8 flags)
{
	work->header.op = OP_LEND_REPLY;
	work->header.flags = flags;
	work->header.epoch = bpf_cpu_to_be64(epoch_pair(config->switch_id, epoch));
	count(flags & STATUS_MASK ? COUNT_lend_refused : COUNT_lend);
	return send_back_bare(ctx, work);
}

/* Whether it is sealed, and its store has not said that it has all there was. */
INLINE bool is_awaited(const struct kept *record)
{
	return record->state == KEPT_SEALED &&
	       (record->version || record->value_len != KEPT_NO_VALUE);
}

/* Whether a store that prepares for another key, or anew, may have this record. */
INLINE bool kept_is_over(const struct kept *record, __u64 now_ns)
{
	bool is_held = record->state == KEPT_ACTIVE || is_awaited(record);
	__u64 rest_ns = is_held ? KEPT_LOST_NS : KEPT_REST_NS;
	return record->state == KEPT_FREE || now_ns > record->seen_ns + rest_ns;
}

/*
 * A place for a record of the packet's key: a preparation of the same key that came to nothing, one
 * that was never used, else the one that rested longest. KEPT_RECORDS: there is none, or the key's
 * tenant has as many in this set as are left.
 */
OUTLINE int find_room(const struct work *work)
{
	__u32 best = KEPT_RECORDS, left = 0, own = 0;
	__u64 best_ns = ~0ULL;
	if (!work)
		return best;
	__u32 first = kept_set_of(work) * KEPT_WAYS;
	for (__u32 way = 0; way < KEPT_WAYS; way++) {
		__u32 place = first + way;
		const struct kept *record = bpf_map_lookup_elem(&kept, &place);
		if (!record)
			break;
		if (record->state == KEPT_PREPARED && kept_key_equals(place, work))
			return place;
		if (!kept_is_over(record, work->now_ns)) {
			own += record->tenant == bpf_ntohl(work->header.tenant);
			continue;
		}
		left++;
		__u64 seen_ns = record->state == KEPT_FREE ? 0 : record->seen_ns;
		if (seen_ns < best_ns) {
			best = place;
			best_ns = seen_ns;
		}
	}
	return own < left ? best : KEPT_RECORDS;
}

/*
 * The record becomes the packet's loan, prepared under `epoch`. False: somebody else has it
 * meanwhile.
 */
INLINE bool take_record(struct work *work, __u32 place, __u64 epoch)
{
	__u32 set = place / KEPT_WAYS;
	struct kept *record = bpf_map_lookup_elem(&kept, &place);
	struct kept_tags *tags = bpf_map_lookup_elem(&kept_tags, &set);
	if (!record || !tags || !lock_seq(&record->seq))
		return false;
	bool ours = kept_is_over(record, work->now_ns) ||
		    (record->state == KEPT_PREPARED && kept_key_equals(place, work));
	if (ours) {
		give_windows_back(record);
		WRITE_ONCE(record->epoch, 0);
		barrier();
		WRITE_ONCE(tags->tag[place & (KEPT_WAYS - 1)], kept_tag_of(work));
		record->state = KEPT_PREPARED;
		record->is_owner = work->header.flags & FLAG_GRANT;
		record->tenant = bpf_ntohl(work->header.tenant);
		record->life = bpf_ntohs(work->header.life);
		record->lease = bpf_be64_to_cpu(work->header.request);
		record->node = bpf_ntohs(work->header.node);
		record->value_len = KEPT_NO_VALUE;
		record->number = record->unanswered_ns = 0;
		record->seen_ns = work->now_ns;
		record->key_len = work->key_len;
		__builtin_memcpy(record->key, work->key, sizeof(record->key));
		barrier();
		WRITE_ONCE(record->epoch, epoch);
	}
	unlock_seq(&record->seq);
	return ours;
}

/*
 * Whether the key may be lent here at all: to a tenant that has a secret, and by the store that the
 * lease is of.
 */
INLINE bool may_be_lent(struct xdp_md *ctx, const struct work *work, const struct config *config)
{
	__u32 id = bpf_ntohl(work->header.tenant);
	__u64 slot = bpf_be64_to_cpu(work->header.request);
	__u16 node = bpf_ntohs(work->header.node), life = bpf_ntohs(work->header.life);
	const struct tenant *tenant = bpf_map_lookup_elem(&tenants, &id);
	if (!tenant || !(tenant->flags & TENANT_WRITE_BACK) || slot >= MAX_LEASES ||
	    !(tenant->secret[0] | tenant->secret[1]) || !node || node == config->switch_id ||
	    life <= 1 || KV_HEADER_LEN + work->key_len > KEPT_PAYLOAD_MAX)
		return false;
	__u32 index = slot;
	const struct lease *lease = bpf_map_lookup_elem(&leases, &index);
	return lease && came_from(ctx, work, lease) &&
	       (!(work->header.flags & FLAG_GRANT) || lease_holds(lease, work->now_ns));
}

/*
 * Prepared twice under one epoch, so that both answers say the same; never over what is active
 * under another life. The store that lent that hears which one it is, and says that it is over if
 * it knows of none; another store must not, and waits.
 */
INLINE int prepare_loan(struct xdp_md *ctx, struct work *work, struct config *config)
{
	struct lent lent = {};
	__u16 life = bpf_ntohs(work->header.life);
	__u8 role = work->header.flags & FLAG_GRANT;
	if (find_kept(work, WHILE_ACTIVE, 0, 0, &lent) && lent.record->life != life) {
		if (lent.record->lease != bpf_be64_to_cpu(work->header.request))
			return answer_loan(ctx, work, config, 0, role | STATUS_TRY_AGAIN);
		work->header.life = bpf_htons(lent.record->life);
		hash_shared(work);
		return answer_loan(ctx, work, config, lent.epoch, role | STATUS_MISMATCH);
	}
	if (find_kept(work, WHILE_PREPARED | WHILE_ACTIVE, life, 0, &lent) &&
	    lent.record->is_owner == role)
		return answer_loan(ctx, work, config, lent.epoch, role);
	if (find_kept(work, WHILE_SEALED, life, 0, &lent))
		return answer_loan(ctx, work, config, lent.epoch, role | STATUS_NOT_FOUND);
	__u64 epoch = take_epoch(config);
	if (epoch == LAST_EPOCH || !may_be_lent(ctx, work, config) ||
	    !take_record(work, find_room(work), epoch))
		return answer_loan(ctx, work, config, 0, role | STATUS_TRY_AGAIN);
	return answer_loan(ctx, work, config, epoch, role);
}

enum begin {
	BEGUN,
	BEGIN_BUSY,
	BEGIN_NOT_PREPARED,
};

/* The prepared record is active from now on: with the value that was lent, if it is the owner's. */
OUTLINE int begin_record(struct xdp_md *ctx, struct work *work, struct lent *lent, __u32 sum)
{
	if (!work || !lent)
		return BEGIN_BUSY;
	struct kept *record = lent->record;
	if (!lock_seq(&record->seq))
		return BEGIN_BUSY;
	int result = BEGIN_NOT_PREPARED;
	if (record->epoch == lent->epoch && record->state == KEPT_ACTIVE) {
		result = BEGUN;
	} else if (record->epoch == lent->epoch && record->state == KEPT_PREPARED) {
		result = BEGIN_BUSY;
		record->version = bpf_be64_to_cpu(work->header.version);
		record->base = bpf_be64_to_cpu(work->header.client);
		record->since_ns = fine_clock_ns();
		if (!record->is_owner || store_kept(ctx, work, record, sum)) {
			record->state = KEPT_ACTIVE;
			result = BEGUN;
		}
	}
	record->seen_ns = work->now_ns;
	unlock_seq(&record->seq);
	return result;
}

/*
 * Only what this switch prepared under just that epoch begins, and nothing beside what is active.
 */
INLINE int begin_loan(struct xdp_md *ctx, struct work *work, struct config *config, __u32 sum)
{
	struct lent lent = {};
	struct found found;
	__u8 role = work->header.flags & FLAG_GRANT;
	__u64 epoch = MUTANT(lent_begins_any_epoch) ? 0 : epoch_in(work);
	__u32 states = WHILE_PREPARED | WHILE_ACTIVE;
	__u16 life = bpf_ntohs(work->header.life);
	bool over = find_kept(work, WHILE_SEALED, life, 0, &lent);
	if (over || (find_kept(work, WHILE_ACTIVE, 0, 0, &lent) && lent.record->life != life) ||
	    !find_kept(work, states, life, epoch, &lent) || lent.record->is_owner != role)
		return answer_loan(ctx, work, config, epoch_in(work), role | STATUS_NOT_FOUND);
	/* A copy of the time before is none any more. */
	if (role && find(work, &found) && lease_of(found.item) &&
	    !raise_epoch(found.item, take_epoch(config), work->now_ns))
		return ends(COUNT_drop_lent_busy, XDP_DROP);
	switch (begin_record(ctx, work, &lent, sum)) {
	case BEGUN:
		return answer_loan(ctx, work, config, lent.epoch, role);
	case BEGIN_BUSY: /* the store says it again */
		return ends(COUNT_drop_lent_busy, XDP_DROP);
	default:
		return answer_loan(ctx, work, config, lent.epoch, role | STATUS_NOT_FOUND);
	}
}

INLINE int lend_request(struct xdp_md *ctx, struct work *work, struct config *config)
{
	__u32 sum = 0;
	if (!is_whole(ctx, work, &sum))
		return ends(COUNT_drop_spoiled, XDP_DROP);
	return epoch_in(work) ? begin_loan(ctx, work, config, sum)
			      : prepare_loan(ctx, work, config);
}

/*
 * The store has all that there was, and its journal knows no more of the loan: no value is left
 * that a store which finds an old journal could take for the newest. With FLAG_COMPARE nobody will
 * ask any more which writes were kept, either.
 */
INLINE void end_record(const struct work *work, struct kept *record)
{
	record->version = 0;
	record->value_len = KEPT_NO_VALUE;
	if (!(work->header.flags & FLAG_COMPARE))
		return;
	give_windows_back(record);
	record->state = KEPT_FREE;
}

/*
 * Seals the record if the store wants it; says what it asks, as flags of the answer. 0xff: others
 * keep it locked.
 */
OUTLINE int ask_record(struct work *work, struct lent *lent)
{
	if (!work || !lent || !lock_kept(lent, WHILE_PREPARED | WHILE_ACTIVE | WHILE_SEALED))
		return 0xff;
	struct kept *record = lent->record;
	int flags = 0;
	/*
	 * It never began, and never will: a store that knows only that it might have hears that
	 * nothing is lost.
	 */
	if (record->state == KEPT_PREPARED)
		record->version = 0;
	if (record->state == KEPT_SEALED && (work->header.flags & FLAG_ALL)) {
		end_record(work, record);
	} else if ((work->header.flags & FLAG_GRANT) || record->state == KEPT_SEALED) {
		record->state = KEPT_SEALED;
		flags = FLAG_GRANT;
	}
	record->seen_ns = work->now_ns;
	if (work->header.client && !record->is_owner) {
		__u64 request = bpf_be64_to_cpu(work->header.request);
		enum window_says says = was_kept(lent, work->header.client, request);
		flags |= says == WINDOW_KEPT ? FLAG_CACHED : 0;
		flags |= says == WINDOW_TOO_OLD ? FLAG_ALL : 0;
	}
	unlock_seq(&record->seq);
	return flags;
}

/* The answer, which carries the value unless the store has it, or none was kept. */
INLINE int answer_take(struct xdp_md *ctx, struct work *work, struct config *config, __u8 flags,
		       const struct kept_value *value)
{
	bool has_value = value->version != bpf_be64_to_cpu(work->header.version) &&
			 value->len <= VALUE_MAX_BYTES;
	__u32 len = has_value ? value->len : 0;
	work->header.op = OP_TAKE_REPLY;
	/* Whether a value of no bytes is one. */
	work->header.flags = flags | (has_value ? 0 : FLAG_COMPARE);
	work->header.value_len = bpf_htons(len);
	work->header.version = bpf_cpu_to_be64(value->version);
	work->header.epoch = bpf_cpu_to_be64(epoch_pair(config->switch_id, take_epoch(config)));
	count(COUNT_take);
	return send_back(ctx, work, KV_HEADER_LEN + work->key_len + len,
			 has_value ? value->sum : 0);
}

INLINE int take_request(struct xdp_md *ctx, struct work *work, struct config *config)
{
	struct lent lent = {};
	struct kept_value value = {};
	__u32 states = WHILE_ACTIVE | WHILE_SEALED;
	if (!is_trusted(ctx, work))
		return ends(COUNT_drop_spoiled, XDP_DROP);
	__u16 life = bpf_ntohs(work->header.life);
	/*
	 * A second one may have been prepared, by the same word on another CPU: what is active
	 * comes first.
	 */
	if (!find_kept(work, states, life, 0, &lent) &&
	    !((work->header.flags & FLAG_GRANT) &&
	      find_kept(work, WHILE_PREPARED, life, 0, &lent))) {
		value.version = bpf_be64_to_cpu(work->header.version);
		return answer_take(ctx, work, config, STATUS_NOT_FOUND, &value);
	}
	int flags = ask_record(work, &lent);
	if (flags == 0xff)
		return ends(COUNT_drop_lent_busy, XDP_DROP);
	value.version = READ_ONCE(lent.record->version);
	if (READ_ONCE(lent.record->value_len) == KEPT_NO_VALUE)
		value.len = KEPT_NO_VALUE;
	else if (load_kept(ctx, work, loan_of(&lent), states, &value) != KEPT_LOADED)
		return ends(COUNT_drop_lent_busy, XDP_DROP);
	return answer_take(ctx, work, config, flags, &value);
}
