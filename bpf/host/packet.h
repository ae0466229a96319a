/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A packet as XDP sees it: a linear part that the program may point into, and what lies in fragments. Each is
 * an allocation of exactly its bytes, made anew whenever its size changes, so that old pointers dangle.
 */
#pragma once

struct xdp_md {
	long data;
	long data_end;
	__u32 ingress_ifindex;
	/* Behind what the program knows. */
	__u8 *linear;
	__u32 linear_len;
	__u8 *rest;
	__u32 rest_len;
	__u32 head_room; /* bytes by which it may grow */
	__u32 tail_room;
};

/* What growth at the head uncovers is whatever lay there. */
#define HOST_STALE_BYTE 0xee

static __u8 *host_bytes(__u32 len)
{
	__u8 *bytes = malloc(len);
	if (len && !bytes)
		abort();
	return bytes;
}

static void host_point(struct xdp_md *ctx)
{
	ctx->data = (long)ctx->linear;
	ctx->data_end = (long)(ctx->linear + ctx->linear_len);
}

/* `linear` bytes of the packet come first; the program cannot point to what is behind them. */
static struct xdp_md host_packet(const __u8 *bytes, __u32 len, __u32 linear)
{
	struct xdp_md ctx = {.linear_len = linear < len ? linear : len};
	ctx.rest_len = len - ctx.linear_len;
	ctx.linear = host_bytes(ctx.linear_len);
	ctx.rest = host_bytes(ctx.rest_len);
	if (ctx.linear_len)
		memcpy(ctx.linear, bytes, ctx.linear_len);
	if (ctx.rest_len)
		memcpy(ctx.rest, bytes + ctx.linear_len, ctx.rest_len);
	host_point(&ctx);
	return ctx;
}

static void host_packet_free(struct xdp_md *ctx)
{
	free(ctx->linear);
	free(ctx->rest);
}

static __u32 host_packet_len(const struct xdp_md *ctx)
{
	return ctx->linear_len + ctx->rest_len;
}

/* Copies the packet out; returns its length, or that of the part that fits. */
static __u32 host_packet_read(const struct xdp_md *ctx, __u8 *to, __u32 room)
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
static __u8 *host_resize(__u8 *old, __u32 old_len, long front, __u32 len, __u8 fill)
{
	__u8 *fresh = host_bytes(len);
	for (__u32 i = 0; i < len; i++) {
		long from = (long)i - front;
		fresh[i] = from >= 0 && from < (long)old_len ? old[from] : fill;
	}
	free(old);
	return fresh;
}
