/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SipHash-1-3 of what a reply shares with its request (the header's first half and the key), then
 * of the rest of the header, `node` last: the tag of a packet. The state after the first of these
 * is kept, so that signing a reply, or a request that was changed on its way, costs the second
 * only; and the state before `node`, so that sending it to another store costs a half of that.
 */
#pragma once

#include "maps.h"

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
	s->v0 ^= word;
}

#define KEY_WORDS_MAX 32
/*
 * `node` is the first half of a half of this word: the low bytes, as hash and processor see them.
 */
#define NODE_WORD (offsetof(struct kv_header, node) / 8)
_Static_assert(offsetof(struct kv_header, node) % 8 == 0 &&
		       __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "masked and appended as the low bytes of a word");

/*
 * Hashes what does not change while this packet is here: the first half of `work->header` and
 * `work->key`, under `work->secret`. The key counts as whole words, with zeros behind it; its
 * length is in the header.
 */
INLINE void hash_first(struct work *work)
{
	const __u64 *head = (const __u64 *)&work->header;
	const __u64 *key = (const __u64 *)work->key;
	struct sip s = {
		work->secret[0] ^ 0x736f6d6570736575ULL,
		work->secret[1] ^ 0x646f72616e646f6dULL,
		work->secret[0] ^ 0x6c7967656e657261ULL,
		work->secret[1] ^ 0x7465646279746573ULL,
	};
	for (int i = 0; i < KV_SHARED_LEN / 8; i++)
		sip_word(&s, head[i]);
	for (__u32 i = 0; i < KEY_WORDS_MAX; i++) {
		if (i * 8 >= work->key_len)
			break;
		sip_word(&s, key[i]);
	}
	work->shared = s;
}

/* Likewise, as a function of its own. */
OUTLINE int hash_shared(struct work *work)
{
	if (work)
		hash_first(work);
	return 0;
}

/* `node` as the last block's first bytes, in the order of the packet's. */
INLINE __u64 tag_named(const struct work *work, const struct sip *unnamed)
{
	struct sip s = {unnamed->v0, unnamed->v1, unnamed->v2, unnamed->v3};
	__u64 hashed = KV_HEADER_LEN - 8 + ((work->key_len + 7) & ~7U) + sizeof(work->header.node);
	sip_word(&s, hashed << 56 | work->header.node);
	s.v2 ^= 0xff;
	/*
	 * One round's code is fetched, not three's: between two packets others' has taken its place
	 * in the cache.
	 */
#pragma clang loop unroll(disable)
	for (int i = 0; i < 3; i++)
		sip_round(&s);
	return bpf_cpu_to_be64(s.v0 ^ s.v1 ^ s.v2 ^ s.v3);
}

/* The tag of `work->header` as it is now, after `hash_first`, as it stands in the packet. */
INLINE __u64 tag_of(struct work *work)
{
	const __u64 *head = (const __u64 *)&work->header;
	struct sip s = work->shared;
	for (int i = KV_SHARED_LEN / 8; i < KV_HEADER_LEN / 8 - 1; i++)
		sip_word(&s, i == NODE_WORD ? head[i] & ~0xffffULL : head[i]);
	work->unnamed = s;
	return tag_named(work, &s);
}

/*
 * Both, and in no function of its own: a return from one costs as much as a round or two on some
 * processors.
 */
INLINE __u64 tag_anew(struct work *work)
{
	hash_first(work);
	return tag_of(work);
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

/* Likewise where nothing but `node` is other than it was when the tag was checked or made last. */
INLINE void sign_named(struct work *work)
{
	work->header.tag = has_secret(work) ? tag_named(work, &work->unnamed) : 0;
}
