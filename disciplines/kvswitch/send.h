/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How a packet becomes one for another store: its address, its number, signed, the checksums
 * counted on.
 */
#pragma once

#include "redirect.h"

/*
 * The parser takes no options, so headers lie one behind the other: one look at the packet's end
 * does for all of them.
 */
struct ipv4_headers {
	__u8 byte[sizeof(struct iphdr) + sizeof(struct udphdr) + KV_HEADER_LEN];
};
struct ipv6_headers {
	__u8 byte[sizeof(struct ipv6hdr) + sizeof(struct udphdr) + KV_HEADER_LEN];
};

/*
 * What may change in a read's header on the way to a store: the store's number, the tag. In an
 * update's, op and flags too.
 */
#define WORDS_OF_READ (HEADER_WORD(node) | HEADER_WORD(tag))
#define WORDS_OF_UPDATE (HEADER_WORD(op) | WORDS_OF_READ)

/*
 * Writes whole words: what is read again as one, and was written in smaller pieces, waits for all
 * that came before it.
 */
INLINE void name_store(struct work *work, __u32 store)
{
	__u64 *first = (__u64 *)&work->header.node, word = *first;
	_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
		       "the first bytes are the low ones");
	word = (word & ~0xffffULL) | bpf_htons(store);
	opaque(word); /* or the compiler would write two bytes after all */
	*first = word;
}

INLINE void write_words(struct kv_header *to, const struct kv_header *from, const __u32 words)
{
	__u64 *out = (__u64 *)to;
	const __u64 *in = (const __u64 *)from;
#pragma unroll
	for (int i = KV_SHARED_LEN / 8; i < KV_HEADER_LEN / 8; i++) {
		if (words >> i & 1)
			out[i] = in[i];
	}
}

/* Everything behind the IP header. `moved` and `pseudo`: as `carry_on` has them. */
INLINE void send_header(struct xdp_md *ctx, struct work *work, void *behind_ip, const __u32 words,
			__u64 moved, __u64 pseudo, __u32 store)
{
	struct udphdr *udp = behind_ip;
	struct kv_header *kv = (void *)(udp + 1);
	name_store(work, store);
	if (words == WORDS_OF_READ)
		sign_named(work);
	else
		sign(work);
	if (udp->check)
		carry_on(ctx, work, udp, kv, words, moved, pseudo + udp->len);
	write_words(kv, &work->header, words);
}

INLINE bool send_ipv4(struct xdp_md *ctx, struct work *work, const struct target *to,
		      const __u32 words)
{
	struct iphdr *ip = (void *)header_at(ctx, work->l3, struct ipv4_headers);
	if (!ip)
		return false;
	__u64 moved = (__u64)to->address[0] + (__u32)~ip->daddr;
	__u64 pseudo = (__u64)ip->saddr + ip->daddr + bpf_htons(IPPROTO_UDP);
	send_header(ctx, work, ip + 1, words, moved, pseudo, to->store);
	ip->check = checksum_of((__u16)~ip->check + moved);
	ip->daddr = to->address[0];
	return true;
}

INLINE bool send_ipv6(struct xdp_md *ctx, struct work *work, const struct target *to,
		      const __u32 words)
{
	struct ipv6hdr *ip = (void *)header_at(ctx, work->l3, struct ipv6_headers);
	__u64 moved = 0;
	if (!ip)
		return false;
	for (int i = 0; i < 4; i++)
		moved += (__u64)to->address[i] + (__u32)~ip->daddr.in6_u.u6_addr32[i];
	send_header(ctx, work, ip + 1, words, moved,
		    sum_words(&ip->saddr, 4) + bpf_htons(IPPROTO_UDP), to->store);
	__builtin_memcpy(&ip->daddr, to->address, sizeof(ip->daddr));
	return true;
}

/*
 * Makes the packet, with `work->header` as it is now but for `words` as it came in, one for the
 * store. False: a header is missing, and nothing was changed.
 */
INLINE bool send_to(struct xdp_md *ctx, struct work *work, const struct target *to,
		    const __u32 words)
{
	return work->is_ipv6 ? send_ipv6(ctx, work, to, words) : send_ipv4(ctx, work, to, words);
}
