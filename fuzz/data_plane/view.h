/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A packet read a second time, byte by byte from docs/protocol.md, sharing nothing with
 * bpf/parse.h.
 */
#pragma once

#define FRAME_MAX 4096

struct frame {
	__u32 len;
	__u8 bytes[FRAME_MAX];
};

struct view {
	bool is_ours; /* a whole UDP datagram on our port with our magic */
	bool is_whole; /* header, key and value lie inside the datagram, that inside the frame */
	bool is_ipv6;
	__u32 l3, l4, kv; /* offsets in bytes */
	__u32 payload_len;
	__u8 source[16];
	__u8 op, flags, key_len;
	__u32 value_len, tenant, expiry_ms, part, total;
	__u64 client, request, hash[2], epoch, version, tag;
	const __u8 *key, *value;
};

static __u64 big_endian(const __u8 *at, int bytes)
{
	__u64 value = 0;
	while (bytes--)
		value = value << 8 | *at++;
	return value;
}

static void put_big_endian(__u8 *at, int bytes, __u64 value)
{
	while (bytes--) {
		at[bytes] = value;
		value >>= 8;
	}
}

/* Whether UDP follows at `l4`. */
static bool view_ip(const struct frame *frame, struct view *view)
{
	const __u8 *bytes = frame->bytes;
	if (frame->len < 14)
		return false;
	__u32 type = big_endian(bytes + 12, 2);
	view->l3 = 14;
	if (type == 0x8100 || type == 0x88a8) {
		if (frame->len < 18)
			return false;
		type = big_endian(bytes + 16, 2);
		view->l3 = 18;
	}
	const __u8 *ip = bytes + view->l3;
	if (type == 0x0800) {
		view->l4 = view->l3 + 20;
		if (frame->len < view->l4 + 8 || (ip[0] & 15) != 5 || ip[9] != 17 ||
		    (big_endian(ip + 6, 2) & 0x3fff))
			return false;
		memset(view->source + 10, 0xff, 2);
		memcpy(view->source + 12, ip + 12, 4);
		return true;
	}
	view->l4 = view->l3 + 40;
	view->is_ipv6 = true;
	if (type != 0x86dd || frame->len < view->l4 + 8 || ip[6] != 17)
		return false;
	memcpy(view->source, ip + 8, 16);
	return true;
}

static struct view view_of(const struct frame *frame)
{
	struct view view = {0};
	if (!view_ip(frame, &view))
		return view;
	const __u8 *udp = frame->bytes + view.l4;
	if (big_endian(udp, 2) != KV_PORT && big_endian(udp + 2, 2) != KV_PORT)
		return view;
	__u32 udp_len = big_endian(udp + 4, 2);
	view.kv = view.l4 + 8;
	if (udp_len <= 8 || frame->len <= view.kv || frame->bytes[view.kv] >> 4 != 0xa)
		return view;
	view.is_ours = true;
	view.payload_len = udp_len - 8;
	if (view.payload_len < 80 || frame->len < view.kv + view.payload_len)
		return view;
	const __u8 *kv = frame->bytes + view.kv;
	view.key_len = kv[1];
	view.tenant = big_endian(kv + 4, 4);
	view.client = big_endian(kv + 8, 8);
	view.request = big_endian(kv + 16, 8);
	view.hash[0] = big_endian(kv + 24, 8);
	view.hash[1] = big_endian(kv + 32, 8);
	view.op = kv[40];
	view.flags = kv[41];
	view.value_len = big_endian(kv + 42, 2);
	view.expiry_ms = big_endian(kv + 44, 4);
	view.part = big_endian(kv + 50, 2);
	view.total = big_endian(kv + 52, 4);
	view.epoch = big_endian(kv + 56, 8);
	view.version = big_endian(kv + 64, 8);
	view.tag = big_endian(kv + 72, 8);
	view.key = kv + 80;
	view.value = view.key + view.key_len;
	view.is_whole = 80 + view.key_len + view.value_len <= view.payload_len;
	return view;
}

static __u32 add_halves(__u32 sum, const __u8 *bytes, __u32 len)
{
	for (__u32 at = 0; at < len; at++)
		sum += at & 1 ? bytes[at] : bytes[at] << 8;
	return sum;
}

static bool sums_to_ones(__u32 sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

/*
 * Sum of the UDP datagram with its pseudo header, of `len` bytes of it, as if zeros were
 * behind them.
 */
static __u32 udp_sum_of(const struct frame *frame, const struct view *view, __u32 len)
{
	const __u8 *ip = frame->bytes + view->l3;
	__u32 udp_len = view->payload_len + 8;
	__u32 sum = view->is_ipv6 ? add_halves(0, ip + 8, 32) : add_halves(0, ip + 12, 8);
	return add_halves(sum + udp_len + 17, frame->bytes + view->l4, len);
}

static __u32 udp_sum(const struct frame *frame, const struct view *view)
{
	return udp_sum_of(frame, view, view->payload_len + 8);
}

static bool has_udp_sum(const struct frame *frame, const struct view *view)
{
	const __u8 *udp = frame->bytes + view->l4;
	return udp[6] || udp[7];
}

/*
 * Whether the datagram's checksum would be right if its padding were zeros, as it was sent; or was
 * never finished, as on no wire.
 */
static bool was_sent_so(const struct frame *frame, const struct view *view)
{
	const __u8 *ip = frame->bytes + view->l3, *udp = frame->bytes + view->l4;
	__u32 pseudo = view->is_ipv6 ? add_halves(0, ip + 8, 32) : add_halves(0, ip + 12, 8);
	pseudo += view->payload_len + 8 + 17;
	while (pseudo >> 16)
		pseudo = (pseudo & 0xffff) + (pseudo >> 16);
	return has_udp_sum(frame, view) &&
	       (pseudo == (__u32)(udp[6] << 8 | udp[7]) ||
		sums_to_ones(udp_sum_of(frame, view, 8U + 80 + view->key_len + view->value_len)));
}

/* Whether no bit that counts can have flipped: so, or with a checksum of its padding as it is. */
static bool arrived_whole(const struct frame *frame, const struct view *view)
{
	return was_sent_so(frame, view) ||
	       (has_udp_sum(frame, view) && sums_to_ones(udp_sum(frame, view)));
}

/* Whether a receiver takes it: IPv6 needs a UDP checksum, IPv4 that of its header. */
static bool checksums_are_right(const struct frame *frame, const struct view *view)
{
	bool has_sum = has_udp_sum(frame, view);
	if (has_sum && !sums_to_ones(udp_sum(frame, view)))
		return false;
	if (view->is_ipv6)
		return has_sum;
	return sums_to_ones(add_halves(0, frame->bytes + view->l3, 20));
}
