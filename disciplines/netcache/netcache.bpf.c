// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * NetCache: the switch answers reads of hot keys, counts the others, and keeps its copies coherent with the
 * stores that it forwards the rest to. Tail-called by the entry program with an admitted packet.
 */
#include "discipline.h"

/* The parameter word with the reads per window from which a key is reported. */
#define HOT_THRESHOLD 0

INLINE int read_request(struct xdp_md *ctx, struct work *work, struct config *config)
{
	struct found found = {};
	__u64 word = 0;
	__u32 payload_len = 0, value_sum = 0;
	int verdict =
		find_answer(ctx, work, config, work->parameter[HOT_THRESHOLD], &found, &word);
	if (verdict != CONTINUE)
		return verdict;
	verdict = load_answer(ctx, work, config, &found, word, &payload_len, &value_sum);
	if (verdict != CONTINUE)
		return verdict;
	count(COUNT_hit);
	return send_back(ctx, work, payload_len, value_sum);
}

STEP int netcache(struct xdp_md *ctx)
{
	struct work *work = get_work();
	struct config *config = get_config();
	if (!work || !config)
		return XDP_PASS;
	if (work->op == OP_READ_REQUEST)
		return read_request(ctx, work, config);
	return other_than_read(ctx, work, config);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
