/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hot at once: a key that was read a few times gets an item here, before the agent or a controller
 * have heard of it. The agent gives each tenant *blanks*, cells of the tenant's own pages with no
 * key. A read that missed may turn one into its key's item; it asks for a grant as it goes on, so
 * its answer fills the item (rule 5), and the next read is a hit. The control half confirms the
 * item at leisure, or the agent takes it back. Only the agent takes cells back.
 *
 * Fingerprints stay unique in a bucket, or a write would make one of two items invalid: whoever
 * fills a slot has the bucket's lock, the agent too. Nobody waits for it here.
 *
 * A read that begins no probation touches one line that others write, when some read does, and one
 * of its own CPU.
 */
#pragma once

#include "coherence.h"
#include "given.h"

/* Tenants with a higher place have none. */
#define PROBATION_TENANTS 128
#define BLANKS 512
#define BUCKET_LOCKS 1024
#define LOCKED_BY_PROGRAM 1
#define LOCKED_BY_AGENT 2
/* In `slot` of a blank that was taken and not used. */
#define BLANK_LEFT 0xffffffffU

struct blank {
	__u32 reference; /* as in a slot of the lookup table */
	__u32 slot; /* where the item can be found that it became, plus 1; 0: not yet */
};

/* A ring: those from `next` up to `end` are there to be taken. */
struct blanks {
	__u32 threshold; /* reads of a key in a burst on one CPU; 0: never */
	__u32 next; /* taken by the programs */
	__u32 end; /* filled by the agent */
	__u32 plenty; /* with fewer to be taken than this, more reads are needed */
	__u32 unused[12];
	struct blank blank[BLANKS];
};
_Static_assert(sizeof(struct blanks) == 64 + 8 * BLANKS, "crates/dataplane maps the same struct");

/* key: a tenant's place. Written by the agent; `next` and `slot` by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PROBATION_TENANTS);
	__type(key, __u32);
	__type(value, struct blanks);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} probation SEC(".maps");

/* key: low bits of a bucket's index. Who fills a slot there: LOCKED_..., or 0. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BUCKET_LOCKS);
	__type(key, __u32);
	__type(value, __u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} bucket_locks SEC(".maps");

/*
 * Slots from a store's own on in which its lease is looked for here; the agent puts it into one of
 * them if it can.
 */
#define LEASE_PROBES 8

/* The slot of the lease of the store that the packet goes to, if the lease holds; else NO_LEASE. */
INLINE __u32 lease_there(struct xdp_md *ctx, const struct work *work)
{
	__u64 address[2] = {};
	if (!address_of(ctx, work, false, address))
		return NO_LEASE;
	__u32 own = mix(address[0], address[1]);
	for (__u32 i = 0; i < LEASE_PROBES; i++) {
		__u32 slot = (own + i) & (MAX_LEASES - 1);
		const struct lease *lease = bpf_map_lookup_elem(&leases, &slot);
		if (!lease)
			break;
		const __u64 *store = (const __u64 *)lease->store;
		if (address[0] == store[0] && address[1] == store[1])
			return lease_holds(lease, work->now_ns) ? slot : NO_LEASE;
	}
	return NO_LEASE;
}

/*
 * The first empty slot of the bucket; BUCKET_SLOTS: there is none, or the fingerprint is in it. The
 * caller has the lock.
 */
INLINE __u32 empty_slot(const struct bucket *bucket, __u32 fingerprint)
{
	__u32 empty = BUCKET_SLOTS;
	for (__u32 i = 0; i < BUCKET_SLOTS; i++) {
		__u64 slot = READ_ONCE(bucket->slot[i]);
		if (slot >> 32 == fingerprint && !MUTANT(probation_twice))
			return BUCKET_SLOTS;
		if (!slot && empty == BUCKET_SLOTS)
			empty = i;
	}
	return empty;
}

/* Most often that the reads that a key needs are doubled. */
#define SCARCITY_MAX 4

/*
 * Reads that a key needs: twice as many each time that the blanks to be taken are halved, so that
 * what is read much finds one, however many keys are read twice. `left` is how many there are.
 */
INLINE __u32 reads_needed(const struct blanks *blanks, __u32 left)
{
	__u32 reads = blanks->threshold, plenty = READ_ONCE(blanks->plenty);
	for (int i = 0; i < SCARCITY_MAX; i++) {
		if (left >= plenty)
			break;
		plenty >>= 1;
		reads <<= 1;
	}
	return reads;
}

/* Takes the next blank; NULL: there is none, or another CPU was faster. */
INLINE struct blank *take_blank(struct blanks *blanks)
{
	__u32 next = READ_ONCE(blanks->next);
	if (next == READ_ONCE(blanks->end) ||
	    compare_and_swap(&blanks->next, next, next + 1) != next)
		return NULL;
	return &blanks->blank[next & (BLANKS - 1)];
}

/*
 * The blank's item becomes that of the packet's key. Nobody can find it yet. NULL: its cells are
 * too few.
 */
INLINE struct item *fill_blank(const struct work *work, const struct blank *blank, __u32 lease)
{
	__u32 index = blank->reference >> 9, cell = blank->reference & 0x1ff;
	struct page *page = bpf_map_lookup_elem(&pages, &index);
	if (!page || cell >= PAGE_START_CELLS)
		return NULL;
	struct item *item = (void *)(page->bytes + cell * CELL_BYTES);
	__u32 len = work->key_len;
	if (sizeof(*item) + key_room(len) > (item->flags & ITEM_CELLS) * CELL_BYTES)
		return NULL;
	item->key_len = len;
	item->tenant = bpf_ntohl(work->header.tenant);
	item->lease = lease;
	item->epoch_ns = work->now_ns;
	if (MUTANT(probation_valid))
		item->word = newest_epoch(get_config()) << 1 | 1;
	__u64 *to = (__u64 *)(item + 1);
	const __u64 *from = (const __u64 *)work->key;
	for (__u32 i = 0; i < 32; i++) {
		if (i * 8 >= len)
			break;
		to[i] = from[i];
	}
	return item;
}

/* Puts the packet's key into the bucket, whose lock the caller has. */
INLINE struct item *enter_bucket(struct work *work, struct bucket *bucket, struct blanks *blanks,
				 __u32 lease)
{
	__u32 fingerprint = work->hash[1] >> 32 ?: 1;
	__u32 empty = empty_slot(bucket, fingerprint);
	if (empty >= BUCKET_SLOTS) {
		count(COUNT_probation_full);
		return NULL;
	}
	struct blank *blank = take_blank(blanks);
	if (!blank) {
		count(COUNT_probation_no_blank);
		return NULL;
	}
	struct item *item = fill_blank(work, blank, lease);
	__u64 slot = (__u64)fingerprint << 32 | blank->reference;
	if (!item || compare_and_swap(&bucket->slot[empty], 0, slot) != 0) {
		WRITE_ONCE(blank->slot, BLANK_LEFT);
		count(COUNT_probation_full);
		return NULL;
	}
	WRITE_ONCE(blank->slot, ((__u32)work->hash[1] & bucket_mask) * BUCKET_SLOTS + empty + 1);
	count(COUNT_probation);
	return item;
}

/*
 * Whether a key of which a read missed may get an item. Another switch on the way that has asked
 * for a grant has an item of the key: that is enough. Most may not; so this stands where the read
 * missed, and what follows in a function of its own.
 */
INLINE bool is_read_enough(const struct work *work, const struct miss *miss)
{
	__u32 place = work->place;
	struct blanks *blanks = bpf_map_lookup_elem(&probation, &place);
	if (!blanks || !blanks->threshold || work->header.epoch)
		return false;
	__u32 left = READ_ONCE(blanks->end) - READ_ONCE(blanks->next);
	return count_burst(work, miss) >= reads_needed(blanks, left);
}

/*
 * A read that missed, of a key that is read enough.
 *
 * Rule 1: the epoch is taken after the item can be found, as when the agent makes an entry. A write
 * that did not find it took its own before, and what was granted under a higher one the store takes
 * back by asking.
 */
WHOLE int begin_probation(struct xdp_md *ctx, struct work *work)
{
	struct config *config = get_config();
	if (!work || !config)
		return 0;
	__u32 place = work->place, index = work->hash[1] & bucket_mask;
	struct blanks *blanks = bpf_map_lookup_elem(&probation, &place);
	if (!blanks)
		return 0;
	if (READ_ONCE(blanks->next) == READ_ONCE(blanks->end))
		return ends(COUNT_probation_no_blank, 0);
	__u32 slot = lease_there(ctx, work), which = index & (BUCKET_LOCKS - 1);
	struct lease *lease = bpf_map_lookup_elem(&leases, &slot);
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &index);
	__u32 *lock = bpf_map_lookup_elem(&bucket_locks, &which);
	if (!lease || !bucket || !lock)
		return 0;
	if (compare_and_swap(lock, 0, LOCKED_BY_PROGRAM) != 0 && !MUTANT(probation_twice))
		return ends(COUNT_probation_busy, 0);
	struct item *item = enter_bucket(work, bucket, blanks, slot);
	compare_and_swap(lock, LOCKED_BY_PROGRAM, 0);
	if (!item)
		return 0;
	if (MUTANT(probation_old_epoch))
		compare_and_swap(&item->word, 0, (newest_epoch(config) - 1) << 1);
	ask_for_grant(ctx, work, config, item, lease);
	return 1;
}
