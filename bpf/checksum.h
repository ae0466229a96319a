/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sums for checksums: of 32-bit words, 64 bits wide, not yet folded or inverted. */
#pragma once

#include "maps.h"

INLINE __u16 fold(__u64 sum)
{
	sum = (__u32)sum + (sum >> 32); /* 33 bits */
	sum = (sum & 0xffff) + (sum >> 16); /* 18 */
	sum = (sum & 0xffff) + (sum >> 16); /* 17, and then the low ones are few */
	return sum + (sum >> 16);
}

INLINE __u16 checksum_of(__u64 sum)
{
	return ~fold(sum);
}

INLINE __u64 sum_word(__u64 word)
{
	return (word & 0xffffffff) + (word >> 32);
}

/* Nothing, as sums have it: up to 2^39 can be taken from a sum that has it. */
#define SUM_ZERO (0xffffULL << 24)

/* `count` is a constant: as many words of 64 bits. */
INLINE __u64 sum_words(const void *words, __u32 count)
{
	const __u64 *word = words;
	__u64 sum = 0;
	for (__u32 i = 0; i < count; i++)
		sum += sum_word(word[i]);
	return sum;
}

INLINE __u64 sum_of_key(const struct work *work)
{
	const __u64 *word = (const __u64 *)work->key;
	__u64 sum = 0;
	for (__u32 i = 0; i < 32; i++) {
		if (i * 8 >= work->key_len)
			break;
		sum += sum_word(word[i]);
	}
	return sum;
}

INLINE void ipv4_checksum(struct iphdr *ip)
{
	const __u16 *half = (const __u16 *)ip;
	__u32 sum = 0;
	ip->check = 0;
	for (int i = 0; i < 10; i++)
		sum += half[i];
	ip->check = checksum_of(sum);
}

/* Kernels before 6.13 sum at most 512 bytes in one call. */
#define SUM_CHUNK 512

/*
 * Adds `len` bytes to a sum, 1 to SUM_CHUNK of them; what follows up to the next multiple of four
 * are zeros.
 */
INLINE __u32 sum_on(const __u8 *bytes, __u32 len, __u32 sum)
{
	__u32 size = (len - 1) | 3;
	opaque(size);
	return bpf_csum_diff(NULL, 0, (__be32 *)bytes, (size & (SUM_CHUNK - 1)) + 1, sum);
}

/*
 * The sum of `len` bytes, folded, up to three times SUM_CHUNK, all of which is memory; zeros follow
 * as above.
 */
OUTLINE __u32 sum_of(const __u8 *bytes, __u32 len)
{
	__u32 sum = 0;
	if (!bytes || !len)
		return 0;
	if (len <= SUM_CHUNK)
		return fold(sum_on(bytes, len, 0));
	sum = sum_on(bytes, SUM_CHUNK, 0);
	if (len <= 2 * SUM_CHUNK)
		return fold(sum_on(bytes + SUM_CHUNK, len - SUM_CHUNK, sum));
	sum = sum_on(bytes + SUM_CHUNK, SUM_CHUNK, sum);
	return fold(sum_on(bytes + 2 * SUM_CHUNK, len - 2 * SUM_CHUNK, sum));
}

/*
 * The sum of the first `len` bytes of the scratch memory, folded, 1 to SUM_CHUNK of them; zeros
 * follow as above.
 */
INLINE __u32 sum_of_scratch(const struct work *work, __u32 len)
{
	_Static_assert(sizeof(work->scratch) == SUM_CHUNK, "in one call");
	return fold(sum_on(work->scratch, len, 0));
}

/* The sum of a value, which begins at an odd offset of the packet if the key is odd. */
INLINE __u64 sum_behind_key(const struct work *work, __u32 value_sum)
{
	return work->key_len & 1 ? bpf_htons(bpf_ntohs(value_sum) << 8 | bpf_ntohs(value_sum) >> 8)
				 : value_sum;
}
