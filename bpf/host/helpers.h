/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Stand-ins for the kernel's helpers, with the kernel's limits and return values. The driver sets their script. */
#pragma once

#include <errno.h>

/* What the helpers are to do. */
struct host_script {
	__u64 now_ns;
	__u64 random;
	long fib_code; /* BPF_FIB_LKUP_RET_*, or negative */
	__u32 fib_ifindex;
	bool ring_is_full;
	__u32 events; /* that went into the ring */
	void (*interrupt)(void); /* called in helpers, at barriers, before swaps */
	int (*const *steps)(struct xdp_md *ctx); /* of the discipline; NULL: none is there */
	__u32 step_count;
};
static struct host_script host;

static void host_interrupt(void)
{
	if (host.interrupt)
		host.interrupt();
}

#define bpf_map_lookup_elem(m, key) host_lookup(host_table(m), (key))

static long host_update(struct host_table table, const void *key, const void *value, __u64 flags)
{
	__u32 index = host_index(table, key);
	if (flags == BPF_NOEXIST && host_element(table, index, false))
		return -EEXIST;
	memcpy(host_element(table, index, true), value, table.value_size);
	return 0;
}
#define bpf_map_update_elem(m, key, value, flags)                                                  \
	host_update(host_table(m), (key), (value), (flags))

/* A tail call that succeeds does not come back. */
#define bpf_tail_call(ctx, map, index)                                                             \
	do {                                                                                       \
		__u32 step_ = (index) - HOST_DISCIPLINE * PROGRAMS_PER_DISCIPLINE;                 \
		if (step_ < host.step_count)                                                       \
			return host.steps[step_](ctx);                                             \
	} while (0)

#define HOST_DISCIPLINE 3

static __u64 bpf_ktime_get_coarse_ns(void)
{
	return host.now_ns;
}

INLINE __u64 bpf_ktime_get_ns(void)
{
	return host.now_ns;
}

static __u32 bpf_get_prandom_u32(void)
{
	host.random = host.random * 6364136223846793005ULL + 1442695040888963407ULL;
	return host.random >> 32;
}

static __u32 bpf_get_smp_processor_id(void)
{
	return host_cpu;
}

static __u32 bpf_xdp_get_buff_len(struct xdp_md *ctx)
{
	return host_packet_len(ctx);
}

static long host_xdp_copy(struct xdp_md *ctx, __u32 offset, void *bytes, __u32 len, bool store)
{
	if (offset > 0xffff || len > 0xffff || offset + len > host_packet_len(ctx))
		return -EINVAL;
	for (__u32 i = 0; i < len; i++) {
		__u32 at = offset + i;
		__u8 *packet = at < ctx->linear_len ? ctx->linear + at
						    : ctx->rest + (at - ctx->linear_len);
		__u8 *other = (__u8 *)bytes + i;
		if (store)
			*packet = *other;
		else
			*other = *packet;
	}
	return 0;
}

static long bpf_xdp_load_bytes(struct xdp_md *ctx, __u32 offset, void *to, __u32 len)
{
	long result = host_xdp_copy(ctx, offset, to, len, false);
	host_interrupt();
	return result;
}

static long bpf_xdp_store_bytes(struct xdp_md *ctx, __u32 offset, void *from, __u32 len)
{
	long result = host_xdp_copy(ctx, offset, from, len, true);
	host_interrupt();
	return result;
}

static long bpf_xdp_adjust_head(struct xdp_md *ctx, int by)
{
	host_interrupt();
	long len = (long)ctx->linear_len - by;
	if (-(long)by > (long)ctx->head_room || len < ETH_HLEN)
		return -EINVAL;
	ctx->linear = host_resize(ctx->linear, ctx->linear_len, -(long)by, len, HOST_STALE_BYTE);
	ctx->linear_len = len;
	ctx->head_room += by;
	host_point(ctx);
	return 0;
}

static long bpf_xdp_adjust_tail(struct xdp_md *ctx, int by)
{
	host_interrupt();
	if (by > (long)ctx->tail_room || (long)ctx->linear_len + ctx->rest_len + by < ETH_HLEN)
		return -EINVAL;
	if (ctx->rest_len && (long)ctx->rest_len + by > 0) {
		ctx->rest = host_resize(ctx->rest, ctx->rest_len, 0, ctx->rest_len + by, 0);
		ctx->rest_len += by;
		return 0;
	}
	/* Without fragments, or shrunk by more than they hold. */
	long len = (long)ctx->linear_len + ctx->rest_len + by;
	ctx->linear = host_resize(ctx->linear, ctx->linear_len, 0, len, 0);
	ctx->linear_len = len;
	ctx->rest_len = 0;
	host_point(ctx);
	return 0;
}

static __s64 bpf_csum_diff(const void *from, __u32 from_size, const void *to, __u32 to_size,
			   __u32 seed)
{
	if (from_size % 4 || to_size % 4 || from_size + to_size > 512)
		return -EINVAL;
	__u64 sum = seed;
	__u32 word;
	for (__u32 at = 0; at < from_size; at += 4) {
		memcpy(&word, (const __u8 *)from + at, 4);
		sum += (__u32)~word;
	}
	for (__u32 at = 0; at < to_size; at += 4) {
		memcpy(&word, (const __u8 *)to + at, 4);
		sum += word;
	}
	while (sum >> 32)
		sum = (sum & 0xffffffff) + (sum >> 32);
	return sum;
}

static long bpf_fib_lookup(struct xdp_md *ctx, struct bpf_fib_lookup *fib, int len, __u32 flags)
{
	(void)ctx, (void)flags;
	host_interrupt();
	if ((size_t)len != sizeof(*fib) || (fib->family != 2 && fib->family != 10))
		return -EINVAL;
	if (host.fib_code)
		return host.fib_code;
	memset(fib->smac, 0xa1, 6);
	memset(fib->dmac, 0xb2, 6);
	fib->ifindex = host.fib_ifindex;
	return 0;
}

#define bpf_redirect_map(map, key, flags)                                                          \
	(host_lookup(host_table(map), &(__u32){key}) ? XDP_REDIRECT : (long)((flags) & 0x3))

/* Reads every byte that the kernel would copy. */
static long host_ring(const void *data, __u32 size)
{
	volatile __u8 last;
	for (__u32 i = 0; i < size; i++)
		last = ((const __u8 *)data)[i];
	(void)last;
	host.events += !host.ring_is_full;
	return host.ring_is_full ? -EAGAIN : 0;
}
#define bpf_ringbuf_output(map, data, size, flags)                                                 \
	((void)(map), (void)(flags), host_ring(data, size))
