/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What stands behind a key (its versions, in a ring), and behind a client's session (what became of
 * its last writes).
 */
#pragma once

#include "view.h"

#include "sketch.h"

struct version {
	__u64 seq; /* a key's versions are counted up by one */
	__u64 accepted; /* the number under which the head took it */
	__u64 client;
	__u64 request;
	__u64 session; /* low half of the hash of the client's session */
	__u16 len;
	__u16 sum; /* of the value, as `sum_of` has it */
	__u8 flags;
	__u8 unused[3];
	__u8 value[];
};
#define DELETED 1
#define ANSWERED_BY 2 /* answers to its client passed here when it was applied */
#define VERSION_HEADER 48

#define RING_BYTES 1680
struct record {
	__u64 last; /* applied here */
	__u64 clean; /* known to be committed */
	__u64 base; /* below the first that was applied here */
	__u64 filled; /* the fill number under which it was filled */
	__u64 mark_number; /* the chain's fill number when ... */
	__u64 mark_seq; /* ... this version was applied, the first under it */
	__u32 since; /* of the last progress, while `last` is not `clean`; see `dirty_now` */
	__u32 nack; /* of the last word to the predecessor that something is missing */
	__u8 shift; /* there is room for 1 << shift versions */
	__u8 unused[7];
	/* as many of struct version, of one size; a little less for some numbers of them */
	__u8 ring[RING_BYTES];
};
#define RECORD_HEADER 64
_Static_assert(sizeof(struct version) == VERSION_HEADER && sizeof(struct record) == GIVEN_MAX &&
		       offsetof(struct record, ring) == RECORD_HEADER,
	       "src/record.rs writes the same structs");

#define NOTES 16

/* What became of a write. */
struct note {
	__u64 request; /* 0: none */
	__u64 seq; /* the version that it made, or that refused it */
	__u8 refused; /* 0: applied; else the status, plus 1 */
	__u8 absent; /* refused because there was no such key */
	__u8 chain; /* the number of the key's, plus 1; 0: not known */
	__u8 unused;
	/* low half of the number under which this switch made the note; 0: it was copied here */
	__u32 under;
};

/* What became of it is not known here; so neither of what its client had at its place before. */
#define NOTE_FORGOTTEN ((STATUS_FORGOTTEN >> 4) + 1)

struct session {
	__u64 seen; /* the number under which it was last used */
	__u64 filled;
	__u64 client;
	__u64 heard; /* the number under which answers to the client pass this switch */
	struct note note[NOTES];
};
_Static_assert(sizeof(struct session) == 416, "src/record.rs writes the same struct");

/* 00 'S', the client's number. */
#define SESSION_KEY_LEN 10

/* A key's item and a client's, with their records. */
struct pair {
	struct item *key_item;
	struct record *key;
	struct item *session_item;
	struct session *session;
};

INLINE void session_key(const struct work *work, __u64 key[2])
{
	__u64 client = work->header.client; /* in network order */
	key[0] = (__u64)'S' << 8 | client << 16;
	key[1] = client >> 48;
}

#define NACK_SHIFT 16
#define NACK_LEAST 3 /* steps of 2^16 ns: one word in 200 us */

/* Whether nobody said of this key lately that something is missing. */
INLINE bool may_nack(struct record *record)
{
	__u32 now = fine_clock_ns() >> NACK_SHIFT, was = READ_ONCE(record->nack);
	return now - was >= NACK_LEAST && compare_and_swap(&record->nack, was, now) == was;
}

/* Bytes that a version takes: src/record.rs has the same. */
INLINE __u32 stride_of(const struct record *record)
{
	return RING_BYTES >> (record->shift & 7) & ~7U;
}

INLINE bool find_key(const struct work *work, struct item **item, struct record **record)
{
	struct found found = {};
	if (!find_given(work, &found))
		return false;
	*item = found.item;
	*record = (struct record *)record_of(&found, work);
	return found.item->value_len ==
	       RECORD_HEADER + (stride_of(*record) << ((*record)->shift & 7));
}

/* `hash` is the low half of that of the session's key. */
INLINE bool find_session(const struct work *work, __u64 hash, struct item **item,
			 struct session **session)
{
	struct found found = {};
	__u64 key[2];
	session_key(work, key);
	hash ^= hash_salt(bpf_ntohl(work->header.tenant));
	if (!find_other(work, hash, key, 2, SESSION_KEY_LEN, &found) ||
	    found.item->lease != NO_LEASE || found.item->value_len != sizeof(struct session))
		return false;
	*item = found.item;
	*session = (struct session *)value_of(&found, SESSION_KEY_LEN);
	return true;
}

/* Keys before sessions. False: either is being changed; nothing is locked then. */
INLINE bool lock_pair(const struct pair *pair)
{
	if (!try_lock(&pair->key_item->seq))
		return false;
	if (try_lock(&pair->session_item->seq))
		return true;
	unlock_item(pair->key_item);
	return false;
}

INLINE void unlock_pair(const struct pair *pair)
{
	unlock_item(pair->session_item);
	unlock_item(pair->key_item);
}

INLINE __u64 versions_of(const struct record *record)
{
	return 1ULL << (record->shift & 7);
}

/* A value's most bytes. */
INLINE __u32 value_most(const struct record *record)
{
	__u32 stride = stride_of(record);
	return stride > VERSION_HEADER ? stride - VERSION_HEADER : 0;
}

/* The version of that number, or whatever is in its place. */
INLINE struct version *version_at(struct record *record, __u64 seq)
{
	__u32 at = (seq & (versions_of(record) - 1)) * stride_of(record);
	opaque(at);
	if (at > RING_BYTES - VERSION_HEADER)
		at = 0;
	return (struct version *)(record->ring + at);
}

INLINE bool has_version(struct record *record, __u64 seq)
{
	return seq && version_at(record, seq)->seq == seq;
}

/* Whether the newest version is a value: neither none nor a delete. */
INLINE bool is_present(struct record *record)
{
	const struct version *version = version_at(record, record->last);
	return record->last && version->seq == record->last && !(version->flags & DELETED);
}

/*
 * Copies between a version's place and the packet, from `at` on, `len` bytes. One helper call for
 * each number of versions: the verifier does not see that a place and a length go together.
 */
#define COPY_VALUE(helper, ctx, record, offset, most, at, len)                                     \
	({                                                                                         \
		__u32 offset_ = (offset), size_ = 0;                                               \
		is_size((len), (most), &size_) &&                                                  \
			(helper)((ctx), (at), (record)->ring + offset_ + VERSION_HEADER, size_) == \
				0;                                                                 \
	})
#define COPY_ANY_VALUE(helper, ctx, record, seq, at, len)                                          \
	({                                                                                         \
		bool done_ = false;                                                                \
		__u32 number_ = (seq);                                                             \
		opaque(number_);                                                                   \
		switch ((record)->shift) {                                                         \
		case 0:                                                                            \
			done_ = COPY_VALUE(helper, ctx, record, 0, 1632, at, len);                 \
			break;                                                                     \
		case 1:                                                                            \
			done_ = COPY_VALUE(helper, ctx, record, (number_ & 1) * 840, 792, at,      \
					   len);                                                   \
			break;                                                                     \
		case 2:                                                                            \
			done_ = COPY_VALUE(helper, ctx, record, (number_ & 3) * 416, 368, at,      \
					   len);                                                   \
			break;                                                                     \
		case 3:                                                                            \
			done_ = COPY_VALUE(helper, ctx, record, (number_ & 7) * 208, 160, at,      \
					   len);                                                   \
			break;                                                                     \
		case 4:                                                                            \
			done_ = COPY_VALUE(helper, ctx, record, (number_ & 15) * 104, 56, at,      \
					   len);                                                   \
			break;                                                                     \
		}                                                                                  \
		done_;                                                                             \
	})

WHOLE int take_value(struct xdp_md *ctx, struct record *record, __u64 seq, __u32 at, __u32 len)
{
	if (!record)
		return false;
	meanwhile();
	return !len || COPY_ANY_VALUE(bpf_xdp_load_bytes, ctx, record, seq, at, len);
}

WHOLE int give_value(struct xdp_md *ctx, struct record *record, __u64 seq, __u32 at, __u32 len)
{
	if (!record)
		return false;
	meanwhile();
	return !len || COPY_ANY_VALUE(bpf_xdp_store_bytes, ctx, record, seq, at, len);
}

/* Time as `since` has it: steps of a millisecond. Differences wrap. */
#define DIRTY_SHIFT 20
#define DIRTY_LONG 5

INLINE __u32 dirty_now(const struct work *work)
{
	return work->now_ns >> DIRTY_SHIFT;
}

INLINE bool is_dirty_for_long(const struct work *work, const struct record *record)
{
	return dirty_now(work) - record->since > DIRTY_LONG;
}

/* The place of a write among its client's. */
INLINE struct note *note_of(const struct work *work, struct session *session)
{
	return &session->note[bpf_be64_to_cpu(work->header.request) & (NOTES - 1)];
}

/*
 * The newest version that was applied before the chain's last member began to be filled: what is
 * copied to it.
 */
INLINE __u64 boundary_of(const struct facts *is, const struct record *record)
{
	return record->mark_number == is->fill_number ? record->mark_seq - 1 : record->last;
}

/* Tells the control half of a key without an item, once in a window. */
WHOLE int report_key(struct work *work, const struct config *config)
{
	struct sketch *sketch = get_sketch();
	if (work && config && sketch)
		report_hot(work, config, sketch, seeded(work, config), 1, EVENT_HOT);
	return 0;
}

/* Likewise of a session without one. */
WHOLE int report_session(struct work *work, const struct config *config, __u64 hash)
{
	if (!work || !config)
		return 0;
	__u64 *key = (__u64 *)work->key, was[2] = {key[0], key[1]};
	__u64 was_hash[2] = {work->hash[0], work->hash[1]};
	__u8 was_len = work->key_len;
	session_key(work, key);
	work->key_len = SESSION_KEY_LEN;
	work->hash[0] = 0;
	work->hash[1] = hash ^ hash_salt(bpf_ntohl(work->header.tenant));
	report_key(work, config);
	key[0] = was[0];
	key[1] = was[1];
	work->key_len = was_len;
	work->hash[0] = was_hash[0];
	work->hash[1] = was_hash[1];
	return 0;
}
