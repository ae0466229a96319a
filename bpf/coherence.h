/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The switch's half of the coherence rules (docs/coherence.md): epochs, invalidation,
 * grants, leases.
 */
#pragma once

#include "mutants.h"
#include "reply.h"
#include "sketch.h"
#include "table.h"

/* Of a coarse clock and of a tick between a check and its use; taken off every deadline. */
#define CLOCK_MARGIN_NS (10 * NS_PER_MS)
/*
 * The coarse clock moves with the ticks of one processor. If that one is held up, a tick of another
 * makes up for it after five that were missed: 60 ms where a tick is 10 ms.
 */
#define CLOCK_LATE_NS (100 * NS_PER_MS)
/* An older epoch is replaced before a grant with a time to live is asked for again. */
#define EPOCH_FRESH_NS (50 * NS_PER_MS)

/* The counter has more bits than a packet: when the numbers are used up it stays at the last. */
INLINE __u64 at_most_last(__u64 epoch)
{
	return epoch < LAST_EPOCH ? epoch : LAST_EPOCH;
}

/*
 * Rule 1. Taken before the table is searched: whatever entry is published after that search gets
 * its epoch after this one, so a store that sees this epoch knows of every copy that could still
 * be valid. The last one is taken again and again; it says the same each time.
 */
INLINE __u64 take_epoch(struct config *config)
{
	if (MUTANT(epoch_repeats) && (READ_ONCE(config->epoch) & 7) == 7)
		fetch_add(&config->epoch, -4);
	return at_most_last(fetch_add(&config->epoch, 1) + 1);
}

/* The highest number taken so far. */
INLINE __u64 newest_epoch(struct config *config)
{
	return at_most_last(fetch_add(&config->epoch, 0));
}

INLINE __u64 epoch_of(__u64 word)
{
	return word >> 1;
}

INLINE bool is_valid(__u64 word)
{
	return word & 1;
}

/*
 * Rule 2: after this the item's epoch is at least `epoch`, and no value of an earlier one is
 * served. False if others kept changing it meanwhile; then nothing may be claimed.
 */
INLINE bool raise_epoch(struct item *item, __u64 epoch, __u64 now_ns)
{
	for (int i = 0; i < 4; i++) {
		__u64 word = READ_ONCE(item->word);
		if (epoch_of(word) >= epoch && !MUTANT(entry_epoch_falls))
			return true;
		if (MUTANT(entry_keeps_epoch))
			epoch = epoch_of(word);
		if (compare_and_swap(&item->word, word, epoch << 1) == word) {
			WRITE_ONCE(item->epoch_ns, now_ns);
			return true;
		}
	}
	return false;
}

INLINE struct lease *lease_of(const struct item *item)
{
	__u32 slot = item->lease;
	return bpf_map_lookup_elem(&leases, &slot);
}

/* Whether a deadline is still to come; close to it the fine clock decides. */
INLINE bool is_before(__u64 now_ns, __u64 deadline_ns)
{
	return now_ns + CLOCK_LATE_NS < deadline_ns ||
	       (now_ns < deadline_ns && fine_clock_ns() < deadline_ns);
}

/* Rule 6. A deadline is read before the floor: the writer stores them the other way round. */
INLINE bool lease_holds(const struct lease *lease, __u64 now_ns)
{
	__u64 until = READ_ONCE(lease->until_ns);
	barrier();
	return is_before(now_ns, until) || MUTANT(serves_without_lease);
}

/* The sender's address as leases name stores, or the receiver's. */
INLINE bool address_of(struct xdp_md *ctx, const struct work *work, bool sender, __u64 address[2])
{
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (!ip)
			return false;
		__builtin_memcpy(address, sender ? &ip->saddr : &ip->daddr, 16);
		return true;
	}
	struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
	if (!ip)
		return false;
	mapped_ipv4((__u8 *)address, sender ? ip->saddr : ip->daddr);
	return true;
}

INLINE bool came_from(struct xdp_md *ctx, const struct work *work, const struct lease *lease)
{
	__u64 address[2];
	const __u64 *store = (const __u64 *)lease->store;
	return address_of(ctx, work, true, address) && address[0] == store[0] &&
	       address[1] == store[1];
}

/* Whether the packet carries something for (this switch, some epoch). */
INLINE bool names_this_switch(const struct work *work, const struct config *config)
{
	return bpf_be64_to_cpu(work->header.epoch) >> EPOCH_NUMBER_BITS == config->switch_id;
}

/* Puts (switch, epoch) into the request on its way to the store. */
INLINE void stamp(struct xdp_md *ctx, struct work *work, const struct config *config, __u64 epoch,
		  __u8 grant)
{
	work->header.epoch = bpf_cpu_to_be64(epoch_pair(config->switch_id, epoch));
	if (epoch == LAST_EPOCH)
		grant = 0;
	work->header.flags = (work->header.flags & ~FLAG_GRANT) | grant;
	sign(work);
	rewrite_header(ctx, work);
}

/*
 * A request that came with a stamp of ours was given it by somebody else: only we know our epochs.
 */
INLINE void disown(struct xdp_md *ctx, struct work *work, const struct config *config)
{
	if (!work->header.epoch || !names_this_switch(work, config))
		return;
	work->header.epoch = 0;
	work->header.flags &= ~FLAG_GRANT;
	sign(work);
	rewrite_header(ctx, work);
}

/*
 * A read of an entry that holds no value to serve: the reply shall be a grant. An epoch of an
 * earlier term, or one too old to count a time to live from, is replaced first. Another switch on
 * the way may have asked already; a packet has room for one.
 */
INLINE void ask_for_grant(struct xdp_md *ctx, struct work *work, struct config *config,
			  struct item *item, const struct lease *lease)
{
	if (work->header.epoch && !names_this_switch(work, config))
		return;
	__u64 word = READ_ONCE(item->word), epoch = epoch_of(word);
	bool old = work->now_ns > item->epoch_ns + EPOCH_FRESH_NS;
	if (epoch <= READ_ONCE(lease->floor) || (is_valid(word) && old) ||
	    ((item->flags & ITEM_EXPIRES) && old)) {
		epoch = take_epoch(config);
		if (!raise_epoch(item, epoch, work->now_ns))
			return;
		epoch = epoch_of(READ_ONCE(item->word));
	} else if (is_valid(word)) {
		return;
	}
	if (epoch != LAST_EPOCH)
		stamp(ctx, work, config, epoch, FLAG_GRANT);
}

INLINE __u64 epoch_in(const struct work *work)
{
	return bpf_be64_to_cpu(work->header.epoch) & EPOCH_NUMBER_MASK;
}

/*
 * What ends here no receiver's checksum covers, nor what is answered with a checksum that is made
 * anew: its tag must, or else its own.
 */
INLINE bool is_trusted(struct xdp_md *ctx, struct work *work)
{
	return has_secret(work) || is_intact(ctx, work, 0);
}

/* Copies the packet's value into the item, which the caller has locked. */
INLINE bool load_value(struct xdp_md *ctx, const struct work *work, const struct found *found)
{
	__u32 at = work->kv + KV_HEADER_LEN + work->key_len, len = work->value_len, size = 0;
	__u8 *value = value_of(found, work->key_len);
	if (len > VALUE_MAX_BYTES)
		return false;
	if (len & 7) { /* zeros up to a whole word, for checksums */
		__u32 last = len & 0x7f8;
		opaque(last);
		if (last > VALUE_MAX_BYTES)
			return false;
		__builtin_memset(value + last, 0, 8);
	}
	return !len || (is_size(len, VALUE_MAX_BYTES, &size) &&
			bpf_xdp_load_bytes(ctx, at, value, size) == 0);
}

/* A grant that does not fit: the agent is told once. The caller has locked the item. */
INLINE int refuse_too_large(struct work *work, const struct config *config, struct item *item)
{
	/* More than any entry holds, where this is a part only. */
	__u16 len = is_part(&work->header) ? 0xffff : work->value_len;
	if (!(item->flags & ITEM_TOO_SMALL) &&
	    send_event(work, EVENT_TOO_LARGE, 0, len, config->window))
		item->flags |= ITEM_TOO_SMALL;
	return COUNT_grant_too_large;
}

/*
 * Version and life of what was granted, into the item, which the caller has locked: a life counts
 * from the epoch, and is shorter by what two clocks may part in it, as a lease is.
 */
INLINE void write_life(const struct work *work, struct item *item)
{
	__u32 expiry_ms = bpf_ntohl(work->header.expiry_ms);
	__u64 from_ns = MUTANT(expiry_from_arrival) ? work->now_ns : READ_ONCE(item->epoch_ns);
	__u64 life_ns = expiry_ms * NS_PER_MS;
	__u64 expiry_ns = from_ns + life_ns - life_ns / 64;
	item->flags = (item->flags & ITEM_CELLS) | (expiry_ms ? ITEM_EXPIRES : 0);
	item->expiry_ns = expiry_ns > CLOCK_MARGIN_NS ? expiry_ns - CLOCK_MARGIN_NS : 0;
	item->version = bpf_be64_to_cpu(work->header.version);
}

/*
 * Writes a grant into the item, which the caller has locked while its epoch was the grant's and its
 * value invalid. Others may raise the epoch meanwhile, which the compare-and-swap notices; nobody
 * can set the valid bit, which takes the lock.
 */
INLINE int write_item(struct xdp_md *ctx, struct work *work, const struct config *config,
		      const struct found *found, __u64 granted)
{
	struct item *item = found->item;
	__u32 need = sizeof(*item) + key_room(work->key_len) + ((work->value_len + 7) & ~7U);
	if (need > (item->flags & ITEM_CELLS) * CELL_BYTES || work->value_len > VALUE_MAX_BYTES ||
	    is_part(&work->header))
		return refuse_too_large(work, config, item);
	write_life(work, item);
	item->value_len = work->value_len;
	if (!load_value(ctx, work, found))
		return COUNT_grant_stale;
	item->sum = sum_of(value_of(found, work->key_len), work->value_len);
	if (!is_intact(ctx, work, item->sum))
		return COUNT_grant_spoiled;
	if (compare_and_swap(&item->word, granted, granted | 1) != granted)
		return COUNT_grant_stale;
	return COUNT_grant_installed;
}

/* What speaks against a grant for this item, but for its epoch: a counter, or NOTHING. */
INLINE enum counter refusal(struct xdp_md *ctx, const struct work *work, const struct lease *lease)
{
	if (!lease || epoch_in(work) <= READ_ONCE(lease->floor) || epoch_in(work) == LAST_EPOCH)
		return COUNT_grant_stale;
	return came_from(ctx, work, lease) ? NOTHING : COUNT_grant_refused;
}

/* The item takes version and life of a value in parts, under the lock that the caller has. */
INLINE int write_parts_item(const struct work *work, struct item *item, __u64 granted)
{
	write_life(work, item);
	item->value_len = VALUE_IN_PARTS;
	return compare_and_swap(&item->word, granted, granted | 1) == granted
		       ? COUNT_grant_installed
		       : COUNT_grant_stale;
}

/*
 * Rule 5 for a part of a value that no packet holds. The first that comes makes the item valid for
 * its version; after that others of that version are as good. What is to become of the part itself
 * is the caller's affair. `part_sum` is its sum.
 */
OUTLINE int install_part(struct xdp_md *ctx, struct work *work, __u32 *part_sum)
{
	struct found found;
	if (!work || !part_sum || !find(work, &found))
		return COUNT_grant_no_entry;
	struct item *item = found.item;
	__u64 granted = epoch_in(work) << 1;
	enum counter why = refusal(ctx, work, lease_of(item));
	if (why != NOTHING)
		return why;
	if (KV_HEADER_LEN + work->key_len + work->value_len != work->payload_len ||
	    !sum_in_packet(ctx, work, part_sum) || !is_intact(ctx, work, *part_sum))
		return COUNT_grant_spoiled;
	__u32 seq = READ_ONCE(item->seq);
	if ((seq & 1) || compare_and_swap(&item->seq, seq, seq + 1) != seq)
		return COUNT_grant_busy;
	int result = COUNT_grant_stale;
	if (READ_ONCE(item->word) == granted)
		result = write_parts_item(work, item, granted);
	else if (READ_ONCE(item->word) == (granted | 1) && item->value_len == VALUE_IN_PARTS &&
		 item->version == bpf_be64_to_cpu(work->header.version))
		result = COUNT_grant_installed;
	barrier();
	fetch_add(&item->seq, 1);
	return result;
}

/* Rule 5: the value is installed if the item's epoch is still the one it was granted for. */
OUTLINE int install(struct xdp_md *ctx, struct work *work, struct config *config)
{
	struct found found;
	if (!work || !config)
		return COUNT_grant_no_entry;
	if (!find(work, &found))
		return COUNT_grant_no_entry;
	struct item *item = found.item;
	__u64 granted = epoch_in(work) << 1;
	if (MUTANT(installs_any_epoch))
		granted = epoch_of(READ_ONCE(item->word)) << 1;
	if (READ_ONCE(item->word) != granted)
		return COUNT_grant_stale;
	enum counter why = refusal(ctx, work, lease_of(item));
	if (why != NOTHING)
		return why;
	if (MUTANT(overwrites_younger))
		barrier();
	__u32 seq = READ_ONCE(item->seq);
	if ((seq & 1) || compare_and_swap(&item->seq, seq, seq + 1) != seq)
		return COUNT_grant_busy;
	/*
	 * Again, under the lock: a younger grant may have been installed since, and must stay
	 * untouched.
	 */
	int result = READ_ONCE(item->word) == granted || MUTANT(overwrites_younger)
			     ? write_item(ctx, work, config, &found, granted)
			     : COUNT_grant_stale;
	barrier(); /* a compare-and-swap that failed orders nothing */
	fetch_add(&item->seq, 1);
	return result;
}

/*
 * A store wants this key invalid here; the acknowledgement says from which epoch on it is (rule 4).
 * Whose key it is does not matter: a store that hears nothing gives up the lease, and with it every
 * tenant's copies. What was given is no copy of a store's.
 */
INLINE int invalidate(struct xdp_md *ctx, struct work *work, struct config *config)
{
	if (!is_trusted(ctx, work))
		return ends(COUNT_drop_spoiled, XDP_DROP);
	__u64 epoch = MUTANT(ack_takes_no_epoch) ? newest_epoch(config) : take_epoch(config);
	struct found found;
	if (find(work, &found) && lease_of(found.item) && !MUTANT(ack_invalidates_nothing) &&
	    !raise_epoch(found.item, epoch, work->now_ns))
		return ends(COUNT_invalidate_contended, XDP_DROP);
	work->header.op = OP_INVALIDATE_ACK;
	work->header.flags = 0;
	/*
	 * Echoed: a number that this switch has not reached yet was never its own, the grant
	 * was forged.
	 */
	work->header.version = bpf_cpu_to_be64(epoch_in(work));
	work->header.epoch = bpf_cpu_to_be64(epoch_pair(config->switch_id, epoch));
	count(COUNT_invalidate);
	return send_back_bare(ctx, work);
}

/*
 * A store offers to renew its lease: the offer becomes the request, dated now (rule 6: from
 * when sent).
 */
INLINE int ask_for_lease(struct xdp_md *ctx, struct work *work)
{
	if (!is_trusted(ctx, work))
		return ends(COUNT_drop_spoiled, XDP_DROP);
	work->header.op = OP_LEASE_REQUEST;
	work->header.version = bpf_cpu_to_be64(work->now_ns);
	count(COUNT_lease_offer);
	return send_back_bare(ctx, work);
}

/*
 * A lease, counted from when it was asked for. A new term kills every entry of the old one: epochs
 * taken so far go below the floor. While the term changes nothing is served.
 */
INLINE int take_lease(struct xdp_md *ctx, struct work *work, struct config *config)
{
	__u32 slot = bpf_be64_to_cpu(work->header.request);
	__u64 term = bpf_be64_to_cpu(work->header.client);
	__u64 sent_ns = bpf_be64_to_cpu(work->header.version);
	__u64 from_ns = MUTANT(lease_from_arrival) ? work->now_ns : sent_ns;
	__u64 until_ns = from_ns + bpf_ntohl(work->header.expiry_ms) * NS_PER_MS;
	struct lease *lease = bpf_map_lookup_elem(&leases, &slot);
	if (!lease || !came_from(ctx, work, lease) || sent_ns > work->now_ns + CLOCK_MARGIN_NS ||
	    until_ns <= work->now_ns + CLOCK_MARGIN_NS)
		return ends(COUNT_lease_stale, XDP_DROP);
	if (!is_trusted(ctx, work))
		return ends(COUNT_drop_spoiled, XDP_DROP);
	if (compare_and_swap(&lease->lock, 0, 1) != 0)
		return ends(COUNT_lease_stale, XDP_DROP);
	until_ns -= CLOCK_MARGIN_NS;
	if (lease->term != term) {
		WRITE_ONCE(lease->until_ns, 0);
		barrier();
		if (!MUTANT(floor_not_raised))
			WRITE_ONCE(lease->floor, newest_epoch(config));
		lease->term = term;
	}
	barrier();
	if (lease->until_ns < until_ns)
		WRITE_ONCE(lease->until_ns, until_ns);
	compare_and_swap(&lease->lock, 1, 0);
	return ends(COUNT_lease_renewed, XDP_DROP);
}
