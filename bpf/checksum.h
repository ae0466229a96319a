/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Checksums of what we change. UDP over IPv4 may go without one; over IPv6 it may not. Sums here are
 * 32 bits wide and not yet folded or inverted.
 */
#pragma once

#include "maps.h"

INLINE __u16 checksum_fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

INLINE void ipv4_checksum(struct iphdr *ip)
{
	const __u16 *half = (const __u16 *)ip;
	__u32 sum = 0;
	ip->check = 0;
	for (int i = 0; i < 10; i++)
		sum += half[i];
	ip->check = checksum_fold(sum);
}

/* After a header's 64 bytes were replaced in a datagram whose checksum was right. */
INLINE void udp_checksum_update(struct udphdr *udp, bool is_ipv6, struct kv_header *old,
				struct kv_header *new)
{
	if (!is_ipv6 || udp->check == 0) {
		udp->check = 0;
		return;
	}
	__u32 sum = bpf_csum_diff((void *)old, sizeof(*old), (void *)new, sizeof(*new),
				  (__u16)~udp->check);
	udp->check = checksum_fold(sum) ?: 0xffff;
}

/* Kernels before 6.13 sum at most 512 bytes in one call. */
#define SUM_CHUNK 512

/* Sum of `len` bytes; `bytes` has zeros up to the next multiple of four. */
OUTLINE __u32 sum_of(const __u8 *bytes, __u32 len)
{
	__u32 sum = 0;
	if (!bytes)
		return 0;
	for (__u32 at = 0; at < 3 * SUM_CHUNK; at += SUM_CHUNK) {
		if (at >= len)
			break;
		__u32 part = (len - at + 3) & ~3U;
		if (part > SUM_CHUNK)
			part = SUM_CHUNK;
		sum = bpf_csum_diff(NULL, 0, (__be32 *)(bytes + at), part, sum);
	}
	return sum;
}

/* A sum of bytes that start at an odd offset of the packet. */
INLINE __u32 sum_shifted(__u32 sum)
{
	__u16 folded = ~checksum_fold(sum);
	return bpf_htons(bpf_ntohs(folded) << 8 | bpf_ntohs(folded) >> 8);
}
