/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a switch knows of a tenant's chains: one row, written at once (struct view), and what its
 * programs make of it: which row is in force, who has confirmed it to whom (struct state).
 */
#pragma once

#include "discipline.h"

#define SLOTS 16
#define CHAINS 64
#define CHAIN_MEMBERS 8

struct member {
	__be32 address[4]; /* over IPv4 the first word */
	__u16 switch_id;
	__u16 used;
	__u32 unused;
	__u64 life; /* of its tables */
};

struct chain {
	__u8 slot[CHAIN_MEMBERS]; /* the head first */
	__u8 len;
	__u8 filling; /* the last has not all yet */
	__u8 unused[6];
	__u64 fill_number;
};

#define NETCRAQ 1
#define VIEW_IPV6 1
#define VIEW_RELAXED 2 /* clients may read what is not committed */

/*
 * A row that is replaced is another element: whoever reads the one before has it whole, but may see
 * it become another tenant's.
 */
struct view {
	__u64 number; /* used once: a generation of 16 bits over a counter */
	__u32 tenant;
	__u8 self; /* this switch's slot */
	__u8 protocol;
	__u8 flags;
	__u8 unused;
	__u64 life; /* of the tables that it is for */
	__u64 purge_below;
	__u32 lease_ms;
	__u32 chains;
	__u64 unused_too[3];
	struct member member[SLOTS];
	struct chain chain[CHAINS];
	__u64 number_again;
};
_Static_assert(sizeof(struct view) == 2120 && offsetof(struct view, chain) == 576,
	       "src/view.rs writes the same struct");

/* key: tenant. Rows of the configuration. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 64); /* set when loading */
	__type(key, __u32);
	__type(value, struct view);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} chain_views SEC(".maps");

/*
 * What this switch and another one confirmed to each other, in times of this switch
 * (CLOCK_BOOTTIME).
 */
struct peer_state {
	__u64 confirmed_number; /* by the other one ... */
	__u64 confirmed_ns; /* ... no earlier than this */
	__u64 granted_number; /* to the other one ... */
	__u64 granted_ns; /* ... no later than this */
	__u64 granted_life; /* of that one's tables: another may have its slot by now */
};

struct state {
	__u64 number; /* of the newest row that a packet met: the one in force */
	__u64 adopted_ns; /* when the first did */
	__u64 settled; /* the number under which nothing is held back any more */
	__u32 tenant;
	__u32 lock;
	/* to whoever had a slot before the one that has it now, no later than this */
	__u64 former_granted_ns;
	__u64 unused[3];
	struct peer_state peer[SLOTS];
};
_Static_assert(sizeof(struct state) == 704, "src/state.rs reads the same struct");

/* key: the tenant's place. Written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_TENANTS);
	__type(key, __u32);
	__type(value, struct state);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} chain_states SEC(".maps");

/* For whom there is no room: a tenant's key or session by the low half of its hash, or any. */
struct no_room {
	__u32 tenant;
	__u32 mark; /* 0: any */
};

/* Rows of the configuration, as `no_room_row` in src/view.rs makes them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 64); /* set when loading */
	__type(key, struct no_room);
	__type(value, __u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} chain_full SEC(".maps");

/* Tallies, as src/tallies.rs counts them. */
#define READS 0 /* answered here */
#define READS_ON 1 /* sent on to the tail */
#define WRITES 2 /* taken here, as the head */

/* `lock_seq`, unless a mutant locks nothing. */
INLINE bool try_lock(__u32 *count)
{
	if (MUTANT(order_locks_nothing)) {
		fetch_add(count, 1);
		return true;
	}
	return lock_seq(count);
}

#define NOWHERE 0xff

/* What a packet is to know of its key's chain. */
struct facts {
	__u64 number;
	__u64 fill_number; /* of the last member, which has not all yet; 0: it has */
	__u32 place; /* of this switch in the chain, or NOWHERE */
	__u32 len; /* of the chain */
	/* rule 6: nothing that was applied is passed on, committed, copied or answered */
	__u32 held;
	__u32 chain; /* its number, plus 1 */
};

/* Where it stands. */
struct here {
	const struct view *view;
	struct state *state;
	const struct chain *chain;
	struct facts is;
	__u32 part; /* the chain's number */
};

/* As `partition_of` in crates/wire/src/hash.rs. */
INLINE __u32 part_of(__u64 hash_high, __u32 parts)
{
	__u64 low = (hash_high & 0xffffffff) * parts >> 32;
	return ((hash_high >> 32) * parts + low) >> 32;
}

INLINE __u8 slot_at(const struct here *here, __u32 place)
{
	return here->chain->slot[place & (CHAIN_MEMBERS - 1)] & (SLOTS - 1);
}

INLINE const struct member *member_in(const struct here *here, __u32 slot)
{
	return &here->view->member[slot & (SLOTS - 1)];
}

INLINE __u32 own_slot(const struct here *here)
{
	return here->view->self & (SLOTS - 1);
}

INLINE bool is_tail(const struct facts *is)
{
	return is->place + 1 == is->len;
}

/* Whether this switch is before a last member that has not all of the rest yet. */
INLINE bool fills(const struct facts *is)
{
	return is->fill_number && is->place + 2 == is->len;
}

INLINE bool is_filling_tail(const struct facts *is)
{
	return is->fill_number && is_tail(is);
}

/* Rule 1, as far as the row goes: it is whole, this tenant's, and of these tables. */
INLINE bool is_whole_row(const struct view *view, __u64 number, __u32 tenant, __u64 life)
{
	barrier();
	return number && READ_ONCE(view->number_again) == number &&
	       READ_ONCE(view->number) == number && READ_ONCE(view->tenant) == tenant &&
	       READ_ONCE(view->life) == life;
}

/*
 * The same number, of which the verifier knows nothing any more: it would follow each into all that
 * comes after.
 */
INLINE __u32 blurred(struct work *work, __u32 number)
{
	__u32 *at = (__u32 *)(work->scratch + sizeof(work->scratch) - sizeof(*at));
	WRITE_ONCE(*at, number);
	return READ_ONCE(*at);
}

OUTLINE int find_here(struct work *work, const struct config *config, struct here *here)
{
	if (!work || !config || !here)
		return false;
	__u32 tenant = bpf_ntohl(work->header.tenant), place = work->place;
	const struct view *view = bpf_map_lookup_elem(&chain_views, &tenant);
	if (!view)
		return false;
	here->view = view;
	here->is.number = READ_ONCE(view->number);
	here->state = bpf_map_lookup_elem(&chain_states, &place);
	if (!here->state || !is_whole_row(view, here->is.number, tenant, config->life))
		return false;
	here->part = part_of(work->hash[0], view->chains) & (CHAINS - 1);
	here->is.chain = here->part + 1;
	here->chain = &view->chain[here->part];
	here->is.len = here->chain->len;
	here->is.fill_number = here->chain->filling ? here->chain->fill_number : 0;
	here->is.place = NOWHERE;
	for (__u32 i = 0; i < CHAIN_MEMBERS; i++)
		if (i < here->is.len && here->chain->slot[i] == view->self)
			here->is.place = i;
	here->is.place = blurred(work, here->is.place);
	return here->is.len - 1 < CHAIN_MEMBERS;
}

INLINE void forget_peers(struct state *state)
{
	state->number = state->adopted_ns = state->settled = state->former_granted_ns = 0;
	for (__u32 i = 0; i < SLOTS; i++)
		state->peer[i] = (struct peer_state){};
}

/*
 * Makes the row the one in force, if it is newer. False: it is older, or somebody keeps the
 * state locked.
 */
OUTLINE int adopt(const struct work *work, const struct here *here)
{
	if (!work || !here)
		return false;
	struct state *state = here->state;
	__u32 tenant = bpf_ntohl(work->header.tenant);
	if (READ_ONCE(state->number) == here->is.number && READ_ONCE(state->tenant) == tenant)
		return true;
	__u64 now_ns = fine_clock_ns();
	if (!try_lock(&state->lock))
		return false;
	if (state->tenant != tenant) {
		forget_peers(state);
		state->tenant = tenant;
	}
	bool is_older = here->is.number < state->number;
	if (here->is.number > state->number) {
		state->adopted_ns = now_ns;
		barrier();
		WRITE_ONCE(state->number, here->is.number);
	}
	unlock_seq(&state->lock);
	return !is_older;
}

/*
 * Asked under a lock, before anything is changed: the row is still the one in force, and still what
 * it was.
 */
INLINE bool is_still(const struct work *work, const struct here *here)
{
	return READ_ONCE(here->state->number) == here->is.number &&
	       READ_ONCE(here->view->number) == here->is.number &&
	       READ_ONCE(here->view->tenant) == bpf_ntohl(work->header.tenant);
}

INLINE __u64 lease_ns(const struct here *here)
{
	return here->view->lease_ms * NS_PER_MS;
}

/*
 * Rule 6: whether another switch may still answer under an earlier row, because this one confirmed
 * that to it. The clock here is never ahead, so that this never ends too early. What a slot was
 * granted before another switch had it is moved aside first, so it is looked at last.
 */
WHOLE int is_held_at(struct state *state, __u64 number, __u64 lease_ns, __u64 now_ns)
{
	if (!state)
		return true;
	if (READ_ONCE(state->settled) == number || MUTANT(order_holds_nothing))
		return false;
	__u64 lasts_ns = lease_ns + lease_ns / 64 + CLOCK_MARGIN_NS;
	if (MUTANT(order_holds_half))
		lasts_ns /= 2;
	if (now_ns < state->adopted_ns + CLOCK_MARGIN_NS)
		return true;
	for (__u32 i = 0; i < SLOTS; i++) {
		const struct peer_state *peer = &state->peer[i];
		if (READ_ONCE(peer->granted_number) == number)
			continue;
		__u64 granted_ns = READ_ONCE(peer->granted_ns);
		if (granted_ns && now_ns < granted_ns + lasts_ns)
			return true;
	}
	barrier();
	__u64 former_ns = READ_ONCE(state->former_granted_ns);
	if (former_ns && now_ns < former_ns + lasts_ns)
		return true;
	WRITE_ONCE(state->settled, number);
	return false;
}

/* Finds out, and notes it. */
INLINE bool is_held(const struct work *work, struct here *here)
{
	here->is.held = is_held_at(here->state, here->is.number, lease_ns(here), work->now_ns);
	return here->is.held;
}

/*
 * Whether the other switch confirmed this row lately. The number is written before the time, and
 * read around it.
 */
INLINE bool has_confirmed(const struct peer_state *peer, __u64 number, __u64 lease_ns, __u64 now_ns)
{
	if (READ_ONCE(peer->confirmed_number) != number)
		return false;
	barrier();
	__u64 at_ns = READ_ONCE(peer->confirmed_ns);
	barrier();
	return READ_ONCE(peer->confirmed_number) == number &&
	       is_before(now_ns, at_ns + lease_ns - CLOCK_MARGIN_NS);
}

WHOLE int is_leased_at(const struct state *state, const struct view *view, __u64 number, __u32 part,
		       __u64 now_ns)
{
	if (!state || !view)
		return false;
	const struct chain *chain = &view->chain[part & (CHAINS - 1)];
	for (__u32 i = 0; i < CHAIN_MEMBERS; i++) {
		if (i >= chain->len)
			break;
		__u32 slot = chain->slot[i] & (SLOTS - 1);
		if (slot != view->self &&
		    !has_confirmed(&state->peer[slot], number, view->lease_ms * NS_PER_MS, now_ns))
			return false;
	}
	return true;
}

/* Rule 5: reads are answered under a lease of every other member of the chain. */
INLINE bool is_leased(const struct work *work, const struct here *here)
{
	return MUTANT(order_reads_unleased) ||
	       is_leased_at(here->state, here->view, here->is.number, here->part, work->now_ns);
}
