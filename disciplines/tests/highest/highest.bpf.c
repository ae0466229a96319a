// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Highest: an item's record is the highest number that anybody said for its key, 8 bytes in network
 * order. A request says a number in `version`, the reply there which is the highest now. Saying it
 * twice, or late, changes nothing.
 */
#include "counters.h"
#include "mutants.h"

#include "discipline.h"

/* No number of a tenant goes beyond it. key: tenant, host order. Written by the control half. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16); /* set when loading */
	__type(key, __u32);
	__type(value, __u64);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} highest_ceilings SEC(".maps");

#define RAISE_TRIES 16

/* Makes word and number the higher one of both; false if too many others raise the word at once. */
INLINE bool raise(__u64 *word, __u64 *number)
{
	for (int i = 0; i < RAISE_TRIES; i++) {
		__u64 before = READ_ONCE(*word);
		if (bpf_be64_to_cpu(before) >= *number && !MUTANT(highest_falls)) {
			*number = bpf_be64_to_cpu(before);
			return true;
		}
		if (compare_and_swap(word, before, bpf_cpu_to_be64(*number)) == before)
			return true;
	}
	return false;
}

STEP int highest(struct xdp_md *ctx)
{
	struct work *work = get_work();
	if (!work)
		return XDP_PASS;
	if (work->op == OP_DISCIPLINE_REQUEST)
		return next_step(ctx, work, 1);
	return forward(ctx, work);
}

/*
 * A key that is not here is forwarded: the store hears of it, and the control half makes the item.
 */
STEP int highest_raise(struct xdp_md *ctx)
{
	struct work *work = get_work();
	if (!work)
		return XDP_PASS;
	__u32 tenant = bpf_ntohl(work->header.tenant);
	__u64 number = bpf_be64_to_cpu(work->header.version);
	__u64 *ceiling = bpf_map_lookup_elem(&highest_ceilings, &tenant);
	struct found found;
	if (!ceiling || !find_given(work, &found))
		return forward(ctx, work);
	if (number > *ceiling || !raise((__u64 *)record_of(&found, work), &number))
		return ends(COUNT_drop_above_ceiling, XDP_DROP);
	work->header.op = OP_DISCIPLINE_REPLY;
	work->header.version = bpf_cpu_to_be64(number);
	count(COUNT_answer);
	return send_back_bare(ctx, work);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
