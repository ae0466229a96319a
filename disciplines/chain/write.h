/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A client's write, at the head. */
#pragma once

#include "tally.h"
#include "client.h"
#include "commit.h"

/* What a write says, and what comes of it. */
struct write {
	struct facts is;
	struct ask ask;
	__u64 seq; /* of the version, or what refused it */
	__u64 accepted; /* the number under which the head took it */
	__u64 clean; /* what is known to be committed here */
	__u32 at; /* of the value in the packet */
	__u16 sum;
	__u16 len;
	__u8 status; /* why it was refused */
	__u8 absent; /* that there was no such key */
	__u8 flags; /* DELETE */
	__u8 versions; /* of the ring */
	__u8 jump; /* word to a filling tail, which may not have the key yet */
	__u8 heard; /* answers to its client pass here */
	__u8 too_long; /* on its way to the next member the links here do not carry it */
	__u8 unused;
};

enum outcome { TAKEN, REFUSED, KNOWN, OLD, FULL, BUSY };

/*
 * Bytes of the list of addresses before a value, if it is the row's, and their sum; more than any,
 * if it is not.
 */
OUTLINE __u32 list_len(struct xdp_md *ctx, struct work *work, const struct here *here, __u32 before,
		       __u64 *sum)
{
	if (!work || !here || !sum)
		return ~0U;
	__u32 count = bpf_ntohl(work->header.expiry_ms), each = work->is_ipv6 ? 16 : 4;
	if (!count)
		return 0;
	if (count >= CHAIN_MEMBERS || count != here->is.len - 1 - here->is.place ||
	    work->value_len < before + count * each)
		return ~0U;
	for (__u32 i = 0; i < CHAIN_MEMBERS - 1; i++) {
		__be32 there[4] = {};
		if (i >= count)
			break;
		const __be32 *member =
			member_in(here, slot_at(here, here->is.place + 1 + i))->address;
		__u32 at = behind_key(work) + before + i * each;
		long failed = work->is_ipv6 ? bpf_xdp_load_bytes(ctx, at, there, 16)
					    : bpf_xdp_load_bytes(ctx, at, there, 4);
		if (failed || there[0] != member[0] || there[1] != member[1] ||
		    there[2] != member[2] || there[3] != member[3])
			return ~0U;
		*sum += sum_words(there, 2);
	}
	return count * each;
}

/* Whether it goes down no chain, a condition does not hold, or there is nothing to delete. */
INLINE bool is_refused(const struct work *work, struct record *record, struct write *write)
{
	__u64 condition = bpf_be64_to_cpu(write->ask.condition);
	bool present = is_present(record);
	write->absent = !present;
	write->seq = record->last;
	write->status = STATUS_TOO_LARGE >> 4;
	if (write->too_long)
		return true;
	write->status = STATUS_MISMATCH >> 4;
	if (work->header.flags & FLAG_COMPARE) {
		if (condition == 0)
			return present;
		return !present || (condition != ~0ULL && condition != record->last);
	}
	write->status = STATUS_NOT_FOUND >> 4;
	return (write->flags & DELETE) && !present;
}

INLINE void write_note(struct note *note, __u64 request, __u64 seq, __u8 refused, __u8 absent,
		       const struct facts *is)
{
	note->under = is->number;
	note->chain = is->chain;
	note->request = request;
	note->seq = seq;
	note->refused = refused;
	note->absent = absent;
}

/* Rule 10's other half: since when the chain's present tail takes part in the key's writes. */
INLINE void mark(const struct facts *is, struct record *record, __u64 seq)
{
	if (is->fill_number && record->mark_number != is->fill_number &&
	    !MUTANT(order_marks_nothing)) {
		record->mark_number = is->fill_number;
		record->mark_seq = seq;
	}
}

/* Puts the version behind the last one. The item is locked. */
WHOLE int put_version(struct xdp_md *ctx, const struct work *work, struct record *record,
		      const struct write *write)
{
	if (!work || !record || !write)
		return false;
	struct version *version = version_at(record, write->seq);
	if (!take_value(ctx, record, write->seq, write->at, write->len))
		return false;
	version->seq = write->seq;
	version->accepted = write->accepted;
	version->client = bpf_be64_to_cpu(work->header.client);
	version->request = bpf_be64_to_cpu(work->header.request);
	version->session = bpf_be64_to_cpu(write->ask.session);
	version->len = write->len;
	version->sum = write->sum;
	version->flags = write->flags & DELETE ? DELETED : 0;
	version->flags |= write->heard ? ANSWERED_BY : 0;
	mark(&write->is, record, write->seq);
	if (record->last == record->clean)
		record->since = dirty_now(work);
	record->last = write->seq;
	return true;
}

/*
 * Rule 7: which versions are known to be committed where nothing is held back: all, at the tail; at
 * the member before one that is being filled, those that it has no part in.
 */
INLINE void commit_own(struct record *record, const struct facts *is)
{
	bool is_all = is_tail(is) || MUTANT(order_clean_at_once);
	__u64 own = is_all ? record->last : fills(is) ? boundary_of(is, record) : 0;
	if (!is->held && own > record->clean)
		record->clean = own;
}

/* Between the locks: an enum outcome. */
WHOLE int decide_write(struct xdp_md *ctx, const struct work *work, struct record *record,
		       struct session *session, struct write *write)
{
	if (!work || !record || !session || !write)
		return BUSY;
	struct note *note = note_of(work, session);
	__u64 request = bpf_be64_to_cpu(work->header.request);
	commit_own(record, &write->is);
	write->clean = record->clean;
	write->versions = versions_of(record);
	if (request < note->request)
		return OLD;
	if (request == note->request && !MUTANT(order_known_again)) {
		write->seq = note->seq;
		write->status = note->refused ? note->refused - 1 : 0;
		write->absent = note->absent;
		write->jump = fills(&write->is) && write->seq <= boundary_of(&write->is, record);
		return KNOWN;
	}
	if (is_refused(work, record, write)) {
		if (!MUTANT(order_refusal_unnoted))
			write_note(note, request, write->seq, write->status + 1, write->absent,
				   &write->is);
		session->seen = write->is.number;
		write->jump = fills(&write->is) && write->seq <= boundary_of(&write->is, record);
		return REFUSED;
	}
	/* Rule 8: whoever writes over a version knows that all have it. */
	if (record->last + 1 - record->clean > versions_of(record) && !MUTANT(order_window_open))
		return FULL;
	write->seq = record->last + 1;
	write->heard = session->heard == write->is.number;
	if (!put_version(ctx, work, record, write))
		return BUSY;
	write_note(note, request, write->seq, 0, 0, &write->is);
	session->seen = write->is.number;
	commit_own(record, &write->is);
	write->jump = fills(&write->is) && write->seq == record->mark_seq;
	return TAKEN;
}

/* The client's packet becomes word to the next member, with the value where it is. */
INLINE int pass_write(struct xdp_md *ctx, struct work *work, const struct here *here,
		      struct write *write, __u8 kind, __u8 more_flags)
{
	struct peer peer = {.kind = kind};
	__u32 before = write->at - behind_key(work);
	bool has_value = kind == PASS;
	peer.flags = REPLY | more_flags | (is_signed_also(work) ? ALSO : 0);
	peer.flags |= (write->jump ? JUMP : 0) | (write->heard ? HEARD : 0);
	peer.session = write->ask.session;
	peer.clean = bpf_cpu_to_be64(write->clean);
	peer.accepted = bpf_cpu_to_be64(here->is.number);
	if (has_value)
		peer.flags |= write->flags & DELETE;
	else
		peer.flags |= write->absent ? DELETE : 0;
	peer.status = bpf_htons(write->status);
	peer.unused = value_of_peer(has_value ? write->len : 0, has_value ? write->sum : 0);
	if (!move_front(ctx, work, (int)sizeof(peer) - (int)before))
		return ends(COUNT_drop_refused, XDP_DROP);
	make_peer_header(work, here, write->seq);
	count(COUNT_order_pass);
	return send_peer(ctx, work, here, &peer, here->is.place + 1);
}

/* A write that was refused: every member is to remember it, and the last one says so. */
INLINE int refuse(struct xdp_md *ctx, struct work *work, const struct here *here,
		  struct write *write, __u8 more_flags)
{
	__u64 version = write->absent ? 0 : write->seq;
	if (here->is.len == 1 || MUTANT(order_refused_by_head))
		return answer_bare(ctx, work, here, (__u32)write->status << 4, version);
	return pass_write(ctx, work, here, write, LOST, more_flags);
}

/*
 * A step behind, `carry` says with which flags: sends the version of the header's number to the
 * next member.
 */
#define STEP_STREAM 7

INLINE int stream(struct xdp_md *ctx, struct work *work, __u64 seq, __u32 flags)
{
	work->header.version = bpf_cpu_to_be64(seq);
	work->carry = flags;
	return next_step(ctx, work, STEP_STREAM);
}

/*
 * A write that was taken before. What is committed is answered; the rest goes down the chain
 * once more.
 */
INLINE int known(struct xdp_md *ctx, struct work *work, const struct here *here,
		 struct write *write)
{
	count(COUNT_order_known);
	if (write->status)
		return refuse(ctx, work, here, write, AGAIN);
	if (write->seq <= write->clean)
		return answer_bare(ctx, work, here, 0, write->seq);
	return stream(ctx, work, write->seq, REPLY | AGAIN | (is_signed_also(work) ? ALSO : 0));
}

/*
 * As many versions are under way as may be. If that lasts, they are sent again, and
 * acknowledged again.
 */
INLINE int full(struct xdp_md *ctx, struct work *work, const struct here *here, struct write *write,
		struct record *record)
{
	count(COUNT_order_full);
	if (record && is_dirty_for_long(work, record) && here->is.len > 1) {
		WRITE_ONCE(record->since, dirty_now(work));
		return stream(ctx, work, write->clean + 1, MORE | AGAIN);
	}
	return answer_bare(ctx, work, here, STATUS_TRY_AGAIN, 0);
}

/*
 * Notes that a write of a key without an item was refused: it needs the key to be there, or is too
 * long. Nothing precedes it.
 */
WHOLE int decide_new(const struct work *work, struct session *session, struct write *write)
{
	if (!work || !session || !write)
		return BUSY;
	__u64 request = bpf_be64_to_cpu(work->header.request);
	bool is_compared = work->header.flags & FLAG_COMPARE;
	struct note *note = note_of(work, session);
	write->seq = note->seq;
	write->clean = note->seq; /* whoever removed the item knew so */
	write->status = note->refused ? note->refused - 1 : 0;
	write->absent = note->absent;
	write->jump = fills(&write->is);
	if (request <= note->request)
		return request < note->request ? OLD : KNOWN;
	if (!write->too_long && (is_compared ? !write->ask.condition : !(write->flags & DELETE)))
		return TAKEN;
	write->status = (is_compared ? STATUS_MISMATCH : STATUS_NOT_FOUND) >> 4;
	if (write->too_long)
		write->status = STATUS_TOO_LARGE >> 4;
	write->seq = 0;
	write->absent = 1;
	write_note(note, request, 0, write->status + 1, 1, &write->is);
	session->seen = write->is.number;
	return REFUSED;
}

/* What comes of the write once it was looked at. */
INLINE int carry_out(struct xdp_md *ctx, struct work *work, const struct here *here,
		     struct write *write, struct record *record, int outcome)
{
	switch (outcome) {
	case TAKEN:
		count(COUNT_order_apply);
		tally(work, WRITES);
		if (here->is.len > 1)
			return pass_write(ctx, work, here, write, PASS, 0);
		count(COUNT_order_commit);
		if (is_watched(work, 0))
			return commit(ctx, work, here, write->seq,
				      REPLY | (is_signed_also(work) ? ALSO : 0));
		return answer_bare(ctx, work, here, 0, write->seq);
	case REFUSED:
		count(COUNT_order_refuse);
		return refuse(ctx, work, here, write, 0);
	case KNOWN:
		return known(ctx, work, here, write);
	case FULL:
		return full(ctx, work, here, write, record);
	case OLD:
		return answer_bare(ctx, work, here, STATUS_FORGOTTEN, 0);
	default:
		return ends(COUNT_drop_order_busy, XDP_DROP);
	}
}

/*
 * Whether there is no room for another item of the tenant's, or for that of the key or session with
 * this low half of its hash.
 */
OUTLINE int is_full(const struct work *work, __u64 hash)
{
	if (!work)
		return false;
	struct no_room key = {.tenant = bpf_ntohl(work->header.tenant)};
	if (bpf_map_lookup_elem(&chain_full, &key))
		return true;
	key.mark = hash ^ hash >> 32;
	if (!key.mark)
		key.mark = 1;
	return bpf_map_lookup_elem(&chain_full, &key) != NULL;
}

/* Whether the key still has no item, asked under the lock of the session. */
WHOLE int is_new_key(const struct work *work)
{
	struct found found = {};
	return work && (MUTANT(order_new_unlocked) || !find_given(work, &found));
}

/*
 * A write of a key that has no item: refused, or the control half is to make one. It may have been
 * made just now, and this very write have been taken by another CPU, which notes it in the session:
 * nothing is known then of what all have.
 */
INLINE int write_new(struct xdp_md *ctx, struct work *work, const struct config *config,
		     const struct here *here, struct write *write, const struct pair *pair)
{
	int outcome = BUSY;
	if (!try_lock(&pair->session_item->seq))
		return ends(COUNT_drop_order_busy, XDP_DROP);
	if (is_still(work, here) && is_new_key(work))
		outcome = decide_new(work, pair->session, write);
	unlock_item(pair->session_item);
	/* The next version would be FULL's; there is no record to send it from. */
	if (outcome != TAKEN)
		return carry_out(ctx, work, here, write, NULL, outcome);
	if (is_full(work, work->hash[1] ^ hash_salt(bpf_ntohl(work->header.tenant))))
		return answer_bare(ctx, work, here, STATUS_NO_ROOM, 0);
	report_key(work, config);
	return try_again(ctx, work, here, COUNT_miss);
}

/*
 * Whether the links here do not carry a value of that length to the next member. A version that
 * nobody can send on would stand in the ring for ever, and keep out those behind it. A chain of one
 * may have more members tomorrow.
 */
INLINE bool is_too_long(const struct work *work, __u32 len)
{
	return !is_carried(behind_key(work) + sizeof(struct peer) + len);
}

/* Reads what the packet says; the value's sum once it is known to be as it was sent. */
INLINE enum counter read_write(struct xdp_md *ctx, struct work *work, const struct here *here,
			       struct write *write)
{
	bool is_delete = work->header.flags & FLAG_ALL;
	__u64 sum = 0;
	if (is_part(&work->header) || !(bpf_be64_to_cpu(work->header.request) >> 4) ||
	    !read_behind_key(ctx, work, &write->ask, sizeof(write->ask)))
		return COUNT_drop_refused;
	__u32 list = list_len(ctx, work, here, sizeof(write->ask), &sum);
	__u32 before = sizeof(write->ask) + list;
	if (list > work->value_len)
		return COUNT_order_moved;
	write->len = work->value_len - before;
	write->at = behind_key(work) + before;
	write->flags = is_delete ? DELETE : 0;
	write->too_long = is_too_long(work, write->len);
	if (is_delete && write->len)
		return COUNT_drop_refused;
	sum += sum_words(&write->ask, sizeof(write->ask) / 8);
	return value_sum(ctx, work, sum, &write->sum) ? NOTHING : COUNT_drop_spoiled;
}

/* The session is not here: the control half is to make it. */
INLINE int no_session(struct xdp_md *ctx, struct work *work, const struct config *config,
		      const struct here *here, __u64 hash)
{
	if (is_full(work, hash))
		return answer_bare(ctx, work, here, STATUS_NO_ROOM, 0);
	report_session(work, config, hash);
	count(COUNT_order_no_session);
	return answer_bare(ctx, work, here, STATUS_NO_SESSION, 0);
}

INLINE int take_write(struct xdp_md *ctx, struct work *work, const struct config *config,
		      struct here *here)
{
	struct write write = {};
	struct pair pair = {};
	if (here->is.place)
		return moved(ctx, work, here);
	enum counter wrong = read_write(ctx, work, here, &write);
	if (wrong == COUNT_order_moved)
		return moved(ctx, work, here);
	if (wrong != NOTHING)
		return ends(wrong, XDP_DROP);
	if (is_held(work, here) && !MUTANT(order_writes_held))
		return try_again(ctx, work, here, COUNT_order_held);
	write.is = here->is;
	write.accepted = here->is.number;
	__u64 hash = bpf_be64_to_cpu(write.ask.session);
	if (!find_session(work, hash, &pair.session_item, &pair.session))
		return no_session(ctx, work, config, here, hash);
	bool has_key = find_key(work, &pair.key_item, &pair.key);
	/* Keys of ours are no client's to write, and values are of a size that a ring holds. */
	if (!work->key[0] || (has_key && write.len > value_most(pair.key)))
		return answer_bare(ctx, work, here, STATUS_TOO_LARGE, 0);
	if (!has_key)
		return write_new(ctx, work, config, here, &write, &pair);
	if (!lock_pair(&pair))
		return ends(COUNT_drop_order_busy, XDP_DROP);
	int outcome = BUSY;
	if (is_still(work, here))
		outcome = decide_write(ctx, work, pair.key, pair.session, &write);
	unlock_pair(&pair);
	return carry_out(ctx, work, here, &write, pair.key, outcome);
}
