// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * A discipline for tests, which uses whatever bpf/discipline.h offers and is good for nothing. What
 * a packet is to show, its op and its key's first letter say.
 */
#include "discipline.h"
#include "tally.h"

#define STEP_ROUND RECIRCULATED_STEP
#define STEP_COUNTER 2
#define STEP_NOWHERE 7
/* Parameter words: rounds that a packet may go, and the group that it is copied to. */
#define ROUNDS 0
#define GROUP 1
/* What comes in from outside is counted here. */
#define TALLY 5

/* Notes that packets leave, by tenant and first letter of the key. */
struct note_key {
	__u32 tenant;
	__u32 letter;
};
struct note {
	__u64 packets;
	__u32 parameter[PARAMETERS];
	__u32 round;
	__u32 base;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16); /* set when loading */
	__type(key, struct note_key);
	__type(value, struct note);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} trial_notes SEC(".maps");

/* Where a copy that leaves by a port goes: addresses of its host. */
struct host {
	__u8 mac[ETH_ALEN];
	__u8 unused[2];
	__be32 address;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, struct port_name);
	__type(value, struct host);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} trial_hosts SEC(".maps");

GROUPS(trial_groups, 4);
RECIRCULATES;

/* A record: both halves are always the same. */
struct pair {
	__u64 half[2];
};

const volatile __u32 trial_letter = 'n';

/* Counts the packet in the row of its letter, if the agent made one. */
INLINE void take_note(const struct work *work)
{
	struct note_key key = {bpf_ntohl(work->header.tenant), work->key[0]};
	struct note *note = bpf_map_lookup_elem(&trial_notes, &key);
	if (!note)
		return;
	fetch_add(&note->packets, 1);
	note->parameter[0] = work->parameter[0];
	note->parameter[1] = work->parameter[1];
	note->round = work->round;
	note->base = work->base;
}

/* What a discipline of copies does. Nothing is reported. */
INLINE int as_copies(struct xdp_md *ctx, struct work *work, struct config *config)
{
	struct found found = {};
	__u64 word = 0;
	if (work->op != OP_READ_REQUEST)
		return other_than_read(ctx, work, config);
	int verdict = find_answer(ctx, work, config, NEVER - 1, &found, &word);
	if (verdict != CONTINUE)
		return verdict;
	return answer_from_cells(ctx, work, config, &found, word);
}

STEP int trial_first(struct xdp_md *ctx)
{
	struct work *work = get_work();
	struct config *config = get_config();
	if (!work || !config)
		return XDP_PASS;
	take_note(work);
	tally(work, TALLY);
	switch (work->key[0]) {
	case 'c':
		return next_step(ctx, work, STEP_COUNTER);
	case 'm':
		return next_step(ctx, work, STEP_NOWHERE);
	case 'r':
		return recirculate(ctx, work, work->parameter[ROUNDS]);
	case 'h':
		return as_copies(ctx, work, config);
	case 'f':
		return fan_out(ctx, work, &trial_groups, work->parameter[GROUP]);
	}
	if (work->key[0] == trial_letter)
		return ends(COUNT_consume, XDP_DROP);
	return forward(ctx, work);
}

/* What was sent round goes round until it may no more. */
STEP int trial_round(struct xdp_md *ctx)
{
	struct work *work = get_work();
	if (!work)
		return XDP_PASS;
	take_note(work);
	/* The value says after how many rounds it leaves. */
	__u8 leaves = 0;
	if (work->value_len)
		bpf_xdp_load_bytes(ctx, work->kv + KV_HEADER_LEN + work->key_len, &leaves, 1);
	if (leaves && work->round >= leaves)
		return forward(ctx, work);
	return recirculate(ctx, work, work->parameter[ROUNDS]);
}

/* Adds one to both halves of the record and answers with it; reads of it change nothing. */
STEP int trial_counter(struct xdp_md *ctx)
{
	struct work *work = get_work();
	struct found found;
	struct pair pair;
	if (!work)
		return XDP_PASS;
	if (!find_given(work, &found))
		return ends(COUNT_drop_refused, XDP_DROP);
	if (work->op == OP_WRITE_REQUEST) {
		struct pair *record = (void *)record_of(&found, work);
		if (!lock_item(found.item))
			return ends(COUNT_drop_refused, XDP_DROP);
		record->half[0] += 1;
		record->half[1] += 1;
		unlock_item(found.item);
		work->header.op = OP_WRITE_REPLY;
		count(COUNT_answer);
		return send_back_bare(ctx, work);
	}
	if (!read_record(&found, work, &pair, sizeof(pair)) ||
	    !make_room(ctx, work, KV_HEADER_LEN + work->key_len + sizeof(pair)))
		return ends(COUNT_drop_refused, XDP_DROP);
	if (bpf_xdp_store_bytes(ctx, work->kv + KV_HEADER_LEN + work->key_len, &pair,
				sizeof(pair)) < 0)
		return ends(COUNT_drop_refused, XDP_DROP);
	work->header.op = OP_READ_REPLY;
	work->header.value_len = bpf_htons(sizeof(pair));
	count(COUNT_answer);
	return send_back(ctx, work, KV_HEADER_LEN + work->key_len + sizeof(pair),
			 sum_of((const __u8 *)&pair, sizeof(pair)));
}

/*
 * Gives each copy the addresses of the host behind its port, where there is one; IPv4 without a UDP
 * checksum only.
 */
EGRESS int trial_egress(struct xdp_md *ctx)
{
	const struct port_name *name = port_name(ctx->egress_ifindex);
	struct host *host = name ? bpf_map_lookup_elem(&trial_hosts, name) : NULL;
	struct ethhdr *eth = eth_of(ctx);
	struct iphdr *ip = header_at(ctx, sizeof(*eth), struct iphdr);
	if (!host)
		return XDP_PASS;
	if (!eth || !ip)
		return XDP_DROP;
	__builtin_memcpy(eth->h_dest, host->mac, ETH_ALEN);
	ip->daddr = host->address;
	ipv4_checksum(ip);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
