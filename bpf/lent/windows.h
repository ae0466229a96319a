/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rule 7 at a keeper: which writes of which client it has kept in a loan. A write that comes again
 * is not kept again, an hour later neither.
 */
#pragma once

#include "table.h"

#define WINDOWS 8192
#define WINDOW_WAYS 8
#define WINDOW_SETS (WINDOWS / WINDOW_WAYS)
/* Clients whose writes one record keeps; what others write is the store's affair. */
#define WINDOWS_PER_RECORD 512
/*
 * Words of 64 requests each: what is older than the newest by 256 is too old to tell, by 192
 * may be. A client numbers its writes to one store in a row, and lets none run ahead by more than
 * 128 of one that has no answer.
 */
#define WINDOW_WORDS 4

/*
 * One client in one loan. Belongs to the record that `loan` names, as long as that has this epoch,
 * and to its lock.
 */
struct window {
	__u64 loan; /* place of the record over its epoch; 0: nobody's */
	__u64 client;
	__u64 newest; /* number of the newest word */
	__u64 kept[WINDOW_WORDS]; /* word n is at n mod WINDOW_WORDS */
	__u64 unused;
};
_Static_assert(sizeof(struct window) == 64, "one cache line");

/* key: set * WINDOW_WAYS + way. Written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WINDOWS);
	__type(key, __u32);
	__type(value, struct window);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} kept_windows SEC(".maps");

/*
 * How many windows a tenant's loans have. key: its number mod MAX_TENANTS, so that two may be
 * counted as one; MAX_TENANTS: all tenants'. Written by the programs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_TENANTS + 1);
	__type(key, __u32);
	__type(value, __u64);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} kept_counts SEC(".maps");
_Static_assert((MAX_TENANTS & (MAX_TENANTS - 1)) == 0, "a mask");

INLINE __u32 count_of_tenant(__u32 tenant)
{
	return tenant & (MAX_TENANTS - 1);
}

INLINE __u64 counted_windows(__u32 place)
{
	const __u64 *count = bpf_map_lookup_elem(&kept_counts, &place);
	return count ? READ_ONCE(*count) : 0;
}

/*
 * A tenant has no more windows than there are left. So one that makes up client after client takes
 * half of them, a second one half of the rest, and whoever comes later finds some.
 */
INLINE bool has_window_left(__u32 tenant)
{
	__u64 all = counted_windows(MAX_TENANTS);
	return all < WINDOWS && counted_windows(count_of_tenant(tenant)) < WINDOWS - all;
}

INLINE void count_one_more(__u32 place)
{
	__u64 *count = bpf_map_lookup_elem(&kept_counts, &place);
	if (count)
		fetch_add(count, 1);
}

/* Those that were made before there was this table were not counted. */
INLINE void count_less(__u32 place, __u64 windows)
{
	__u64 *count = bpf_map_lookup_elem(&kept_counts, &place);
	if (!count)
		return;
	__u64 has = READ_ONCE(*count);
	fetch_add(count, -(windows < has ? windows : has));
}

/* The record's loan is over for good, and its windows are others'. The caller has locked it. */
INLINE void give_windows_back(struct kept *record)
{
	__u32 windows = record->windows;
	if (!windows)
		return;
	record->windows = 0;
	count_less(count_of_tenant(record->tenant), windows);
	count_less(MAX_TENANTS, windows);
}

enum window_says {
	WINDOW_NEW,
	WINDOW_KEPT,
	WINDOW_TOO_OLD,
	WINDOW_NO_ROOM,
};

/* Whether the loan of a window is still there. */
INLINE bool window_is_used(__u64 loan)
{
	__u32 place = loan >> EPOCH_NUMBER_BITS;
	const struct kept *record = bpf_map_lookup_elem(&kept, &place);
	return loan && record && READ_ONCE(record->epoch) == (loan & EPOCH_NUMBER_MASK) &&
	       READ_ONCE(record->state) != KEPT_FREE;
}

/* What a place is worth to a tenant that asks for one in its set: 2 free, -1 its own already. */
WHOLE int worth_of_way(__u32 place, __u32 tenant)
{
	const struct window *window = bpf_map_lookup_elem(&kept_windows, &place);
	if (!window)
		return 0;
	__u64 loan = READ_ONCE(window->loan);
	if (!window_is_used(loan))
		return 2;
	place = loan >> EPOCH_NUMBER_BITS;
	const struct kept *record = bpf_map_lookup_elem(&kept, &place);
	return record && record->tenant == tenant ? -1 : 0;
}

/*
 * Nor has it more than twice as many in one set as are left there: clients fall into sets by
 * chance, and some of a set is left to others.
 */
INLINE bool has_way_left(__u32 first, __u32 tenant)
{
	int worth = 0;
	for (__u32 way = 0; way < WINDOW_WAYS; way++)
		worth += worth_of_way(first + way, tenant);
	return worth > 0;
}

INLINE __u32 window_set(__u64 loan, __u64 client)
{
	__u64 mixed = (loan ^ client) * HASH_SALT;
	return (mixed >> 40 & (WINDOW_SETS - 1)) * WINDOW_WAYS;
}

/*
 * The place of a client's window in a loan. WINDOWS: there is none, and `*free` is a place for one,
 * or WINDOWS.
 */
WHOLE __u32 window_place(__u64 loan, __u64 client, __u32 *free)
{
	__u32 first = window_set(loan, client), unused = WINDOWS;
	for (__u32 way = 0; way < WINDOW_WAYS; way++) {
		__u32 place = first + way;
		const struct window *window = bpf_map_lookup_elem(&kept_windows, &place);
		if (!window)
			break;
		__u64 of = READ_ONCE(window->loan);
		if (of == loan && window->client == client)
			return place;
		if (unused == WINDOWS && !window_is_used(of))
			unused = place;
	}
	if (free)
		*free = unused;
	return WINDOWS;
}

/* That window, if there is one. */
INLINE struct window *find_window(__u64 loan, __u64 client, __u32 *free)
{
	__u32 place = window_place(loan, client, free);
	return bpf_map_lookup_elem(&kept_windows, &place);
}

/* A window for a client that has none, at a place that was free. */
INLINE struct window *make_window(struct kept *record, __u64 loan, __u64 client, __u64 word,
				  __u32 place)
{
	struct window *window = bpf_map_lookup_elem(&kept_windows, &place);
	if (!window || record->windows >= WINDOWS_PER_RECORD || !has_window_left(record->tenant) ||
	    !has_way_left(place & ~(__u32)(WINDOW_WAYS - 1), record->tenant))
		return NULL;
	__u64 of = READ_ONCE(window->loan);
	if (window_is_used(of) || compare_and_swap(&window->loan, of, loan) != of)
		return NULL;
	record->windows++;
	count_one_more(count_of_tenant(record->tenant));
	count_one_more(MAX_TENANTS);
	window->client = client;
	window->newest = word;
	for (int i = 0; i < WINDOW_WORDS; i++)
		window->kept[i] = 0;
	return window;
}

/* Whether a write was kept. The caller has locked the record. */
INLINE enum window_says was_kept(const struct lent *lent, __u64 client, __u64 request)
{
	__u32 free = WINDOWS;
	__u64 word = request >> 6;
	const struct window *window = find_window(loan_of(lent), client, &free);
	if (!window || word > window->newest)
		return WINDOW_NEW;
	if (word + WINDOW_WORDS <= window->newest)
		return WINDOW_TOO_OLD;
	return window->kept[word & (WINDOW_WORDS - 1)] >> (request & 63) & 1 ? WINDOW_KEPT
									     : WINDOW_NEW;
}

/*
 * Likewise; where it was not (WINDOW_NEW), `*word` is where `*bit` says from now on that it was,
 * once the caller has set it.
 */
INLINE enum window_says find_word(const struct lent *lent, __u64 client, __u64 request,
				  __u64 **word, __u64 *bit)
{
	__u32 free = WINDOWS;
	__u64 number = request >> 6, loan = loan_of(lent);
	struct window *window = find_window(loan, client, &free);
	if (!window)
		window = make_window(lent->record, loan, client, number, free);
	if (!window)
		return WINDOW_NO_ROOM;
	if (number + WINDOW_WORDS <= window->newest)
		return WINDOW_TOO_OLD;
	for (int i = 0; i < WINDOW_WORDS && window->newest < number; i++) {
		/* A leap of more than all words empties them all. */
		window->newest = i || window->newest + WINDOW_WORDS >= number
					 ? window->newest + 1
					 : number - WINDOW_WORDS + 1;
		window->kept[window->newest & (WINDOW_WORDS - 1)] = 0;
	}
	*word = &window->kept[number & (WINDOW_WORDS - 1)];
	*bit = 1ULL << (request & 63);
	return (**word & *bit) && !MUTANT(lent_keeper_forgets) ? WINDOW_KEPT : WINDOW_NEW;
}
