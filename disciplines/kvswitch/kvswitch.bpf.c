// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * KVSwitch: hot keys have replicas at several stores, and each read goes to one of them, in turn.
 */
#include "redirect.h"

STEP int kvswitch(struct xdp_md *ctx)
{
	struct work *work = get_work();
	struct config *config = get_config();
	if (!work || !config)
		return XDP_PASS;
	return forward(ctx, work);
}

STEP int kvswitch_update(struct xdp_md *ctx)
{
	struct work *work = get_work();
	if (!work)
		return XDP_PASS;
	return forward(ctx, work);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
