/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A client's read, at any member. */
#pragma once

#include "tally.h"
#include "write.h"

#define READ_TRIES_HERE 4

/* What is here of a key, as it was at one moment. */
struct seen {
	__u64 last;
	__u64 clean;
	__u64 filled;
	__u64 mark_number;
	__u32 seq; /* of the item */
	__u32 len;
	__u16 sum;
	__u8 present; /* the newest version is a value */
	__u8 is_old_dirt; /* it has not been known to be committed for long */
	__u32 unused;
};

WHOLE int see(struct item *item, struct record *record, struct seen *seen, __u64 now_ns)
{
	if (!item || !record || !seen)
		return false;
	for (int i = 0; i < READ_TRIES_HERE; i++) {
		seen->seq = READ_ONCE(item->seq);
		barrier();
		seen->last = READ_ONCE(record->last);
		seen->clean = READ_ONCE(record->clean);
		seen->filled = READ_ONCE(record->filled);
		seen->mark_number = READ_ONCE(record->mark_number);
		const struct version *version = version_at(record, seen->last);
		seen->present =
			seen->last && version->seq == seen->last && !(version->flags & DELETED);
		seen->len = version->len;
		seen->sum = version->sum;
		seen->is_old_dirt = seen->last != seen->clean &&
				    (__u32)(now_ns >> DIRTY_SHIFT) - record->since > DIRTY_LONG;
		barrier();
		if (!(seen->seq & 1) && READ_ONCE(item->seq) == seen->seq)
			return true;
	}
	return false;
}

/* Where it is. */
struct spot {
	struct item *item;
	struct record *record;
};

/* What the answer tells its own copy that goes round: in `node`, which says nothing to clients. */
#define TELL_SLOT 0x1f /* this slot, plus 1, is to hear that the version is committed */
#define TELL_PREDECESSOR 0x20 /* that nothing after the version has come */

INLINE int send_answer(struct xdp_md *ctx, struct work *work, __u32 tell, bool was_sent_on)
{
	if (!was_sent_on)
		return send_here(ctx);
	int verdict = send_off(ctx, work);
	return tell ? round_too(work, verdict) : verdict;
}

/* The version's value into the packet; a status, or ~0 where it is no longer what was seen. */
WHOLE int copy_seen(struct xdp_md *ctx, struct work *work, struct item *item, struct record *record,
		    const struct seen *seen)
{
	if (!work || !item || !record || !seen)
		return ~0;
	if (!seen->present)
		return STATUS_NOT_FOUND;
	if (!make_room(ctx, work, KV_HEADER_LEN + work->key_len + seen->len))
		return STATUS_NEED_PADDING;
	bool is_given = give_value(ctx, record, seen->last, behind_key(work), seen->len);
	barrier();
	return is_given && READ_ONCE(item->seq) == seen->seq ? 0 : ~0;
}

/*
 * Answers with what was seen, if it still is so. Where another member sent the read here, that one
 * may be told something.
 */
INLINE int answer_seen(struct xdp_md *ctx, struct work *work, const struct here *here,
		       const struct spot *spot, const struct seen *seen, __u32 tell)
{
	bool was_sent_on = work->header.node;
	int status = copy_seen(ctx, work, spot->item, spot->record, seen);
	if (status < 0 || !is_still(work, here))
		return try_again(ctx, work, here, COUNT_bypass_torn);
	make_header(work, here, OP_CHAIN_READ_REPLY, FLAG_CACHED | status, seen->last);
	work->header.node = bpf_htons(tell);
	if (status == STATUS_NEED_PADDING)
		work->header.total = bpf_htonl(seen->len);
	if (!finish_back(ctx, work, status ? 0 : seen->len, status ? 0 : seen->sum))
		return ends(COUNT_drop_refused, XDP_DROP);
	tally(work, READS);
	return send_answer(ctx, work, tell, was_sent_on);
}

/* What a sum over the addresses gains if they become others. `count` is a constant. */
INLINE __u64 sum_moved(const __be32 *from, const __be32 *to, int count)
{
	__u64 sum = 0;
	for (int i = 0; i < count; i++)
		sum += (__u64)to[i] + (__u32)~from[i];
	return sum;
}

/* Before `work->header` and addresses are written over, which add `moved` to a sum over them. */
INLINE void carry_all(struct xdp_md *ctx, struct work *work, struct udphdr *udp,
		      const struct kv_header *kv, __u64 moved)
{
	__u64 pseudo;
	if (udp->check && pseudo_sum(ctx, work, bpf_ntohs(udp->len), &pseudo))
		carry_on(ctx, work, udp, kv, CHANGING_WORDS, moved, pseudo);
}

/*
 * Sends a request on to another member, with `work->header`; what is behind the key stays as it is.
 */
WHOLE int send_request(struct xdp_md *ctx, struct work *work, const struct member *to)
{
	struct udphdr *udp = work ? header_at(ctx, work->l4, struct udphdr) : NULL;
	struct kv_header *kv = work ? header_at(ctx, work->kv, struct kv_header) : NULL;
	if (!udp || !kv || !to)
		return ends(COUNT_drop_refused, XDP_DROP);
	sign(work);
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (!ip)
			return ends(COUNT_drop_refused, XDP_DROP);
		carry_all(ctx, work, udp, kv, sum_moved((__be32 *)&ip->daddr, to->address, 4));
		__builtin_memcpy(&ip->daddr, to->address, sizeof(ip->daddr));
	} else {
		struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
		if (!ip)
			return ends(COUNT_drop_refused, XDP_DROP);
		__u64 moved = sum_moved(&ip->daddr, to->address, 1);
		carry_all(ctx, work, udp, kv, moved);
		ip->check = checksum_of((__u16)~ip->check + moved);
		ip->daddr = to->address[0];
	}
	*kv = work->header;
	return send_off(ctx, work);
}

/* To another member, with what this one has. */
INLINE int read_on(struct xdp_md *ctx, struct work *work, const struct here *here, __u64 last,
		   __u32 place, bool is_old_dirt)
{
	work->header.node = bpf_htons(own_slot(here) + 1);
	work->header.version = bpf_cpu_to_be64(last);
	if (is_old_dirt)
		work->header.flags |= FLAG_ALL;
	count(COUNT_order_read_on);
	tally(work, READS_ON);
	/* The list, if there is one, was for this member. */
	work->header.expiry_ms = 0;
	work->header.value_len = 0;
	return send_request(ctx, work, member_in(here, slot_at(here, place)));
}

/* A key that was never written here, as far as this member knows. */
INLINE int read_nothing(struct xdp_md *ctx, struct work *work, const struct here *here)
{
	tally(work, READS);
	return answer_bare(ctx, work, here, STATUS_NOT_FOUND, 0);
}

/* At the last member. */
INLINE int read_at_tail(struct xdp_md *ctx, struct work *work, struct here *here,
			const struct spot *spot, const struct seen *seen)
{
	__u32 tell = 0;
	bool is_clean = seen->last == seen->clean;
	if (is_filling_tail(&here->is) && seen->filled < here->is.fill_number &&
	    !MUTANT(order_reads_unfilled))
		return read_on(ctx, work, here, 0, here->is.place - 1, false);
	if ((!is_clean || here->view->protocol != NETCRAQ) && is_held(work, here))
		return try_again(ctx, work, here, COUNT_order_held);
	/* A client can claim to be a member, too. */
	if (work->header.node && version_in(work) > seen->last)
		tell = may_nack(spot->record) ? TELL_PREDECESSOR : 0;
	else if (work->header.node && (work->header.flags & FLAG_ALL))
		tell = bpf_ntohs(work->header.node) & TELL_SLOT;
	return answer_seen(ctx, work, here, spot, seen, tell);
}

/*
 * At the member before a tail that has not all yet, of a key that the tail has no part in: what is
 * here is committed. A read that came back from the tail finds it so, or asks again.
 */
INLINE bool is_last_word(const struct work *work, struct here *here, const struct seen *seen)
{
	return fills(&here->is) && seen->mark_number != here->is.fill_number &&
	       !is_held(work, here);
}

/*
 * Whether whoever asks wants the newest version that is here, committed or not, and the tenant's
 * clients may. What is committed is here in any case: the tail answered no write that a member
 * lacks.
 */
INLINE bool is_relaxed(const struct work *work, struct here *here)
{
	return (work->header.flags & FLAG_COMPARE) && (here->view->flags & VIEW_RELAXED) &&
	       !(work->header.flags & FLAG_GRANT) && !work->header.node && !is_held(work, here);
}

INLINE int read_item(struct xdp_md *ctx, struct work *work, struct here *here,
		     const struct spot *spot)
{
	struct seen seen = {};
	if (!see(spot->item, spot->record, &seen, work->now_ns))
		return try_again(ctx, work, here, COUNT_bypass_torn);
	/* Where another member sent it on, that one counted it. */
	if (seen.last != seen.clean && !work->header.node)
		count(COUNT_order_dirty);
	if (is_tail(&here->is))
		return read_at_tail(ctx, work, here, spot, &seen);
	bool is_known = seen.last == seen.clean || MUTANT(order_reads_dirty);
	bool is_netcraq = here->view->protocol == NETCRAQ;
	bool is_clean = is_netcraq && is_known;
	if (is_netcraq && !is_known && is_relaxed(work, here)) {
		count(COUNT_order_relaxed);
		is_clean = true;
	}
	if (is_clean || is_last_word(work, here, &seen))
		return answer_seen(ctx, work, here, spot, &seen, 0);
	if (work->header.node)
		return try_again(ctx, work, here, COUNT_order_unfilled);
	return read_on(ctx, work, here, seen.last, here->is.len - 1, seen.is_old_dirt);
}

/* Without an item nothing was written, unless this member is still to be copied what was. */
INLINE int read_absent(struct xdp_md *ctx, struct work *work, const struct here *here)
{
	if (is_filling_tail(&here->is))
		return read_on(ctx, work, here, 0, here->is.place - 1, false);
	if (is_tail(&here->is) || here->view->protocol == NETCRAQ || work->header.node)
		return read_nothing(ctx, work, here);
	return read_on(ctx, work, here, 0, here->is.len - 1, false);
}

/* A read that passes by: answered if this member may, or else it goes on as it came. */
INLINE int read_by_the_way(struct xdp_md *ctx, struct work *work, const struct here *here)
{
	struct seen seen = {};
	struct spot spot = {};
	if (here->view->protocol != NETCRAQ || here->is.place == NOWHERE || work->header.node ||
	    (work->header.flags & FLAG_GRANT) || number_in(work) != here->is.number ||
	    !is_leased(work, here) || !find_key(work, &spot.item, &spot.record) ||
	    !see(spot.item, spot.record, &seen, work->now_ns) || seen.last != seen.clean ||
	    (is_filling_tail(&here->is) && seen.filled < here->is.fill_number))
		return send_off(ctx, work);
	return answer_seen(ctx, work, here, &spot, &seen, 0);
}

INLINE int take_read(struct xdp_md *ctx, struct work *work, struct here *here)
{
	struct spot spot = {};
	__u64 sum = 0;
	if (here->is.place == NOWHERE || list_len(ctx, work, here, 0, &sum) > work->value_len)
		return moved(ctx, work, here);
	if (!is_leased(work, here))
		return try_again(ctx, work, here, COUNT_order_no_lease);
	/* The tail tells who watches. */
	if ((work->header.flags & FLAG_GRANT) && is_tail(&here->is))
		register_watch(ctx, work);
	else if ((work->header.flags & FLAG_GRANT) && !work->header.node)
		return read_on(ctx, work, here, 0, here->is.len - 1, false);
	if (!find_key(work, &spot.item, &spot.record))
		return read_absent(ctx, work, here);
	return read_item(ctx, work, here, &spot);
}
