/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Stand-ins for the kernel's helpers, with the kernel's limits and return values. */
#pragma once

#include <errno.h>

/* A tail call that succeeds does not come back. */
#define bpf_tail_call(ctx, map, index)                                                             \
	do {                                                                                       \
		__u32 place_ = (index);                                                            \
		if (place_ < USER_PROGRAMS && user_cpu->at->program[place_])                       \
			return user_cpu->at->program[place_](ctx);                                 \
	} while (0)

#define tail_call_to(ctx, map, place) bpf_tail_call(ctx, map, place)

/* Whoever runs the switch knows the time. */
INLINE __u64 clock_ns(struct clock *clock)
{
	(void)clock;
	return user_cpu->now_ns - user_cpu->late_ns;
}

INLINE __u64 fine_clock_ns(void)
{
	return user_cpu->now_ns;
}

INLINE __u32 bpf_get_prandom_u32(void)
{
	user_cpu->random = user_cpu->random * 6364136223846793005ULL + 1442695040888963407ULL;
	return user_cpu->random >> 32;
}

INLINE __u32 bpf_get_smp_processor_id(void)
{
	return user_cpu->number;
}

INLINE __u32 bpf_xdp_get_buff_len(struct xdp_md *ctx)
{
	return user_packet_len(ctx);
}

INLINE bool user_is_inside(const struct xdp_md *ctx, __u32 offset, __u32 len)
{
	return offset <= 0xffff && len <= 0xffff && offset + len <= user_packet_len(ctx);
}

/* What of `offset` and `len` lies in the linear part. */
INLINE __u32 user_linear_part(const struct xdp_md *ctx, __u32 offset, __u32 len)
{
	__u32 room = offset < ctx->linear_len ? ctx->linear_len - offset : 0;
	return len < room ? len : room;
}

INLINE __u8 *user_in_rest(const struct xdp_md *ctx, __u32 offset)
{
	return ctx->rest + (offset > ctx->linear_len ? offset - ctx->linear_len : 0);
}

INLINE long bpf_xdp_load_bytes(struct xdp_md *ctx, __u32 offset, void *to, __u32 len)
{
	long result = -EINVAL;
	if (user_is_inside(ctx, offset, len)) {
		__u32 part = user_linear_part(ctx, offset, len);
		if (part)
			memcpy(to, ctx->linear + offset, part);
		if (part < len)
			memcpy((__u8 *)to + part, user_in_rest(ctx, offset), len - part);
		result = 0;
	}
	user_moment();
	return result;
}

INLINE long bpf_xdp_store_bytes(struct xdp_md *ctx, __u32 offset, void *from, __u32 len)
{
	long result = -EINVAL;
	if (user_is_inside(ctx, offset, len)) {
		__u32 part = user_linear_part(ctx, offset, len);
		if (part)
			memcpy(ctx->linear + offset, from, part);
		if (part < len)
			memcpy(user_in_rest(ctx, offset), (__u8 *)from + part, len - part);
		result = 0;
	}
	user_moment();
	return result;
}

OUTLINE long bpf_xdp_adjust_head(struct xdp_md *ctx, int by)
{
	user_moment();
	long len = (long)ctx->linear_len - by;
	if (-(long)by > (long)ctx->head_room || len < ETH_HLEN)
		return -EINVAL;
	user_move_start(ctx, by, len);
	ctx->linear_len = len;
	ctx->head_room += by;
	user_packet_point(ctx);
	return 0;
}

OUTLINE long bpf_xdp_adjust_tail(struct xdp_md *ctx, int by)
{
	user_moment();
	if (by > (long)ctx->tail_room || (long)user_packet_len(ctx) + by < ETH_HLEN)
		return -EINVAL;
	ctx->tail_room -= by;
	if (ctx->rest_len && (long)ctx->rest_len + by > 0) {
		user_move_end_of_rest(ctx, ctx->rest_len + by);
		ctx->rest_len += by;
		return 0;
	}
	/* Without fragments, or shrunk by more than they hold. */
	long len = (long)user_packet_len(ctx) + by;
	user_move_end(ctx, len);
	ctx->linear_len = len;
	ctx->rest_len = 0;
	user_packet_point(ctx);
	return 0;
}

INLINE __s64 bpf_csum_diff(const void *from, __u32 from_size, const void *to, __u32 to_size,
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

INLINE long bpf_fib_lookup(struct xdp_md *ctx, struct bpf_fib_lookup *fib, int len, __u32 flags)
{
	(void)ctx, (void)flags;
	user_moment();
	if ((size_t)len != sizeof(*fib) || (fib->family != 2 && fib->family != 10))
		return -EINVAL;
	return user_cpu->at->fib(user_cpu->at->fib_context, fib);
}

INLINE long user_redirect(const struct bpf_devmap_val *to, __u64 flags)
{
	if (!to || !to->ifindex)
		return flags & 0x3;
	user_cpu->port = to->ifindex;
	user_cpu->group = NULL;
	return XDP_REDIRECT;
}
#define bpf_redirect_map(m, key, flags)                                                            \
	user_redirect(bpf_map_lookup_elem((m), (&(__u32){key})), (flags))

/*
 * Groups of ports: the one of that index, or NULL; and the verdict that copies to its ports but the
 * packet's own.
 */
INLINE const struct user_group *user_group(const struct user_group *group)
{
	return group && group->count ? group : NULL;
}
#define lookup_group(groups, index) user_group(bpf_map_lookup_elem((groups), (index)))

INLINE long redirect_to_group(const struct user_group *group)
{
	user_cpu->group = group;
	return XDP_REDIRECT;
}
#define redirect_to_pair(pair) redirect_to_group(pair)

#define bpf_ringbuf_output(m, data, size, flags)                                                   \
	((void)(flags), user_ring_output(user_table_of(m), (data), (size)))
