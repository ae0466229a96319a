// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The two ends of a frame's way from port to port: when it left the generator for the one, and when
 * it came out of the other. One frame is under way at a time.
 */
#include "wire.h"

#define FRAMES_MAX 65536

struct moment {
	__u64 departed_ns;
	__u32 frames; /* arrived so far */
	__u32 clock_ns; /* that reading the clock takes: it stands once in each way */
};

/* key: 0. lab/bench/src/ports.rs reads and writes the same struct. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct moment);
} moments SEC(".maps");

/* What each frame took, and what reading the clock took then, in nanoseconds. */
struct way {
	__u32 ns;
	__u32 clock_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FRAMES_MAX);
	__type(key, __u32);
	__type(value, struct way);
} ways SEC(".maps");

/* Behind the driver: out by the interface that the run names, to the switch at its other end. */
SEC("xdp.frags")
int depart(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct moment *moment = bpf_map_lookup_elem(&moments, &zero);
	if (!moment)
		return XDP_ABORTED;
	__u64 before_ns = bpf_ktime_get_ns(), now_ns = bpf_ktime_get_ns();
	moment->clock_ns = now_ns - before_ns;
	moment->departed_ns = now_ns;
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

/* At the far end of the port that it leaves by. */
SEC("xdp.frags")
int arrive(struct xdp_md *ctx)
{
	__u64 now_ns = bpf_ktime_get_ns();
	__u32 zero = 0;
	struct moment *moment = bpf_map_lookup_elem(&moments, &zero);
	void *data = (void *)(long)ctx->data;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	if (!moment || (void *)(ip + 1) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	if (eth->h_proto != bpf_htons(ETH_P_IP) || ip->protocol != IPPROTO_UDP)
		return XDP_PASS;
	__u32 index = moment->frames;
	struct way *way = bpf_map_lookup_elem(&ways, &index);
	if (way)
		*way = (struct way){now_ns - moment->departed_ns, moment->clock_ns};
	moment->frames++;
	return XDP_DROP;
}

/* So that what is sent to the link's other end comes to a driver's ring. */
SEC("xdp.frags")
int pass(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
