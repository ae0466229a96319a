/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SipHash-2-4 of a header without its tag, and the key behind it: the tag of a packet. */
#pragma once

#include "maps.h"

struct sip {
	__u64 v0, v1, v2, v3;
};

INLINE __u64 rotate_left(__u64 x, int by)
{
	return x << by | x >> (64 - by);
}

INLINE void sip_round(struct sip *s)
{
	s->v0 += s->v1;
	s->v1 = rotate_left(s->v1, 13) ^ s->v0;
	s->v0 = rotate_left(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = rotate_left(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = rotate_left(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = rotate_left(s->v1, 17) ^ s->v2;
	s->v2 = rotate_left(s->v2, 32);
}

INLINE void sip_word(struct sip *s, __u64 word)
{
	s->v3 ^= word;
	sip_round(s);
	sip_round(s);
	s->v0 ^= word;
}

#define TAGGED_HEADER_BYTES 56
#define KEY_WORDS_MAX 32

/*
 * The tag of `work->header` and `work->key` as it stands in the packet. The header's 56 bytes are whole
 * words, so the key starts on a word; behind the key there are zeros.
 */
OUTLINE __u64 tag_of(struct work *work)
{
	if (!work)
		return 0;
	const __u64 *head = (const __u64 *)&work->header;
	const __u64 *key = (const __u64 *)work->key;
	__u32 key_len = work->header.key_len;
	struct sip s = {
		work->secret[0] ^ 0x736f6d6570736575ULL,
		work->secret[1] ^ 0x646f72616e646f6dULL,
		work->secret[0] ^ 0x6c7967656e657261ULL,
		work->secret[1] ^ 0x7465646279746573ULL,
	};
	for (int i = 0; i < TAGGED_HEADER_BYTES / 8; i++)
		sip_word(&s, head[i]);
	for (__u32 i = 0; i < KEY_WORDS_MAX - 1; i++) {
		if (i * 8 + 8 > key_len)
			break;
		sip_word(&s, key[i]);
	}
	__u64 last = key[(key_len >> 3) & (KEY_WORDS_MAX - 1)];
	sip_word(&s, (__u64)(TAGGED_HEADER_BYTES + key_len) << 56 | last);
	s.v2 ^= 0xff;
	for (int i = 0; i < 4; i++)
		sip_round(&s);
	return bpf_cpu_to_be64(s.v0 ^ s.v1 ^ s.v2 ^ s.v3);
}

INLINE bool has_secret(const struct work *work)
{
	return work->secret[0] | work->secret[1];
}

/* Signs `work->header` as it is now; zero for a tenant without a secret. */
INLINE void sign(struct work *work)
{
	work->header.tag = has_secret(work) ? tag_of(work) : 0;
}
