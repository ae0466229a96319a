// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Chains of switches that keep keys, and agree on each value: NetChain, and NetCRAQ. A write goes
 * from the head down the chain; the tail commits it, answers the client, and tells the others. Any
 * member (NetCRAQ), or the tail, answers reads. docs/coordination.md has the rules, by their
 * numbers here.
 */
#include "counters.h"
#include "mutants.h"

#include "ack.h"
#include "copy.h"
#include "read.h"
#include "repair.h"
#include "signal.h"

/* Steps by number; src/lib.rs has the same order. */
#define STEP_WRITE 2
#define STEP_PASS 3
#define STEP_READ 4
#define STEP_REPAIR 5
#define STEP_COPY 6

/* A client's request that this switch is to answer. */
INLINE int from_client(struct xdp_md *ctx, struct work *work, const struct here *here)
{
	__u64 number = number_in(work);
	if (number > here->is.number || !adopt(work, here))
		return try_again(ctx, work, here, COUNT_order_held);
	if (number < here->is.number)
		return moved(ctx, work, here);
	return next_step(ctx, work, work->op == OP_CHAIN_READ ? STEP_READ : STEP_WRITE);
}

INLINE __u8 kind_of(struct xdp_md *ctx, const struct work *work)
{
	__u8 kind = 0;
	return read_behind_key(ctx, work, &kind, sizeof(kind)) ? kind : 0;
}

/* What another switch says, or its agent. */
INLINE int from_peer(struct xdp_md *ctx, struct work *work, const struct here *here)
{
	__u8 kind = work->op == OP_PEER_MESSAGE ? kind_of(ctx, work) : 0;
	if (kind == COPIED)
		return send_off(ctx, work); /* to the agent */
	bool is_of_now = number_in(work) == here->is.number || MUTANT(order_any_number);
	if (!is_of_now || !adopt(work, here))
		return ends(COUNT_drop_order_number, XDP_DROP);
	if (work->op == OP_PEER_SIGNAL || kind == COPY || kind == COPY_SESSION)
		return next_step(ctx, work, STEP_COPY);
	return next_step(ctx, work, kind == PASS ? STEP_PASS : STEP_REPAIR);
}

INLINE bool is_peers(const struct work *work)
{
	return work->op == OP_CHAIN_ACK || work->op == OP_PEER_MESSAGE ||
	       work->op == OP_PEER_SIGNAL;
}

STEP int chain(struct xdp_md *ctx)
{
	struct work *work = get_work();
	struct config *config = get_config();
	struct here here = {};
	if (!work || !config)
		return XDP_PASS;
	bool is_request = work->op == OP_CHAIN_READ || work->op == OP_CHAIN_WRITE;
	bool is_answer = work->op == OP_CHAIN_WRITE_REPLY;
	if ((!is_request && !is_answer && !is_peers(work)) || !find_here(work, config, &here))
		return send_off(ctx, work);
	if (is_answer)
		return next_step(ctx, work, STEP_REPAIR);
	if (is_for_us(ctx, work, &here))
		return is_request ? from_client(ctx, work, &here) : from_peer(ctx, work, &here);
	if (work->op == OP_CHAIN_READ)
		return next_step(ctx, work, STEP_READ);
	return send_off(ctx, work);
}

/* A packet of this switch's own that went round, or one that waited for another. */
STEP int chain_round(struct xdp_md *ctx)
{
	struct work *work = get_work();
	struct config *config = get_config();
	struct here here = {};
	if (!work || !config)
		return XDP_DROP;
	if (!find_here(work, config, &here) || number_in(work) != here.is.number)
		return ends(COUNT_round_gone, XDP_DROP);
	address_to_far_end(ctx);
	if (work->op != OP_PEER_MESSAGE)
		return take_round(ctx, work, &here);
	if (is_for_us(ctx, work, &here))
		return next_step(ctx, work, kind_of(ctx, work) == PASS ? STEP_PASS : STEP_REPAIR);
	struct peer peer = {};
	if (!read_behind_key(ctx, work, &peer, sizeof(peer)))
		return ends(COUNT_round_gone, XDP_DROP);
	return stream(ctx, work, version_in(work) + 1, MORE | (peer.flags & AGAIN));
}

#define STEP_BEGINS(gone)                                                                          \
	struct work *work = get_work();                                                            \
	struct config *config = get_config();                                                      \
	struct here here = {};                                                                     \
	if (!work || !config)                                                                      \
		return XDP_PASS;                                                                   \
	if (!find_here(work, config, &here))                                                       \
	return gone

STEP int chain_write(struct xdp_md *ctx)
{
	STEP_BEGINS(send_off(ctx, work));
	return take_write(ctx, work, config, &here);
}

STEP int chain_pass(struct xdp_md *ctx)
{
	STEP_BEGINS(ends(COUNT_drop_order_number, XDP_DROP));
	return take_pass(ctx, work, config, &here);
}

STEP int chain_read(struct xdp_md *ctx)
{
	STEP_BEGINS(send_off(ctx, work));
	if (is_for_us(ctx, work, &here))
		return take_read(ctx, work, &here);
	return read_by_the_way(ctx, work, &here);
}

STEP int chain_repair(struct xdp_md *ctx)
{
	STEP_BEGINS(work->op == OP_CHAIN_WRITE_REPLY ? send_off(ctx, work)
						     : ends(COUNT_drop_order_number, XDP_DROP));
	if (work->op == OP_CHAIN_WRITE_REPLY)
		return take_answer(ctx, work, &here);
	if (work->op == OP_CHAIN_ACK)
		return take_ack(ctx, work, &here);
	switch (kind_of(ctx, work)) {
	case LOST:
		return take_lost(ctx, work, config, &here);
	case NACK:
		return take_nack(ctx, work, &here);
	case ASK:
		return take_ask(ctx, work, &here);
	default:
		return ends(COUNT_drop_refused, XDP_DROP);
	}
}

STEP int chain_copy(struct xdp_md *ctx)
{
	STEP_BEGINS(ends(COUNT_drop_order_number, XDP_DROP));
	if (work->op == OP_PEER_SIGNAL)
		return take_signal(ctx, work, &here);
	if (kind_of(ctx, work) == COPY)
		return take_copy(ctx, work, config, &here);
	return take_session_copy(ctx, work, config, &here);
}

STEP int chain_stream(struct xdp_md *ctx)
{
	STEP_BEGINS(ends(COUNT_drop_order_number, XDP_DROP));
	return take_stream(ctx, work, &here);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
