// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The least that a program must do, to hold ours against. Each returns a verdict that ours has too.
 */
#include "wire.h"

#define HEADER_AT 42
struct floor_key {
	__be64 request;
	__be64 hash[2];
};
_Static_assert(sizeof(struct floor_key) == 24, "as `request` and `key_hash` stand in the header");

/* Filled by lab/bench, which says how many entries the one has that it asks for. */
#define FLOOR_TABLE(bytes_)                                                                        \
	struct floor_value_##bytes_ {                                                              \
		__u8 bytes[bytes_];                                                                \
	};                                                                                         \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_HASH);                                                   \
		__uint(max_entries, 1);                                                            \
		__type(key, struct floor_key);                                                     \
		__type(value, struct floor_value_##bytes_);                                        \
	} floor_##bytes_ SEC(".maps")

FLOOR_TABLE(128);
FLOOR_TABLE(1024);

/* key: interface index. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
} floor_ports SEC(".maps");

SEC("xdp.frags")
int nothing(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_PASS;
}

/* The headers of a packet that is ours; NULL for any other. */
#define parsed(ctx)                                                                                \
	({                                                                                         \
		struct ethhdr *eth_ = (void *)(long)(ctx)->data;                                   \
		struct iphdr *ip_ = (void *)(eth_ + 1);                                            \
		struct udphdr *udp_ = (void *)(ip_ + 1);                                           \
		struct kv_header *kv_ = (void *)(udp_ + 1);                                        \
		bool ours_ = (void *)(kv_ + 1) <= (void *)(long)(ctx)->data_end &&                 \
			     eth_->h_proto == bpf_htons(ETH_P_IP) && ip_->ihl == 5 &&              \
			     ip_->protocol == IPPROTO_UDP && udp_->dest == bpf_htons(KV_PORT) &&   \
			     kv_->magic_version == KV_MAGIC_VERSION;                               \
		ours_ ? eth_ : NULL;                                                               \
	})

/*
 * Looks the key up and copies its value into the packet, and neither compares the key itself nor
 * makes a reply of the packet.
 */
#define LOOK_UP_AND_COPY(bytes_)                                                                   \
	SEC("xdp.frags")                                                                           \
	int look_up_and_copy_##bytes_(struct xdp_md *ctx)                                          \
	{                                                                                          \
		struct ethhdr *eth = parsed(ctx);                                                  \
		if (!eth)                                                                          \
			return XDP_DROP;                                                           \
		struct kv_header *kv = (void *)eth + HEADER_AT;                                    \
		struct floor_key key;                                                              \
		__builtin_memcpy(&key, &kv->request, sizeof(key));                                 \
		struct floor_value_##bytes_ *value = bpf_map_lookup_elem(&floor_##bytes_, &key);   \
		if (!value)                                                                        \
			return XDP_DROP;                                                           \
		bpf_xdp_store_bytes(ctx, HEADER_AT + KV_HEADER_LEN + 16, value->bytes, bytes_);    \
		return XDP_TX;                                                                     \
	}

LOOK_UP_AND_COPY(128)
LOOK_UP_AND_COPY(1024)

SEC("xdp.frags")
int fib_forward(struct xdp_md *ctx)
{
	struct ethhdr *eth = parsed(ctx);
	if (!eth)
		return XDP_DROP;
	struct iphdr *ip = (void *)(eth + 1);
	struct bpf_fib_lookup fib = {
		.family = 2, /* AF_INET */
		.l4_protocol = IPPROTO_UDP,
		.tos = ip->tos,
		.tot_len = bpf_ntohs(ip->tot_len),
		.ipv4_src = ip->saddr,
		.ipv4_dst = ip->daddr,
		.ifindex = ctx->ingress_ifindex,
	};
	if (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return XDP_DROP;
	__builtin_memcpy(eth->h_dest, fib.dmac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, fib.smac, ETH_ALEN);
	return bpf_redirect_map(&floor_ports, fib.ifindex, 0);
}

/* Sends every UDP packet for our port back as it is. */
SEC("xdp.frags")
int reflect(struct xdp_md *ctx)
{
	struct ethhdr *eth = parsed(ctx);
	if (!eth)
		return XDP_PASS;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	__u8 mac[ETH_ALEN];
	__builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, mac, ETH_ALEN);
	__be32 address = ip->daddr;
	ip->daddr = ip->saddr;
	ip->saddr = address;
	__be16 port = udp->dest;
	udp->dest = udp->source;
	udp->source = port;
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
