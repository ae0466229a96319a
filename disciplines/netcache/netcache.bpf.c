// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * NetCache: the switch answers reads of hot keys, counts the others, and keeps its copies coherent
 * with the stores that it forwards the rest to. Tail-called by the entry program with an
 * admitted packet.
 */
#include "discipline.h"

/* The parameter word with the reads per window from which a key is reported. */
#define HOT_THRESHOLD 0
/*
 * That with the longest items that are cached: bytes of the key over bytes of the value, 16 bits
 * each; 0: any.
 */
#define LONGEST 1

/* Keys that may not be cached are never reported. */
INLINE __u32 threshold_of(const struct work *work)
{
	__u32 longest = work->parameter[LONGEST] >> 16;
	return longest && work->key_len > longest ? NEVER : work->parameter[HOT_THRESHOLD];
}

INLINE int read_request(struct xdp_md *ctx, struct work *work, struct config *config)
{
	struct found found = {};
	__u64 word = 0;
	if (is_part(&work->header))
		return pass_part(ctx, work, config);
	int verdict = find_answer(ctx, work, config, threshold_of(work), &found, &word);
	if (verdict != CONTINUE)
		return verdict;
	return answer_from_cells(ctx, work, config, &found, word);
}

/*
 * A value that may not be cached is taken for longer than any item holds: what grants it is refused
 * as such, where there is an item that it is for, and the agent hears of it once.
 */
INLINE void refuse_longer(struct work *work)
{
	__u32 longest = work->parameter[LONGEST] & 0xffff;
	if (longest && work->value_len > longest)
		work->value_len = 0xffff;
}

STEP int netcache(struct xdp_md *ctx)
{
	struct work *work = get_work();
	struct config *config = get_config();
	if (!work || !config)
		return XDP_PASS;
	if (work->op == OP_READ_REQUEST)
		return read_request(ctx, work, config);
	refuse_longer(work);
	return other_than_read(ctx, work, config);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
