// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A hit cut short at each of its steps: what one step costs is the difference to the one before.
 * Built from the data plane's own headers. `step_parsed` stands alone, the others behind the
 * entry program.
 */
#include "coherence.h"

SEC("xdp.frags")
int step_parsed(struct xdp_md *ctx)
{
	struct work *work;
	int verdict = parse(ctx, &work);
	return verdict == CONTINUE ? XDP_TX : verdict;
}

SEC("xdp.frags")
int step_admitted(struct xdp_md *ctx)
{
	(void)ctx;
	struct work *work = get_work();
	return work && work->op == OP_READ_REQUEST ? XDP_TX : XDP_DROP;
}

SEC("xdp.frags")
int step_found(struct xdp_md *ctx)
{
	(void)ctx;
	struct work *work = get_work();
	struct found found;
	return work && find(work, &found) ? XDP_TX : XDP_DROP;
}

SEC("xdp.frags")
int step_counted(struct xdp_md *ctx)
{
	(void)ctx;
	struct work *work = get_work();
	struct config *config = get_config();
	struct found found;
	if (!work || !config || !find(work, &found))
		return XDP_DROP;
	count_request(&found, config);
	struct lease *lease = lease_of(found.item);
	return lease && lease_holds(lease, work->now_ns) ? XDP_TX : XDP_DROP;
}

SEC("xdp.frags")
int step_copied(struct xdp_md *ctx)
{
	struct work *work = get_work();
	struct config *config = get_config();
	struct found found;
	if (!work || !config || !find(work, &found))
		return XDP_DROP;
	count_request(&found, config);
	struct lease *lease = lease_of(found.item);
	if (!lease || !lease_holds(lease, work->now_ns))
		return XDP_DROP;
	__u32 len = found.item->value_len;
	if (!len || len > VALUE_MAX_BYTES)
		return XDP_DROP;
	__u8 *value = value_of(&found, work->key_len);
	if (bpf_xdp_store_bytes(ctx, work->kv + KV_HEADER_LEN + work->key_len, value, len) < 0)
		return XDP_DROP;
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
