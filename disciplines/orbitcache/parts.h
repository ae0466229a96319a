/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Values that no packet holds: their parts are kept here, and one that is read is answered from
 * here. A read of all parts becomes the packet that brings them: each time that it comes round it
 * answers with the next one.
 */
#pragma once

#include "orbits.h"

/*
 * Parts that are kept, in sets: one has the choice of as many places, and the parts of a value come
 * into sets one after the other.
 */
#define PARTS 1024
#define PART_WAYS 8
#define PART_SETS (PARTS / PART_WAYS)
/* In steps of KV_PART, as headers have it. */
#define PART_STEP (KV_PART_BYTES / KV_PART)
/*
 * A read of all parts is answered with as many at most: what a socket of the usual size takes
 * at once.
 */
#define PARTS_AT_ONCE 64

/*
 * Everything but `seq` and `used_ns` is written while `seq` is odd, and read between two looks
 * at it.
 */
struct part {
	__u32 seq;
	__u16 len;
	__u16 sum; /* of the bytes, as `sum_of` has it */
	__u64 item; /* tenant over fingerprint; 0: none */
	__u64 where; /* slot of the item over the part's place in the value */
	__u64 word; /* of the item, under which it was granted */
	__u64 used_ns; /* when it was last read or written */
	__u32 total; /* length of the value */
	__u32 unused;
	__u8 bytes[KV_PART_BYTES];
};
_Static_assert(sizeof(struct part) == 48 + KV_PART_BYTES, "no padding");

/* key: a place. Written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PARTS);
	__type(key, __u32);
	__type(value, struct part);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} orbitcache_parts SEC(".maps");

INLINE struct part *part_at(__u32 place)
{
	return bpf_map_lookup_elem(&orbitcache_parts, &place);
}

INLINE __u32 part_in(const struct work *work)
{
	return bpf_ntohs(work->header.part);
}

INLINE __u64 where_of(const struct found *found, __u32 part)
{
	return (__u64)found->slot << 16 | (part & 0xffff);
}

INLINE __u32 first_way(const struct found *found, __u32 part)
{
	__u32 start = found->slot * 0x9e3779b1U >> 16;
	return (start + part / PART_STEP & (PART_SETS - 1)) * PART_WAYS;
}

/* Whether it is that part of the item's value, granted under `word`. */
INLINE bool is_this_part(const struct part *kept, const struct work *work,
			 const struct found *found, __u64 word, __u32 part)
{
	return kept->item == item_of(work) && kept->where == where_of(found, part) &&
	       (kept->word == word || MUTANT(round_any_word));
}

/* This part of the item's value, granted under `word`; NULL: it is not kept. */
INLINE struct part *find_part(const struct work *work, const struct found *found, __u64 word,
			      __u32 part)
{
	__u32 first = first_way(found, part);
	for (__u32 i = 0; i < PART_WAYS; i++) {
		struct part *kept = part_at(first + i);
		if (kept && is_this_part(kept, work, found, word, part))
			return kept;
	}
	return NULL;
}

/*
 * The place of this part, `where` of an item; or one that is free, or the one that goes for it: of
 * the tenant that has most of the set, the one that was not used for longest.
 */
WHOLE __u32 place_of_part(struct work *work, __u64 item, __u64 where, __u32 first)
{
	__u32 free = PARTS;
	if (!work)
		return 0;
	struct set_of_ways *set = scratch_set(work);
	for (__u32 i = 0; i < PART_WAYS; i++) {
		const struct part *kept = part_at(first + i);
		if (!kept)
			return 0;
		if (kept->item == item && kept->where == where)
			return first + i;
		if (!kept->item)
			free = first + i;
		set->tenant[i] = kept->item >> 32;
		set->age[i] = age_of(kept->used_ns, work->now_ns);
	}
	/* Those beyond are not there. */
	for (__u32 i = PART_WAYS; i < SET_WAYS; i++)
		set->tenant[i] = NOBODY;
	if (free < PARTS)
		return free;
	return first + way_of(way_that_goes(work, PART_WAYS, item >> 32));
}

/* Keeps the part in the packet, which was granted under `word`; its sum is known. */
OUTLINE int keep_part(struct xdp_md *ctx, struct work *work, __u64 word, __u32 sum)
{
	struct found found = {};
	if (!work || !find(work, &found) || !work->value_len || work->value_len > KV_PART_BYTES)
		return false;
	struct part *kept =
		part_at(place_of_part(work, item_of(work), where_of(&found, part_in(work)),
				      first_way(&found, part_in(work))));
	if (!kept)
		return false;
	__u32 seq = READ_ONCE(kept->seq), len = ((work->value_len - 1) & (KV_PART_BYTES - 1)) + 1;
	if ((seq & 1) || compare_and_swap(&kept->seq, seq, seq + 1) != seq)
		return false;
	bool whole = bpf_xdp_load_bytes(ctx, work->kv + KV_HEADER_LEN + work->key_len, kept->bytes,
					len) == 0;
	kept->item = whole ? item_of(work) : 0;
	kept->where = where_of(&found, part_in(work));
	kept->word = word;
	kept->len = len;
	kept->sum = sum;
	kept->total = bpf_ntohl(work->header.total);
	kept->used_ns = work->now_ns;
	barrier();
	fetch_add(&kept->seq, 1);
	return whole;
}

/*
 * NOTHING: the part stands in the packet, the answer's header in `work`, to be sent by `send_back`
 * with these two. The copy is checked after it was made: item and part still are what they were
 * when `objection` had none. Otherwise what speaks against it, and the packet's padding is zeros.
 */
INLINE enum counter load_part(struct xdp_md *ctx, struct work *work, const struct config *config,
			      const struct found *found, struct part *kept, __u64 word,
			      __u32 *payload_len, __u32 *value_sum)
{
	const struct item *item = found->item;
	__u32 seq = READ_ONCE(kept->seq);
	barrier();
	bool same = is_this_part(kept, work, found, word, part_in(work));
	__u64 version = item->version;
	__u64 expiry_ns = item->flags & ITEM_EXPIRES ? item->expiry_ns : 0;
	__u32 total = kept->total, len = ((kept->len - 1) & (KV_PART_BYTES - 1)) + 1;
	*value_sum = kept->sum;
	*payload_len = KV_HEADER_LEN + work->key_len + len;
	if (!make_room(ctx, work, *payload_len) ||
	    bpf_xdp_store_bytes(ctx, work->kv + KV_HEADER_LEN + work->key_len, kept->bytes, len) <
		    0)
		return COUNT_bypass_no_room;
	barrier();
	if ((seq & 1) || READ_ONCE(kept->seq) != seq || READ_ONCE(item->word) != word || !same) {
		restore_padding(ctx, work, len);
		return COUNT_bypass_torn;
	}
	WRITE_ONCE(kept->used_ns, work->now_ns);
	make_answer(work, config, len, version, expiry_ns);
	work->header.total = bpf_htonl(total);
	return NOTHING;
}

/*
 * Whether the read shall be answered with all parts of its value. Only of whoever cannot be
 * anybody, and who sends as much as one answer has: each answer beyond the first is amplification
 * (docs/security.md).
 */
INLINE bool wants_all(const struct work *work)
{
	return (work->header.flags & FLAG_ALL) && !work->header.part && has_secret(work) &&
	       work->payload_len >= KV_HEADER_LEN + work->key_len + KV_PART_BYTES;
}

/*
 * Where the answer leaves and goes round, to be the next part; NULL: that one is not kept, not to
 * be sent, or above its tenant's rate. Each counts as a request, as it would if it were asked for.
 */
INLINE const void *pair_of_more(const struct work *work, const struct found *found, __u64 word,
				__u32 port)
{
	__u32 next = part_in(work) + PART_STEP;
	if (next >= PARTS_AT_ONCE * PART_STEP || !find_part(work, found, word, next) ||
	    !pays_for(work, 1))
		return NULL;
	return find_pair(port, round_for_copies(found->slot));
}

/*
 * Puts into the answer whether the next part comes after it, and then for whoever sends that by
 * which port this one left.
 */
INLINE void say_more(struct work *work, const struct config *config, bool more, __u32 port)
{
	if (!more)
		return;
	work->header.flags |= FLAG_ALL;
	work->header.epoch = bpf_cpu_to_be64(epoch_pair(config->switch_id, port));
}

/* A read of a part that is kept. */
INLINE int answer_part(struct xdp_md *ctx, struct work *work, const struct config *config,
		       const struct found *found, struct part *kept, __u64 word)
{
	__u32 payload_len = 0, value_sum = 0;
	bool all = wants_all(work);
	enum counter why =
		load_part(ctx, work, config, found, kept, word, &payload_len, &value_sum);
	if (why != NOTHING) {
		count(why);
		return forward(ctx, work);
	}
	__u32 port = ctx->ingress_ifindex;
	const void *pair = all ? pair_of_more(work, found, word, port) : NULL;
	say_more(work, config, pair, port);
	int verdict = answer_read(ctx, work, payload_len, value_sum);
	if (verdict == XDP_TX && pair)
		return ends(COUNT_wake_parts, clone_to(pair));
	count(verdict == XDP_TX ? COUNT_hit : COUNT_drop_refused);
	return verdict;
}

/*
 * An answer came round, to be the one with the next part. Reads of all parts are linearized at
 * their first one; each of the others is of the same version, from an item that is valid and under
 * its store's lease. Its rounds are counted apart from those of values that go round until nobody
 * asks: they end with the last part.
 */
INLINE int next_part(struct xdp_md *ctx, struct work *work, const struct config *config)
{
	__u32 port = (__u32)epoch_in(work), payload_len = 0, value_sum = 0;
	__u32 part = part_in(work) + PART_STEP;
	struct found found = {};
	if (!find(work, &found))
		return ends(COUNT_drop_part_over, XDP_DROP);
	const struct item *item = found.item;
	__u64 word = READ_ONCE(item->word);
	if (objection(work, item, lease_of(item), word) != NOTHING)
		return ends(COUNT_drop_part_over, XDP_DROP);
	struct part *kept = find_part(work, &found, word, part);
	if (!kept || item->version != bpf_be64_to_cpu(work->header.version))
		return ends(COUNT_drop_part_over, XDP_DROP);
	work->header.part = bpf_htons(part);
	if (load_part(ctx, work, config, &found, kept, word, &payload_len, &value_sum) != NOTHING)
		return ends(COUNT_drop_part_over, XDP_DROP);
	const void *pair = pair_of_more(work, &found, word, port);
	say_more(work, config, pair, port);
	if (!rewrite_packet(ctx, work, payload_len, value_sum, ONWARDS))
		return ends(COUNT_drop_refused, XDP_DROP);
	int verdict = pair ? clone_to(pair) : bpf_redirect_map(&ports, port, XDP_DROP);
	return ends(verdict == XDP_REDIRECT ? COUNT_hit_round : COUNT_drop_part_over, verdict);
}
