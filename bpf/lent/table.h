/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Records of keys that stores lent: what an owner answers from and what a keeper keeps
 * (docs/coherence.md, "Write-back"). They are no items: no discipline, quota or eviction touches
 * one. Only the store that lent a key ends its loan.
 *
 * A look-up touches one line of tags and then one record.
 */
#pragma once

#include "given.h"

#define KEPT_RECORDS 1024
#define KEPT_WAYS 8
#define KEPT_SETS (KEPT_RECORDS / KEPT_WAYS)
/* What fits any packet, over IPv6 as well, with header and key. */
#define KEPT_PAYLOAD_MAX 1452
/* In `value_len`: no value was kept yet. */
#define KEPT_NO_VALUE 0xffff
/* A store that is silent for so long has done with what it prepared, and with what is over. */
#define KEPT_REST_NS (10000 * NS_PER_MS)
/*
 * Likewise with what it may not have yet. It may be down, and its backend too; its next life asks
 * for what its journal has as lent.
 */
#define KEPT_LOST_NS (86400000 * NS_PER_MS)

enum kept_state {
	KEPT_FREE,
	KEPT_PREPARED, /* of no effect yet */
	KEPT_ACTIVE,
	KEPT_SEALED, /* nothing changes any more; the store asks until it says that it is over */
};
/* Sets of states. */
#define WHILE_PREPARED (1 << KEPT_PREPARED)
#define WHILE_ACTIVE (1 << KEPT_ACTIVE)
#define WHILE_SEALED (1 << KEPT_SEALED)

/*
 * `seq` is odd while somebody changes anything but the words that are changed alone. `epoch` is of
 * this preparation, and of no other: tenant, key, life, role and node belong to it. It is 0 while
 * they are written.
 */
struct kept {
	__u32 seq;
	__u8 state;
	__u8 is_owner;
	__u8 key_len;
	__u8 unused;
	__u32 tenant;
	__u16 life; /* of the loan */
	__u16 lease; /* slot of the store's lease; an owner's */
	__u16 node; /* the other switch of the loan */
	__u16 value_len;
	__u32 sum; /* of the value, as `sum_of` has it */
	__u64 epoch;
	__u64 version; /* of the newest value that was kept, or else of the one that was lent */
	__u64 base; /* below the versions of this loan */
	__u64 number; /* writes numbered so far; changed alone */
	/* since when the keeper was asked and did not answer; 0: it did. Changed alone */
	__u64 unanswered_ns;
	__u64 since_ns; /* fine clock, when it became active */
	__u64 seen_ns; /* when the store last named it, or the keeper */
	__u32 windows; /* clients whose writes were kept */
	__u32 unused_too;
	__u64 unused_three[5];
	__u8 key[256]; /* padded with zeros to whole words */
	__u8 value[VALUE_MAX_BYTES + 8]; /* likewise */
};
_Static_assert(offsetof(struct kept, key) == 128,
	       "two cache lines; crates/dataplane reads the same struct");
_Static_assert(sizeof(struct kept) == 1784, "crates/dataplane reads the same struct");

/* key: set * KEPT_WAYS + way. Written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, KEPT_RECORDS);
	__type(key, __u32);
	__type(value, struct kept);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} kept SEC(".maps");

/* Of each way the fingerprint of its key; 0: it was never used. */
struct kept_tags {
	__u32 tag[KEPT_WAYS];
};

/* key: set. Written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KEPT_SETS);
	__type(key, __u32);
	__type(value, struct kept_tags);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} kept_tags SEC(".maps");

/* A record as it was found: whoever uses it looks again whether it still has this epoch. */
struct lent {
	struct kept *record;
	__u64 epoch;
	__u32 place;
};

/* Names a record as it was found, where a pointer cannot be had. */
INLINE __u64 loan_of(const struct lent *lent)
{
	return epoch_pair(lent->place, lent->epoch);
}

INLINE __u32 kept_set_of(const struct work *work)
{
	return work->hash[1] & (KEPT_SETS - 1);
}

INLINE __u32 kept_tag_of(const struct work *work)
{
	return work->hash[1] >> 32 ?: 1;
}

/* Whether the record at this place is of the packet's key, whatever else it is. */
WHOLE int kept_key_equals(__u32 place, const struct work *work)
{
	const struct kept *record = bpf_map_lookup_elem(&kept, &place);
	if (!record || !work || record->key_len != work->key_len ||
	    record->tenant != bpf_ntohl(work->header.tenant))
		return false;
	const __u64 *a = (const __u64 *)record->key, *b = (const __u64 *)work->key;
	for (int i = 0; i < 32; i++) {
		if (i * 8 >= work->key_len)
			break;
		if (a[i] != b[i])
			return false;
	}
	return true;
}

/*
 * Whether the record at `place` is the packet's key's, in one of these states, of this life (0:
 * any) and epoch (0: any). `*has`: its epoch.
 */
INLINE bool kept_matches(const struct work *work, __u32 place, __u32 states, __u16 life,
			 __u64 epoch, __u64 *has)
{
	const struct kept *record = bpf_map_lookup_elem(&kept, &place);
	if (!record)
		return false;
	*has = READ_ONCE(record->epoch);
	barrier();
	if (!*has || (epoch && *has != epoch) || !(states >> (READ_ONCE(record->state) & 3) & 1) ||
	    (life && record->life != life) || !kept_key_equals(place, work))
		return false;
	barrier();
	return READ_ONCE(record->epoch) == *has;
}

/* The place of such a record, or KEPT_RECORDS; `*has`: its epoch. */
WHOLE __u32 kept_place(const struct work *work, __u32 states, __u32 life, __u64 epoch, __u64 *has)
{
	if (!work || !has)
		return KEPT_RECORDS;
	__u32 set = kept_set_of(work), tag = kept_tag_of(work);
	const struct kept_tags *tags = bpf_map_lookup_elem(&kept_tags, &set);
	if (!tags)
		return KEPT_RECORDS;
	for (__u32 way = 0; way < KEPT_WAYS; way++) {
		__u32 place = set * KEPT_WAYS + way;
		if (READ_ONCE(tags->tag[way]) == tag &&
		    kept_matches(work, place, states, life, epoch, has))
			return place;
	}
	return KEPT_RECORDS;
}

/* Finds such a record. */
INLINE bool find_kept(const struct work *work, __u32 states, __u16 life, __u64 epoch,
		      struct lent *lent)
{
	__u64 has = 0;
	lent->place = kept_place(work, states, life, epoch, &has);
	lent->epoch = has;
	lent->record = bpf_map_lookup_elem(&kept, &lent->place);
	return lent->record;
}

/*
 * Keeps others from changing the record. False: others kept it for too long, or it is another's, or
 * in no such state.
 */
INLINE bool lock_kept(const struct lent *lent, __u32 states)
{
	struct kept *record = lent->record;
	if (!lock_seq(&record->seq))
		return false;
	if (record->epoch == lent->epoch && (states >> (record->state & 3) & 1))
		return true;
	unlock_seq(&record->seq);
	return false;
}

/* Whether the loan goes on, of a record that others kept locked. */
INLINE bool is_still_active(const struct lent *lent)
{
	return READ_ONCE(lent->record->epoch) == lent->epoch && lent->record->state == KEPT_ACTIVE;
}

/*
 * The packet's value and version become the record's, which the caller has locked. False:
 * nothing changed.
 */
INLINE bool store_kept(struct xdp_md *ctx, const struct work *work, struct kept *record, __u32 sum)
{
	__u32 at = work->kv + KV_HEADER_LEN + work->key_len, len = work->value_len, size = 0;
	if (len && (!is_size(len, VALUE_MAX_BYTES, &size) ||
		    bpf_xdp_load_bytes(ctx, at, record->value, size) < 0))
		return false;
	record->value_len = len;
	record->sum = sum;
	record->version = bpf_be64_to_cpu(work->header.version);
	return true;
}

/* What `load_kept` found. */
struct kept_value {
	__u64 version;
	__u32 len;
	__u32 sum;
};

enum kept_load {
	KEPT_LOADED,
	KEPT_CHANGING, /* the packet is of no use any more */
	KEPT_NO_ROOM, /* `len` says for what */
	KEPT_TORN, /* once more may do */
};

/* As `load_kept`, in one try. */
WHOLE int try_load_kept(struct xdp_md *ctx, struct work *work, __u64 loan, __u32 states,
			struct kept_value *out)
{
	__u32 place = loan >> EPOCH_NUMBER_BITS;
	const struct kept *record = bpf_map_lookup_elem(&kept, &place);
	if (!work || !record || !out)
		return KEPT_CHANGING;
	__u32 seq = READ_ONCE(record->seq);
	if (seq & 1)
		return KEPT_TORN;
	barrier();
	if (record->epoch != (loan & EPOCH_NUMBER_MASK) || !(states >> (record->state & 3) & 1))
		return KEPT_CHANGING;
	__u32 len = record->value_len;
	out->version = record->version;
	out->sum = record->sum;
	out->len = len;
	if (len > VALUE_MAX_BYTES)
		return KEPT_CHANGING;
	if (!make_room(ctx, work, KV_HEADER_LEN + work->key_len + len))
		return KEPT_NO_ROOM;
	__u32 at = work->kv + KV_HEADER_LEN + work->key_len, size = 0;
	if (len && (!is_size(len, VALUE_MAX_BYTES, &size) ||
		    bpf_xdp_store_bytes(ctx, at, (void *)record->value, size) < 0))
		return KEPT_NO_ROOM;
	barrier();
	return READ_ONCE(record->seq) == seq ? KEPT_LOADED : KEPT_TORN;
}

/*
 * Copies the record's value behind the packet's key as it was at one moment, of the same epoch and
 * in one of these states. Nothing is locked: readers of a hot key do not wait for one another.
 */
WHOLE int load_kept(struct xdp_md *ctx, struct work *work, __u64 loan, __u32 states,
		    struct kept_value *out)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		int result = try_load_kept(ctx, work, loan, states, out);
		if (result != KEPT_TORN)
			return result;
	}
	return KEPT_CHANGING;
}

/* The packet has nothing behind its value, which a record has room for; `sum` is the value's. */
INLINE bool is_exact(struct xdp_md *ctx, struct work *work, __u32 *sum)
{
	return KV_HEADER_LEN + work->key_len + work->value_len == work->payload_len &&
	       work->payload_len <= KEPT_PAYLOAD_MAX && sum_in_packet(ctx, work, sum);
}

/* Likewise, and it is as it was sent. */
INLINE bool is_whole(struct xdp_md *ctx, struct work *work, __u32 *sum)
{
	return is_exact(ctx, work, sum) && is_intact(ctx, work, *sum);
}

/*
 * From now on the packet is signed with this secret; `work->header` has changed where requests and
 * replies are the same.
 */
INLINE void sign_with(struct work *work, const __u64 secret[2])
{
	work->secret[0] = secret[0];
	work->secret[1] = secret[1];
	if (has_secret(work))
		hash_shared(work);
}
