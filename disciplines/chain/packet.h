/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What stands behind the key in packets of chains, and how one packet becomes another. */
#pragma once

#include "record.h"

RECIRCULATES;

/* A client's write, before the list of addresses and the value. */
struct ask {
	__be64 session;
	__be64 condition;
};

enum peer_kind { PASS = 1, LOST, NACK, ASK, COPY, COPIED, COPY_SESSION };

/* `flags` of struct peer. */
#define REPLY 1 /* the source is the client, who is to be answered */
#define AGAIN 2 /* asked for again: the tail acknowledges or answers what it has */
#define JUMP 4 /* the first version that a filling tail is passed of a key */
#define ALSO 8 /* the client signed with the tenant's other secret */
#define DELETE 16 /* the version is a delete; of a refusal: there is no such key */
#define MORE 32 /* the next version follows; within one switch */
#define BARE 64 /* a copy without a version */
#define HEARD                                                                                      \
	128 /* answers to the client pass all members before the tail: they need no other word */

struct peer {
	__u8 kind;
	__u8 flags;
	__be16 status;
	__be32 unused;
	__be64 session;
	__be64 clean;
	__be64 accepted;
	__be64 fill;
};
_Static_assert(sizeof(struct peer) == 40 && sizeof(struct ask) == 16,
	       "src/packets.rs, crates/wire");

#define PROTOCOL_HOPS 64

/* The first byte behind the key. */
INLINE __u32 behind_key(const struct work *work)
{
	return work->kv + KV_HEADER_LEN + work->key_len;
}

INLINE __u64 number_in(const struct work *work)
{
	return bpf_be64_to_cpu(work->header.epoch);
}

INLINE __u64 version_in(const struct work *work)
{
	return bpf_be64_to_cpu(work->header.version);
}

/*
 * Whether header, key and all of the value are as they were sent. `before` is the sum of what
 * stands before the version's value, a multiple of 4 bytes; finds the sum of the rest.
 */
WHOLE int value_sum(struct xdp_md *ctx, struct work *work, __u64 before, __u16 *sum)
{
	__u32 whole = 0;
	if (!work || !sum || !sum_of_first(ctx, work, work->value_len, &whole) ||
	    !is_intact(ctx, work, whole))
		return false;
	*sum = fold((__u64)whole + (__u16)~fold(before));
	return true;
}

/*
 * Whether header and key are as they were sent: a secret's tag says so, or else the checksum, which
 * covers the value too. It comes before anything is done by what a packet says: a bit that flipped
 * may have made another number, version or key of it.
 */
INLINE bool is_as_sent(struct xdp_md *ctx, struct work *work)
{
	__u16 sum = 0;
	return has_secret(work) || value_sum(ctx, work, 0, &sum);
}

/*
 * Signs from now on as that tenant does: with its secret, or the other one, as long as it has one.
 */
WHOLE int sign_as(struct work *work, __u32 tenant, __u32 also)
{
	const struct tenant *signer = bpf_map_lookup_elem(&tenants, &tenant);
	if (!work || !signer)
		return false;
	also = also && (signer->also_secret[0] | signer->also_secret[1]);
	work->secret[0] = also ? signer->also_secret[0] : signer->secret[0];
	work->secret[1] = also ? signer->also_secret[1] : signer->secret[1];
	hash_shared(work);
	return true;
}

INLINE bool sign_as_system(struct work *work)
{
	return sign_as(work, TENANT_SYSTEM, 0);
}

/* Whether the packet was signed with the tenant's second secret. */
INLINE bool is_signed_also(const struct work *work)
{
	__u32 id = bpf_ntohl(work->header.tenant);
	const struct tenant *tenant = bpf_map_lookup_elem(&tenants, &id);
	return tenant &&
	       (tenant->secret[0] != work->secret[0] || tenant->secret[1] != work->secret[1]);
}

/*
 * Sends it to that member, from this one (`us`) or from whom it came. Checksums are written later.
 */
WHOLE int write_addresses(struct xdp_md *ctx, const struct work *work, const struct member *to,
			  const struct member *us, __u32 from_us)
{
	struct udphdr *udp = work ? header_at(ctx, work->l4, struct udphdr) : NULL;
	if (!udp || !to || !us)
		return false;
	udp->dest = bpf_htons(KV_PORT);
	if (from_us)
		udp->source = bpf_htons(KV_PORT);
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (!ip)
			return false;
		__builtin_memcpy(&ip->daddr, to->address, 16);
		if (from_us)
			__builtin_memcpy(&ip->saddr, us->address, 16);
		ip->hop_limit = PROTOCOL_HOPS;
		return true;
	}
	struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
	if (!ip)
		return false;
	ip->daddr = to->address[0];
	if (from_us)
		ip->saddr = us->address[0];
	ip->ttl = PROTOCOL_HOPS;
	return true;
}

INLINE bool address_to(struct xdp_md *ctx, const struct work *work, const struct here *here,
		       __u32 slot, bool from_us)
{
	return write_addresses(ctx, work, member_in(here, slot), member_in(here, own_slot(here)),
			       from_us);
}

/* Whether the packet is for that member; `is_source`: whether it comes from it. */
WHOLE int names_member(struct xdp_md *ctx, const struct work *work, const struct member *member,
		       int is_source)
{
	if (!work || !member || !member->used)
		return false;
	if (work->is_ipv6) {
		struct ipv6hdr *ip = header_at(ctx, work->l3, struct ipv6hdr);
		if (!ip)
			return false;
		const struct in6_addr *address = is_source ? &ip->saddr : &ip->daddr;
		const __be32 *word = address->in6_u.u6_addr32;
		return word[0] == member->address[0] && word[1] == member->address[1] &&
		       word[2] == member->address[2] && word[3] == member->address[3];
	}
	struct iphdr *ip = header_at(ctx, work->l3, struct iphdr);
	return ip && (is_source ? ip->saddr : ip->daddr) == member->address[0];
}

/* Where the kernel's routes lead. */
WHOLE int send_off(struct xdp_md *ctx, struct work *work)
{
	return forward(ctx, work);
}

INLINE bool is_for_us(struct xdp_md *ctx, const struct work *work, const struct here *here)
{
	return here->view->self < SLOTS && !(here->view->flags & VIEW_IPV6) == !work->is_ipv6 &&
	       names_member(ctx, work, member_in(here, own_slot(here)), false);
}

/*
 * Moves all that stands before the value `by` bytes, towards the front; the other way if it is
 * negative.
 */
WHOLE int move_front(struct xdp_md *ctx, struct work *work, int by)
{
	if (!work)
		return false;
	__u32 front = behind_key(work);
	front = ((front - 1) & 0x1ff) + 1;
	lose_place_of_sum(work);
	return bpf_xdp_load_bytes(ctx, 0, work->scratch, front) == 0 &&
	       bpf_xdp_adjust_head(ctx, -by) == 0 &&
	       bpf_xdp_store_bytes(ctx, 0, work->scratch, front) == 0;
}

/* Makes the frame hold a payload of that length; what stands behind the key is lost. */
WHOLE int make_long(struct xdp_md *ctx, struct work *work, __u32 payload_len)
{
	if (!work)
		return false;
	__u32 have = frame_len(ctx), need = work->kv + payload_len;
	return need <= have || bpf_xdp_adjust_tail(ctx, need - have) == 0 ||
	       move_front(ctx, work, need - have);
}

/* Writes `work->header` with a value of that length and sum, which stands behind the key. */
WHOLE int finish(struct xdp_md *ctx, struct work *work, __u32 value_len, __u32 value_sum)
{
	if (!work)
		return false;
	work->header.value_len = bpf_htons(value_len);
	return rewrite_packet(ctx, work, KV_HEADER_LEN + work->key_len + value_len, value_sum,
			      ONWARDS);
}

/*
 * Likewise, and turns the packet back to whom it came from. Its Ethernet header stays as it came:
 * `send_off` may leave the packet to the kernel, which drops what is not addressed to it.
 */
WHOLE int finish_back(struct xdp_md *ctx, struct work *work, __u32 value_len, __u32 value_sum)
{
	if (!work)
		return false;
	work->header.value_len = bpf_htons(value_len);
	return rewrite_packet(ctx, work, KV_HEADER_LEN + work->key_len + value_len, value_sum,
			      TURNED);
}

/* A packet that was turned leaves by where it came in. */
WHOLE int send_here(struct xdp_md *ctx)
{
	struct ethhdr *eth = eth_of(ctx);
	if (!eth)
		return ends(COUNT_drop_refused, XDP_DROP);
	swap_macs(eth);
	return ends(COUNT_answer, XDP_TX);
}

/* Clears what a request says and neither its answer nor what switches say of it repeats. */
INLINE void make_header(struct work *work, const struct here *here, __u8 op, __u8 flags,
			__u64 version)
{
	work->header.op = op;
	work->header.flags = flags;
	work->header.expiry_ms = 0;
	work->header.node = 0;
	work->header.part = 0;
	work->header.total = 0;
	work->header.epoch = bpf_cpu_to_be64(here->is.number);
	work->header.version = bpf_cpu_to_be64(version);
}

/* What switches say to each other: in the name of this one. */
INLINE void make_peer_header(struct work *work, const struct here *here, __u64 version)
{
	make_header(work, here, OP_PEER_MESSAGE, 0, version);
	work->header.node = bpf_htons(own_slot(here) + 1);
}

INLINE bool read_behind_key(struct xdp_md *ctx, const struct work *work, void *to, __u32 len)
{
	return work->value_len >= len && bpf_xdp_load_bytes(ctx, behind_key(work), to, len) == 0;
}

INLINE bool write_behind_key(struct xdp_md *ctx, const struct work *work, void *from, __u32 len)
{
	return bpf_xdp_store_bytes(ctx, behind_key(work), from, len) == 0;
}

/*
 * Sends the packet on as what `peer` says, with the version's value behind it, `len` bytes of that
 * sum, which is there already; to the member at that place.
 */
OUTLINE int send_peer(struct xdp_md *ctx, struct work *work, const struct here *here,
		      struct peer *peer, __u32 to_place)
{
	if (!work || !here || !peer)
		return XDP_DROP;
	/* Length and sum of the value stand where nothing else does. */
	__u32 len = bpf_ntohl(peer->unused) >> 16, sum = bpf_ntohl(peer->unused) & 0xffff;
	peer->unused = 0;
	sum = fold((__u64)sum_words(peer, sizeof(*peer) / 8) + sum);
	bool from_us = !(peer->flags & REPLY);
	if (!sign_as_system(work) ||
	    !address_to(ctx, work, here, slot_at(here, to_place), from_us) ||
	    !write_behind_key(ctx, work, peer, sizeof(*peer)) ||
	    !finish(ctx, work, sizeof(*peer) + len, sum))
		return ends(COUNT_drop_refused, XDP_DROP);
	return send_off(ctx, work);
}

INLINE __be32 value_of_peer(__u32 len, __u16 sum)
{
	return bpf_htonl(len << 16 | sum);
}

/* Word to the member before this one that nothing after `last` has come. */
INLINE int send_nack(struct xdp_md *ctx, struct work *work, const struct here *here, __u64 last)
{
	struct peer peer = {.kind = NACK};
	if (here->is.place - 1 >= CHAIN_MEMBERS)
		return ends(COUNT_drop_order_stranger, XDP_DROP);
	__u32 payload_len = KV_HEADER_LEN + work->key_len + sizeof(peer);
	if (!make_long(ctx, work, payload_len))
		return ends(COUNT_drop_refused, XDP_DROP);
	make_peer_header(work, here, last);
	count(COUNT_order_nack);
	return send_peer(ctx, work, here, &peer, here->is.place - 1);
}
