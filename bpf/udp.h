/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * UDP checksums go from end to end: what is changed here is counted on, so that a bit that flipped
 * on the way still shows at the receiver; and nothing is kept that did not arrive whole. Over IPv4
 * a datagram may have none (0).
 *
 * A socket of this machine may leave the checksum to a device that the packet never comes to: then
 * the sum of the pseudo header stands in its place, and the packet has crossed no wire. In native
 * mode nobody knows any more that it is unfinished. In generic mode the socket buffer says so, and
 * whoever takes it finishes it, of what stands there: the driver of a card that sums, or the
 * kernel; or a socket takes it as it is.
 */
#pragma once

#include "checksum.h"
#include "parse.h"

/*
 * The pseudo header's sum, which is the same in both directions. False where there is no IP header.
 */
INLINE bool pseudo_sum(struct xdp_md *ctx, const struct work *work, __u16 udp_len, __u64 *sum)
{
	*sum = (__u32)bpf_htons(udp_len) + bpf_htons(IPPROTO_UDP);
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (!ip)
			return false;
		*sum += sum_words(&ip->saddr, 4);
		return true;
	}
	struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
	if (!ip)
		return false;
	*sum += ip->saddr;
	*sum += ip->daddr;
	return true;
}

INLINE bool is_unfinished(const struct udphdr *udp, __u64 pseudo)
{
	return udp->check == fold(pseudo);
}

/* Whether whoever takes this switch's packets finishes what is unfinished. */
INLINE bool are_finished_later(void)
{
	const struct config *config = get_config();
	return config && READ_ONCE(config->sums_later);
}

/*
 * The UDP header moves in its frame: nobody finishes its checksum any more, for a socket buffer
 * goes on naming the place that it had.
 */
INLINE void lose_place_of_sum(struct work *work)
{
	work->flags &= ~WORK_UNFINISHED;
}

/*
 * The checksum of `udp->len` bytes with `work->header`, the key and a value of that sum; of a
 * packet that `is_intact` found to be finished later, what that begins with. False where there is
 * no IP header.
 */
INLINE bool write_checksum(struct xdp_md *ctx, const struct work *work, struct udphdr *udp,
			   __u32 value_sum)
{
	__u64 sum;
	if (!pseudo_sum(ctx, work, bpf_ntohs(udp->len), &sum))
		return false;
	if (unlikely(work->flags & WORK_UNFINISHED)) {
		udp->check = fold(sum);
		return true;
	}
	sum += (__u32)udp->source + udp->dest + udp->len;
	sum += sum_words(&work->header, KV_HEADER_LEN / 8) + sum_of_key(work);
	udp->check = checksum_of(sum + sum_behind_key(work, value_sum)) ?: 0xffff;
	return true;
}

/* As many pieces of scratch memory as the largest frame has that comes in one buffer: a page. */
#define PIECES_OF_FRAME 8

/*
 * The sum of the first `left` bytes behind the key. False: that is more than a page, or not there.
 */
WHOLE int sum_of_first(struct xdp_md *ctx, struct work *work, __u32 left, __u32 *sum)
{
	if (!work || !sum)
		return false;
	__u32 at = work->kv + KV_HEADER_LEN + work->key_len;
	*sum = 0;
	for (int i = 0; i < PIECES_OF_FRAME; i++) {
		if (!left)
			break;
		__u32 part = left < sizeof(work->scratch) ? left : sizeof(work->scratch);
		part = ((part - 1) & 0x1ff) + 1; /* 1..512, as the verifier sees it */
		__builtin_memset(work->scratch, 0, sizeof(work->scratch));
		if (bpf_xdp_load_bytes(ctx, at, work->scratch, part) < 0)
			return false;
		*sum = fold((__u64)*sum + sum_of_scratch(work, part));
		at += part;
		left -= part;
	}
	return !left;
}

/*
 * The sum of `work->payload_len` as far as it stands behind the key. False: it is too long for
 * that, or not there.
 */
INLINE bool sum_in_packet(struct xdp_md *ctx, struct work *work, __u32 *sum)
{
	return sum_of_first(ctx, work, work->payload_len - KV_HEADER_LEN - work->key_len, sum);
}

/*
 * Whether a checksum that is the pseudo header's sum is right as it stands, as that of one datagram
 * in 65,535 is. `old` is the header that it covers.
 */
OUTLINE int is_finished(struct xdp_md *ctx, struct work *work, const struct udphdr *udp,
			const struct kv_header *old, __u64 pseudo)
{
	if (!work || !udp || !old)
		return false;
	__u64 sum = pseudo + udp->source + udp->dest + udp->len + udp->check;
	__u32 behind;
	sum += sum_words(old, KV_HEADER_LEN / 8) + sum_of_key(work);
	return sum_in_packet(ctx, work, &behind) &&
	       fold(sum + sum_behind_key(work, behind)) == 0xffff;
}

/* Words of the header, as bits: those behind what a reply shares with its request. */
#define HEADER_WORD(field) (1U << offsetof(struct kv_header, field) / 8)
#define CHANGING_WORDS                                                                             \
	(HEADER_WORD(op) | HEADER_WORD(node) | HEADER_WORD(epoch) | HEADER_WORD(version) |         \
	 HEADER_WORD(tag))

/*
 * Before `words` of the header, which may have changed, and addresses are written over; `moved` is
 * what the latter add to a sum over them; `pseudo` the pseudo header's sum. There is a checksum. An
 * unfinished one stays that of the addresses, or is left out where nobody finishes it.
 */
INLINE void carry_on(struct xdp_md *ctx, struct work *work, struct udphdr *udp,
		     const struct kv_header *old, const __u32 words, __u64 moved, __u64 pseudo)
{
	const __u32 *was = (const __u32 *)old, *is = (const __u32 *)&work->header;
	if (unlikely(is_unfinished(udp, pseudo)) && !is_finished(ctx, work, udp, old, pseudo)) {
		bool stays = work->is_ipv6 || are_finished_later();
		udp->check = stays ? fold(udp->check + moved) : 0;
		return;
	}
	__u64 sum = SUM_ZERO + (__u16)~udp->check + moved;
#pragma unroll
	for (int i = KV_SHARED_LEN / 4; i < KV_HEADER_LEN / 4; i++) {
		if (words >> i / 2 & 1)
			sum += (__u64)is[i] - was[i];
	}
	udp->check = checksum_of(sum) ?: 0xffff;
}

/* Likewise where addresses stay. */
INLINE void carry_checksum(struct xdp_md *ctx, struct work *work, struct udphdr *udp,
			   const struct kv_header *old)
{
	__u64 pseudo;
	if (udp->check && pseudo_sum(ctx, work, bpf_ntohs(udp->len), &pseudo))
		carry_on(ctx, work, udp, old, CHANGING_WORDS, 0, pseudo);
}

/*
 * The checksum of the answer to a request that has nothing but zeros behind its key: the request's
 * own, counted on, so that a bit that flipped on its way still shows. `work->header` comes in the
 * place of `old`, of which an answer changes what stands behind KV_SHARED_LEN, and a value of that
 * sum behind the key; addresses and ports change places. 0: the request has none to count on.
 */
INLINE __u16 answer_checksum(struct xdp_md *ctx, const struct work *work, const struct udphdr *udp,
			     const struct kv_header *old, __be16 udp_len, __u32 value_sum)
{
	const __u32 shared = KV_SHARED_LEN / 8, all = KV_HEADER_LEN / 8;
	__u64 pseudo;
	if (!udp->check || !pseudo_sum(ctx, work, bpf_ntohs(udp->len), &pseudo) ||
	    unlikely(is_unfinished(udp, pseudo)))
		return 0;
	__u64 sum = SUM_ZERO + (__u16)~udp->check + sum_behind_key(work, value_sum);
	sum += sum_words((const __u64 *)&work->header + shared, all - shared);
	sum -= sum_words((const __u64 *)old + shared, all - shared);
	/* It stands in the pseudo header too. */
	sum += 2 * (__u64)udp_len;
	sum -= 2 * (__u64)udp->len;
	return checksum_of(sum) ?: 0xffff;
}

/*
 * Whether the datagram is as it was sent: `work->header` and key as they came in, a value of that
 * sum, and zeros behind it. Not for one without a checksum. What is unfinished is taken as it is,
 * and a checksum that is made anew is left to whoever finishes it, if anybody does.
 */
OUTLINE int is_intact(struct xdp_md *ctx, struct work *work, __u32 value_sum)
{
	__u64 pseudo;
	if (!work)
		return false;
	struct udphdr *udp = header_at(ctx, work->l4, struct udphdr);
	if (!udp || !udp->check || !pseudo_sum(ctx, work, bpf_ntohs(udp->len), &pseudo))
		return false;
	__u64 sum = pseudo + udp->source + udp->dest + udp->len + udp->check;
	sum += sum_words(&work->header, KV_HEADER_LEN / 8) + sum_of_key(work);
	if (fold(sum + sum_behind_key(work, value_sum)) == 0xffff)
		return true;
	if (!is_unfinished(udp, pseudo))
		return false;
	if (are_finished_later())
		work->flags |= WORK_UNFINISHED;
	return true;
}

/*
 * Whether a request with nothing but zeros behind its key is not as it was sent, as far as can be
 * known: over IPv4 it may have no checksum.
 */
INLINE bool is_spoiled(struct xdp_md *ctx, struct work *work)
{
	struct udphdr *udp = header_at(ctx, work->l4, struct udphdr);
	return udp && udp->check && !is_intact(ctx, work, 0);
}
