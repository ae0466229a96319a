/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Keys that are lent to switches (docs/coherence.md, "Write-back"), whatever discipline has the
 * tenant: its packets meet this before. What is not about a lent key goes on as if this was
 * not there.
 */
#pragma once

#include "lent/keeper.h"
#include "lent/owner.h"
#include "lent/store.h"

/* Places in `programs`, among those of tenants whose packets are only forwarded. */
#define LENT_PACKETS (NO_DISCIPLINE * PROGRAMS_PER_DISCIPLINE + 2)
#define LOAN_MESSAGES (NO_DISCIPLINE * PROGRAMS_PER_DISCIPLINE + 3)

/*
 * Whether this is about a loan that this switch has part in; or, for all that it knows,
 * should have.
 */
INLINE bool is_about_loan(const struct work *work, const struct config *config)
{
	if (work->op < OP_KEEP_REQUEST || work->op > OP_TAKE_REPLY)
		return false;
	switch (work->op) {
	case OP_KEEP_REQUEST:
		return bpf_ntohs(work->header.node) == config->switch_id;
	case OP_KEEP_REPLY:
	case OP_LEND_REQUEST:
	case OP_TAKE_REQUEST:
		return names_this_switch(work, config);
	default:
		return false;
	}
}

/*
 * The second switch that a write passes says so: it may become the keeper of what the first is
 * lent. A stamp that this switch is about to make has no second one yet.
 */
INLINE void name_second(struct xdp_md *ctx, struct work *work, const struct config *config)
{
	/* Replicas have been told of it, which its home has to know; or it is for one of them. */
	if (work->header.node & bpf_htons(NODE_STORE))
		return;
	bool first = !work->header.epoch || names_this_switch(work, config);
	if (first == !work->header.node)
		return;
	work->header.node = first ? 0 : bpf_htons(config->switch_id);
	sign(work);
	rewrite_header(ctx, work);
}
