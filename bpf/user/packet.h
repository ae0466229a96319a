/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A packet as XDP sees it: a linear part that the program may point into, and what lies in
 * fragments. With USER_EXACT each is an allocation of exactly its bytes, made anew whenever its
 * size changes, so that old pointers dangle; else the linear part lies in a buffer that has the
 * room around it.
 */
#pragma once

struct xdp_md {
	long data;
	long data_end;
	__u32 ingress_ifindex;
	__u32 egress_ifindex;
	/* Behind what the program knows. */
	__u8 *linear;
	__u8 *rest;
	__u32 linear_len;
	__u32 rest_len;
	__u32 head_room; /* bytes by which it may grow */
	__u32 tail_room;
};

INLINE void user_packet_point(struct xdp_md *ctx)
{
	ctx->data = (long)ctx->linear;
	ctx->data_end = (long)(ctx->linear + ctx->linear_len);
}

INLINE __u32 user_packet_len(const struct xdp_md *ctx)
{
	return ctx->linear_len + ctx->rest_len;
}

#ifdef USER_EXACT
/* What growth at the head uncovers is whatever lay there. */
#define USER_STALE_BYTE 0xee

static __u8 *user_bytes(__u32 len)
{
	__u8 *bytes = malloc(len);
	if (len && !bytes)
		abort();
	return bytes;
}

/* `linear` bytes of the packet come first; the program cannot point to what is behind them. */
OUTLINE struct xdp_md user_packet(const __u8 *bytes, __u32 len, __u32 linear)
{
	struct xdp_md ctx = {.linear_len = linear < len ? linear : len};
	ctx.rest_len = len - ctx.linear_len;
	ctx.linear = user_bytes(ctx.linear_len);
	ctx.rest = user_bytes(ctx.rest_len);
	if (ctx.linear_len)
		memcpy(ctx.linear, bytes, ctx.linear_len);
	if (ctx.rest_len)
		memcpy(ctx.rest, bytes + ctx.linear_len, ctx.rest_len);
	user_packet_point(&ctx);
	return ctx;
}

OUTLINE void user_packet_free(struct xdp_md *ctx)
{
	free(ctx->linear);
	free(ctx->rest);
}

/* Copies the packet out; returns its length, or that of the part that fits. */
OUTLINE __u32 user_packet_read(const struct xdp_md *ctx, __u8 *to, __u32 room)
{
	__u32 first = ctx->linear_len < room ? ctx->linear_len : room;
	__u32 second = ctx->rest_len < room - first ? ctx->rest_len : room - first;
	if (first)
		memcpy(to, ctx->linear, first);
	if (second)
		memcpy(to + first, ctx->rest, second);
	return first + second;
}

/* New bytes, `front` of them before the old ones. */
OUTLINE __u8 *user_resize(__u8 *old, __u32 old_len, long front, __u32 len, __u8 fill)
{
	__u8 *fresh = user_bytes(len);
	for (__u32 i = 0; i < len; i++) {
		long from = (long)i - front;
		fresh[i] = from >= 0 && from < (long)old_len ? old[from] : fill;
	}
	free(old);
	return fresh;
}

INLINE void user_move_start(struct xdp_md *ctx, int by, __u32 len)
{
	ctx->linear = user_resize(ctx->linear, ctx->linear_len, -(long)by, len, USER_STALE_BYTE);
}

INLINE void user_move_end(struct xdp_md *ctx, __u32 len)
{
	ctx->linear = user_resize(ctx->linear, ctx->linear_len, 0, len, 0);
}

INLINE void user_move_end_of_rest(struct xdp_md *ctx, __u32 len)
{
	ctx->rest = user_resize(ctx->rest, ctx->rest_len, 0, len, 0);
}
#else
INLINE void user_move_start(struct xdp_md *ctx, int by, __u32 len)
{
	(void)len;
	ctx->linear += by;
}

INLINE void user_move_end(struct xdp_md *ctx, __u32 len)
{
	if (len > ctx->linear_len)
		memset(ctx->linear + ctx->linear_len, 0, len - ctx->linear_len);
}

INLINE void user_move_end_of_rest(struct xdp_md *ctx, __u32 len)
{
	if (len > ctx->rest_len)
		memset(ctx->rest + ctx->rest_len, 0, len - ctx->rest_len);
}
#endif
