// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A discipline that every kernel's verifier refuses: it reads where a packet tells it to. */
#include "discipline.h"

/* Nothing of it may stay when it is refused. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} refused_words SEC(".maps");

STEP int refused_first(struct xdp_md *ctx)
{
	struct work *work = get_work();
	__u32 zero = 0;
	const __u64 *words = bpf_map_lookup_elem(&refused_words, &zero);
	if (!work || !words)
		return XDP_PASS;
	return words[work->value_len] ? XDP_PASS : forward(ctx, work);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
