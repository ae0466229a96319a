/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Items that are copies of values: the switch answers their reads itself, by the rules that every
 * cache keeps (bpf/copies.h). An item is either this or a record of replicas, and says which by
 * its lease.
 */
#pragma once

#include "send.h"

#include "pipe.h"

INLINE bool is_copy(const struct found *found)
{
	return found->item->lease != NO_LEASE;
}

/* To the store that the client chose. */
INLINE int go_home(struct xdp_md *ctx, struct work *work, const struct config *config)
{
	disown(ctx, work, config);
	count_load(ctx, work, REQUEST);
	return forward(ctx, work);
}

/*
 * Answered, or sent home: a part, what another switch gave to a replica already, and what may not
 * be answered.
 */
INLINE int read_copy(struct xdp_md *ctx, struct work *work, struct config *config,
		     const struct found *found)
{
	__u64 word = 0;
	touch_rest(found);
	count_each_request(found);
	if (is_part(&work->header) || work->header.node)
		return go_home(ctx, work, config);
	if (!may_answer(ctx, work, config, found->item, &word)) {
		pipe_miss(work, config, work->parameter[HOT_THRESHOLD], EVENT_UNANSWERED);
		count_load(ctx, work, REQUEST);
		return forward(ctx, work);
	}
	int verdict = answer_from_cells(ctx, work, config, found, word);
	if (verdict == XDP_TX)
		tally(work, HITS);
	else
		count_load(ctx, work, REQUEST);
	return verdict;
}

/* A write on its way home is one of the tenant's writes here if its store is. */
INLINE void count_write(struct xdp_md *ctx, struct work *work)
{
	if (count_load(ctx, work, REQUEST))
		tally(work, WRITES);
}

INLINE int write_home(struct xdp_md *ctx, struct work *work, const struct config *config)
{
	disown(ctx, work, config);
	count_write(ctx, work);
	return forward(ctx, work);
}

/*
 * Rule 2 as for any copy. The item is looked for again: an epoch is taken before the search that it
 * speaks for.
 */
INLINE int write_copy(struct xdp_md *ctx, struct work *work, struct config *config)
{
	count_write(ctx, work);
	return write_request(ctx, work, config);
}
