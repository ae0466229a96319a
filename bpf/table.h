/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The lookup table and the items it leads to. A hit touches one bucket and one item: one cache line
 * and a run of neighbouring ones.
 */
#pragma once

#include "maps.h"

/*
 * An item at the start of its cells; the key follows, padded with zeros to whole words, then the
 * value, padded likewise.
 *
 * `word` is the item's epoch over one bit that says whether the value was granted for that epoch.
 * The epoch only rises; a write raises it and so clears the bit, in one atomic step and without a
 * lock. A grant sets the bit by compare-and-swap, which fails if the epoch has moved on (rule 5).
 *
 * `seq` is odd while somebody writes version, expiry and value; readers compare it before
 * and after.
 */
struct item {
	__u32 seq;
	__u8 key_len;
	__u8 flags; /* ITEM_... */
	__u16 value_len;
	__u64 word;
	__u64 version;
	__u64 expiry_ns; /* CLOCK_BOOTTIME; meaningful with ITEM_EXPIRES */
	__u64 epoch_ns; /* when the epoch was taken: a time to live counts from then */
	__u32 tenant;
	__u16 lease; /* slot of the store's lease */
	__u16 sum; /* of the value that was granted, as `sum_of` has it */
};
_Static_assert(sizeof(struct item) == 48, "three cells hold a 16-byte key and a 128-byte value");

#define ITEM_CELLS 0x3f /* how many it has */
#define ITEM_EXPIRES 0x40
#define ITEM_TOO_SMALL 0x80 /* the agent was told that the value does not fit */
_Static_assert(ITEM_MAX_CELLS <= ITEM_CELLS, "its cells fit into its flags");

#define VALUE_MAX_BYTES 1392
/*
 * In `value_len`: no packet holds the value, and the cells have none of its parts, only its version
 * and life.
 */
#define VALUE_IN_PARTS 0xffff

struct found {
	struct page *page;
	struct item *item;
	__u32 page_index;
	__u32 offset; /* of the item in its page in bytes */
	__u32 slot; /* index over all buckets */
};

INLINE __u32 key_room(__u32 key_len)
{
	return (key_len + 7) & ~7U & 0x1ff;
}

/* The value's place in the page, bounded for the verifier: an item never leaves its page. */
INLINE __u8 *value_of(const struct found *found, __u32 key_len)
{
	__u32 at = key_room(key_len);
	if (at > 256)
		at = 256;
	return found->page->bytes + found->offset + sizeof(struct item) + at;
}

INLINE bool key_equals(const struct found *found, const struct work *work)
{
	const struct item *item = found->item;
	if (item->key_len != work->key_len || item->tenant != bpf_ntohl(work->header.tenant))
		return false;
	const __u64 *a = (const __u64 *)(item + 1);
	const __u64 *b = (const __u64 *)work->key;
	for (int i = 0; i < 32; i++) {
		if (i * 8 >= work->key_len)
			break;
		if (a[i] != b[i])
			return false;
	}
	read_anew();
	return true;
}

/* Cells that find() asks for at once: an item of a 16-byte key and a 128-byte value. */
#define TOUCHED_CELLS 3

/* Asks for the bucket ahead of its use. */
INLINE void touch_bucket(const struct work *work)
{
	__u32 index = work->hash[1] & bucket_mask;
	const struct bucket *bucket = bpf_map_lookup_elem(&buckets, &index);
	if (bucket)
		touch(bucket);
}

/*
 * Leads to the item of the slot with the fingerprint of a key of this hash's low half, salted,
 * unless there is none.
 */
INLINE bool find_slot_of(__u64 hash, struct found *found)
{
	__u32 index = hash & bucket_mask;
	const struct bucket *bucket = bpf_map_lookup_elem(&buckets, &index);
	if (!bucket)
		return false;
	__u32 fingerprint = hash >> 32 ?: 1;
	__u64 slot = 0;
	int i;
	for (i = 0; i < BUCKET_SLOTS; i++) {
		slot = READ_ONCE(bucket->slot[i]);
		if (slot >> 32 == fingerprint)
			break;
	}
	if (i == BUCKET_SLOTS)
		return false;
	__u32 page_index = (__u32)slot >> 9, cell = slot & 0x1ff;
	found->page = bpf_map_lookup_elem(&pages, &page_index);
	if (!found->page || cell >= PAGE_START_CELLS)
		return false;
	found->page_index = page_index;
	found->offset = cell * CELL_BYTES;
	found->item = (void *)(found->page->bytes + found->offset);
	found->slot = index * BUCKET_SLOTS + i;
	for (i = 0; i < TOUCHED_CELLS; i++)
		touch(found->page->bytes + found->offset + i * CELL_BYTES);
	return true;
}

/* Likewise of the packet's key. */
INLINE bool find_slot(const struct work *work, struct found *found)
{
	return find_slot_of(work->hash[1], found);
}

/*
 * Finds the entry of another key of the packet's tenant, whose hash's low half, salted, is `hash`:
 * `words` of it, a constant, with zeros behind its `len` bytes.
 */
INLINE bool find_other(const struct work *work, __u64 hash, const __u64 *key, __u32 words,
		       __u32 len, struct found *found)
{
	if (!find_slot_of(hash, found))
		return false;
	const struct item *item = found->item;
	if (item->key_len != len || item->tenant != bpf_ntohl(work->header.tenant))
		return false;
	const __u64 *there = (const __u64 *)(item + 1);
	for (__u32 i = 0; i < words; i++) {
		if (there[i] != key[i])
			return false;
	}
	return true;
}

/*
 * Finds the key's entry. Whoever fills a slot keeps fingerprints unique within its bucket
 * (probation.h).
 */
INLINE bool find(const struct work *work, struct found *found)
{
	return find_slot(work, found) && key_equals(found, work);
}

/* Asks for the rest of a large item at once: one wait for memory instead of one after the other. */
INLINE void touch_rest(const struct found *found)
{
	const __u8 *start = found->page->bytes + found->offset;
	__u32 len = sizeof(struct item) + found->item->key_len + found->item->value_len;
	for (__u32 at = TOUCHED_CELLS * CELL_BYTES; at < ITEM_MAX_BYTES; at += CELL_BYTES) {
		if (at >= len)
			break;
		touch(start + at);
	}
}

/* Returns how many this CPU had counted in the item's first cell before. */
INLINE __u32 count_each_request(const struct found *found)
{
	__u32 index = bpf_get_smp_processor_id() * page_count + found->page_index;
	struct page_hits *of = bpf_map_lookup_elem(&hits, &index);
	__u32 offset = found->offset;
	/* The compiler would take the cell from the slot again, and with it its bound. */
	opaque(offset);
	return of ? of->cell[offset / CELL_BYTES]++ : 0;
}

INLINE void count_request(const struct found *found, const struct config *config)
{
	if (!config->sample_mask || !(bpf_get_prandom_u32() & config->sample_mask))
		count_each_request(found);
}
