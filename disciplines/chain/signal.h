/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Members confirm to each other that a row is in force, without a process that has to be scheduled
 * but for the first packet: an agent sends a BEAT, the other switch answers ECHO, the first BACK.
 * Each then has a lease of the other, from before the other granted it.
 */
#pragma once

#include "packet.h"

enum beat_kind { BEAT = 1, ECHO, BACK };

struct beat {
	__u8 kind;
	__u8 from; /* slot of who began */
	__u8 to;
	__u8 unused[5];
	__be64 t_from; /* when it did, by its clock */
	__be64 t_to; /* when the other one answered, by that one's */
	__be64 life; /* of the sender's tables */
};
_Static_assert(sizeof(struct beat) == 32, "src/packets.rs writes the same struct");

/*
 * Under the state's lock, as a new row comes into force: whoever granted under the old one did
 * so before.
 */
INLINE bool lock_still(const struct work *work, const struct here *here)
{
	if (!try_lock(&here->state->lock))
		return false;
	if (is_still(work, here))
		return true;
	unlock_seq(&here->state->lock);
	return false;
}

/*
 * Rule 6 goes by what was granted to a switch, not to a slot: what the one before in this slot has
 * is not over because another is heard that has the slot now. The state is locked.
 */
INLINE void grant(const struct here *here, __u32 slot, __u64 granted_ns)
{
	struct state *state = here->state;
	struct peer_state *peer = &state->peer[slot & (SLOTS - 1)];
	__u64 life = member_in(here, slot)->life;
	if (peer->granted_life != life && peer->granted_ns > state->former_granted_ns &&
	    !MUTANT(order_grants_to_slots))
		WRITE_ONCE(state->former_granted_ns, peer->granted_ns);
	barrier();
	peer->granted_life = life;
	WRITE_ONCE(peer->granted_number, here->is.number);
	WRITE_ONCE(peer->granted_ns, granted_ns);
}

/*
 * Takes note of what the other switch confirmed, and of what is confirmed to it. False: the row is
 * not in force.
 */
OUTLINE int note_peer(const struct work *work, const struct here *here, __u32 slot,
		      __u64 confirmed_ns, __u64 granted_ns)
{
	if (!work || !here || !lock_still(work, here))
		return false;
	struct peer_state *peer = &here->state->peer[slot & (SLOTS - 1)];
	bool is_newer =
		peer->confirmed_number != here->is.number || confirmed_ns > peer->confirmed_ns;
	if (granted_ns)
		grant(here, slot, granted_ns);
	if (confirmed_ns && is_newer) {
		/* Rule 5's reader looks at the number before the time and after it. */
		if (peer->confirmed_number != here->is.number)
			WRITE_ONCE(peer->confirmed_ns, 0);
		barrier();
		WRITE_ONCE(peer->confirmed_number, here->is.number);
		barrier();
		WRITE_ONCE(peer->confirmed_ns, confirmed_ns);
	}
	unlock_seq(&here->state->lock);
	return true;
}

/*
 * To the other's address as the row has it, not to where the packet came from: an agent's leaves
 * with the address of the link that the way begins with, and the programs over there know a packet
 * for themselves by that of the row alone.
 */
INLINE int answer_signal(struct xdp_md *ctx, struct work *work, const struct here *here,
			 struct beat *beat, __u32 other)
{
	beat->kind = beat->kind == BEAT ? ECHO : BACK;
	beat->life = bpf_cpu_to_be64(here->view->life);
	work->header.node = bpf_htons(own_slot(here) + 1);
	count(COUNT_order_signal);
	if (!write_behind_key(ctx, work, beat, sizeof(*beat)) ||
	    !address_to(ctx, work, here, other, true) ||
	    !finish(ctx, work, sizeof(*beat), fold(sum_words(beat, sizeof(*beat) / 8))))
		return ends(COUNT_drop_refused, XDP_DROP);
	return send_off(ctx, work);
}

INLINE int take_signal(struct xdp_md *ctx, struct work *work, const struct here *here)
{
	struct beat beat;
	__u16 sum = 0;
	if (!read_behind_key(ctx, work, &beat, sizeof(beat)))
		return ends(COUNT_drop_refused, XDP_DROP);
	if (!value_sum(ctx, work, sum_words(&beat, sizeof(beat) / 8), &sum))
		return ends(COUNT_drop_spoiled, XDP_DROP);
	bool is_began_here = beat.kind == ECHO;
	__u32 other = is_began_here ? beat.to : beat.from;
	__u32 own = is_began_here ? beat.from : beat.to;
	const struct member *member = member_in(here, other);
	/* Rule 11: who has other tables than the row says is no member. */
	if (other >= SLOTS || other == own || own != own_slot(here) || !member->used ||
	    member->life != bpf_be64_to_cpu(beat.life) || bpf_ntohs(work->header.node) != other + 1)
		return ends(COUNT_drop_order_stranger, XDP_DROP);
	__u64 now_ns = fine_clock_ns(), confirmed_ns = 0, granted_ns = now_ns;
	if (beat.kind == ECHO)
		confirmed_ns = bpf_be64_to_cpu(beat.t_from);
	if (beat.kind == BACK) {
		confirmed_ns = bpf_be64_to_cpu(beat.t_to);
		granted_ns = 0;
	}
	if (beat.kind < BEAT || beat.kind > BACK || confirmed_ns > now_ns)
		return ends(COUNT_drop_refused, XDP_DROP);
	if (beat.kind == BEAT)
		beat.t_to = bpf_cpu_to_be64(now_ns);
	if (!note_peer(work, here, other, confirmed_ns, granted_ns))
		return ends(COUNT_drop_order_busy, XDP_DROP);
	if (beat.kind == BACK) {
		count(COUNT_order_signal);
		return ends(COUNT_consume, XDP_DROP);
	}
	return answer_signal(ctx, work, here, &beat, other);
}
