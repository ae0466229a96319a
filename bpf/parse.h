/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From the first byte to the key: each step checks its bounds once and moves the cursor on. */
#pragma once

#include "maps.h"

INLINE struct ethhdr *eth_of(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	return (void *)(eth + 1) > (void *)(long)ctx->data_end ? NULL : eth;
}

/* A header at an offset that `work` remembers; NULL where the packet has become too short. */
#define header_at(ctx, offset, type)                                                               \
	({                                                                                         \
		__u32 offset_ = (offset) & 0x7f;                                                   \
		opaque(offset_);                                                                   \
		type *header_ = (void *)(long)(ctx)->data + (offset_ & 0x7f);                      \
		(void *)(header_ + 1) > (void *)(long)(ctx)->data_end ? NULL : header_;            \
	})

struct cursor {
	void *start;
	void *at;
	void *end;
};

INLINE struct cursor cursor_at(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	return (struct cursor){data, data, (void *)(long)ctx->data_end};
}

/* `take` is the header under the cursor, or NULL where the packet ends before it does. */
#define take(cursor, type)                                                                         \
	({                                                                                         \
		type *header_ = (cursor)->at;                                                      \
		if ((void *)(header_ + 1) > (cursor)->end)                                         \
			header_ = NULL;                                                            \
		else                                                                               \
			(cursor)->at = header_ + 1;                                                \
		header_;                                                                           \
	})

struct vlan_tag {
	__be16 control;
	__be16 proto;
};

/* The frame's length in bytes, with what lies in further fragments of a jumbo frame. */
INLINE __u32 frame_len(struct xdp_md *ctx)
{
	return bpf_xdp_get_buff_len(ctx);
}

/*
 * Whether the frame has that many bytes. Those of most are all in one buffer, whose length needs no
 * helper call.
 */
INLINE bool frame_reaches(struct xdp_md *ctx, __u32 len)
{
	return ctx->data_end - ctx->data >= len || frame_len(ctx) >= len;
}

/* Where a datagram's headers begin. Other traffic is not worth a place in `work`. */
struct datagram {
	void *l3;
	struct udphdr *udp;
	bool is_ipv6;
	bool is_vlan;
};

/* The protocol behind Ethernet and at most one VLAN tag; 0 where the packet ends. */
INLINE __be16 parse_ethernet(struct cursor *cursor, struct datagram *datagram)
{
	struct ethhdr *eth = take(cursor, struct ethhdr);
	datagram->is_vlan = false;
	if (!eth)
		return 0;
	/* `h_proto` at once: the struct is packed, and so it would be read byte by byte. */
	__be16 proto = *((__be16 *)(eth + 1) - 1);
	if (!unlikely(proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD)))
		return proto;
	datagram->is_vlan = true;
	struct vlan_tag *vlan = take(cursor, struct vlan_tag);
	return vlan ? vlan->proto : 0;
}

/* Whether UDP follows: whole datagrams only, no options, no extension headers. */
INLINE bool parse_ip(struct cursor *cursor, struct datagram *datagram, __be16 proto)
{
	datagram->l3 = cursor->at;
	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = take(cursor, struct iphdr);
		datagram->is_ipv6 = false;
		return ip && ip->ihl == 5 && ip->protocol == IPPROTO_UDP &&
		       !(ip->frag_off & bpf_htons(0x3fff));
	}
	if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = take(cursor, struct ipv6hdr);
		datagram->is_ipv6 = true;
		return ip && ip->nexthdr == IPPROTO_UDP;
	}
	return false;
}

/* Whether the packet is a datagram from or to our port. */
INLINE bool parse_datagram(struct cursor *cursor, struct datagram *datagram)
{
	__be16 proto = parse_ethernet(cursor, datagram);
	if (!parse_ip(cursor, datagram, proto))
		return false;
	struct udphdr *udp = take(cursor, struct udphdr);
	datagram->udp = udp;
	return udp && (udp->dest == bpf_htons(KV_PORT) || udp->source == bpf_htons(KV_PORT));
}

/* What is wrong with a header of this op, or NOTHING. */
INLINE enum counter flaw_of(const struct kv_header *kv, const struct work *work, __u8 op)
{
	__u32 key_len = kv->key_len, value_len = bpf_ntohs(kv->value_len);
	if (unlikely(!op_is_known(op)))
		return COUNT_drop_unknown_op;
	if (unlikely(kv->flags >> 4 > STATUS_MAX))
		return COUNT_drop_unknown_status;
	if (unlikely(key_len > KV_MAX_KEY || (key_len > 0) != op_has_key(op)))
		return COUNT_drop_bad_key_length;
	if (unlikely(value_len && !op_may_have_value(op)))
		return COUNT_drop_bad_value_length;
	if (unlikely(kv->part || kv->total) &&
	    bpf_ntohs(kv->part) * KV_PART + value_len > bpf_ntohl(kv->total))
		return COUNT_drop_bad_part;
	if (unlikely(KV_HEADER_LEN + key_len + value_len > work->payload_len))
		return COUNT_drop_truncated;
	return NOTHING;
}

/* Reads and checks our header. A packet that has our magic must be right in everything else. */
INLINE int parse_kv(struct cursor *cursor, struct work *work)
{
	__u8 *magic = cursor->at;
	if (unlikely((void *)(magic + 1) > cursor->end || work->payload_len == 0 ||
		     *magic >> 4 != KV_MAGIC_VERSION >> 4))
		return ends(COUNT_pass_other_magic, XDP_PASS);
	if (unlikely(*magic != KV_MAGIC_VERSION))
		return ends(COUNT_drop_bad_version, XDP_DROP);
	work->kv = cursor->at - cursor->start;
	struct kv_header *kv = take(cursor, struct kv_header);
	if (unlikely(!kv || work->payload_len < KV_HEADER_LEN))
		return ends(COUNT_drop_short_header, XDP_DROP);
	work->header = *kv;
	work->op = kv->op;
	work->key_len = kv->key_len;
	work->value_len = bpf_ntohs(kv->value_len);
	/*
	 * Twice, once for reads alone: of what depends on the op the compiler leaves them nothing.
	 */
	enum counter flaw = kv->op == OP_READ_REQUEST ? flaw_of(kv, work, OP_READ_REQUEST)
						      : flaw_of(kv, work, kv->op);
	return unlikely(flaw != NOTHING) ? ends(flaw, XDP_DROP) : CONTINUE;
}

struct short_key {
	__u64 word[2];
};

/*
 * Copies the key out, padded with zeros to whole words, so that it is compared and hashed by words.
 */
INLINE int load_key(struct xdp_md *ctx, struct work *work, struct cursor *cursor)
{
	__u32 len = work->key_len;
	struct short_key *in_packet = take(cursor, struct short_key);
	if (!unlikely(!in_packet || len > sizeof(*in_packet))) {
		/* Without the helper, which costs as much as all of the parsing. */
		*(struct short_key *)work->key = *in_packet;
	} else if (len) {
		len = ((len - 1) & 0xff) + 1; /* 1..256, as the verifier sees it */
		if (unlikely(bpf_xdp_load_bytes(ctx, work->kv + KV_HEADER_LEN, work->key, len) < 0))
			return ends(COUNT_drop_truncated, XDP_DROP);
	}
	/*
	 * What follows the key in the packet goes: at most two words, one of which the tag
	 * takes too.
	 */
	*(__u64 *)(work->key + len) = 0;
	*(__u64 *)(work->key + len + 8) = 0;
	return CONTINUE;
}

/*
 * As far as the port. CONTINUE: the cursor is behind it, and `*work` is this CPU's. Otherwise the
 * verdict: other traffic passes to the kernel as it came.
 */
INLINE int parse_headers(struct cursor *cursor, struct work **of)
{
	struct datagram datagram;
	if (!parse_datagram(cursor, &datagram))
		return ends(COUNT_pass_not_ours, XDP_PASS);
	struct work *work = get_work();
	if (unlikely(!work))
		return XDP_PASS;
	*of = work;
	work->l3 = datagram.l3 - cursor->start;
	work->l4 = (void *)datagram.udp - cursor->start;
	work->is_ipv6 = datagram.is_ipv6;
	work->is_vlan = datagram.is_vlan;
	__u16 udp_len = bpf_ntohs(datagram.udp->len);
	work->payload_len = udp_len < sizeof(struct udphdr) ? 0 : udp_len - sizeof(struct udphdr);
	return CONTINUE;
}

/*
 * From the port to the key. CONTINUE: the packet is ours and `work` describes it. Otherwise the
 * verdict: what is malformed ends here.
 */
INLINE int parse_message(struct xdp_md *ctx, struct cursor *cursor, struct work *work)
{
	int verdict = parse_kv(cursor, work);
	if (unlikely(verdict != CONTINUE))
		return verdict;
	if (unlikely(!frame_reaches(ctx, work->kv + work->payload_len)))
		return ends(COUNT_drop_truncated, XDP_DROP);
	return load_key(ctx, work, cursor);
}

/* The whole way. */
INLINE int parse(struct xdp_md *ctx, struct work **of)
{
	struct cursor cursor = cursor_at(ctx);
	int verdict = parse_headers(&cursor, of);
	return verdict == CONTINUE ? parse_message(ctx, &cursor, *of) : verdict;
}
