/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The switch that a key is lent to: it answers reads, and writes once another switch keeps them. In
 * doubt a write goes on as it came: it is then as if it had not passed here, and the store calls
 * the key back.
 */
#pragma once

#include "table.h"

/* The keeper has not answered for so long: it is the store's affair. */
#define UNANSWERED_NS (50 * NS_PER_MS)
/* Writes of one loan: so many versions the store left to it. */
#define KEPT_NUMBERS (1 << 20)

/* Rule 6 for what was lent. */
INLINE bool lent_is_usable(const struct work *work, const struct lent *lent)
{
	__u32 slot = lent->record->lease;
	const struct lease *lease = bpf_map_lookup_elem(&leases, &slot);
	return lease && lease_holds(lease, work->now_ns) && lent->epoch > READ_ONCE(lease->floor);
}

/* States in which an owner answers. */
INLINE __u32 while_answered(void)
{
	return MUTANT(lent_serves_sealed) ? WHILE_ACTIVE | WHILE_SEALED : WHILE_ACTIVE;
}

/* The packet's key is lent to this switch, and may be answered here. */
INLINE bool find_owned(const struct work *work, struct lent *lent)
{
	return find_kept(work, while_answered(), 0, 0, lent) && lent->record->is_owner &&
	       lent_is_usable(work, lent);
}

INLINE int pass_lent(struct xdp_md *ctx, struct work *work, const struct config *config)
{
	count(COUNT_lent_pass);
	disown(ctx, work, config);
	return forward(ctx, work);
}

INLINE int lent_read(struct xdp_md *ctx, struct work *work, const struct config *config,
		     const struct lent *lent)
{
	struct kept_value value = {};
	switch (load_kept(ctx, work, loan_of(lent), while_answered(), &value)) {
	case KEPT_LOADED:
		make_answer(work, config, value.len, value.version, 0);
		count(COUNT_lent_read);
		return answer_read(ctx, work, KV_HEADER_LEN + work->key_len + value.len, value.sum);
	case KEPT_NO_ROOM:
		make_answer(work, config, 0, 0, 0);
		work->header.flags |= STATUS_NEED_PADDING;
		work->header.total = bpf_htonl(value.len);
		count(COUNT_lent_padding);
		return answer_read(ctx, work, KV_HEADER_LEN + work->key_len, 0);
	default: /* the client asks again */
		return ends(COUNT_drop_lent_busy, XDP_DROP);
	}
}

/*
 * A write that names another life than the loan's is not done. How old the loan is decides what its
 * client may do.
 */
INLINE int other_life(struct xdp_md *ctx, struct work *work, const struct config *config,
		      const struct lent *lent)
{
	__u64 since_ns = lent->record->since_ns, now_ns = fine_clock_ns();
	__u64 age_ms = now_ns > since_ns ? (now_ns - since_ns) / NS_PER_MS : 0;
	work->header.op = OP_WRITE_REPLY;
	work->header.flags = FLAG_CACHED | STATUS_OTHER_LIFE;
	work->header.life = bpf_htons(lent->record->life);
	work->header.expiry_ms = bpf_htonl(age_ms < ~0U ? age_ms : ~0U);
	work->header.version = 0;
	work->header.epoch = bpf_cpu_to_be64(epoch_pair(config->switch_id, 0));
	if (has_secret(work))
		hash_shared(work);
	count(COUNT_lent_other_life);
	return send_back_bare(ctx, work);
}

/* Whether the packet is signed with the secret that its tenant has beside its own. */
INLINE bool is_also(const struct work *work, const struct tenant *tenant)
{
	return work->secret[0] != tenant->secret[0] || work->secret[1] != tenant->secret[1];
}

/* Without a checksum a store takes it as well; from here on it has one. */
INLINE bool came_whole(struct xdp_md *ctx, struct work *work, __u32 *sum)
{
	struct udphdr *udp = header_at(ctx, work->l4, struct udphdr);
	if (udp && !udp->check && !work->is_ipv6)
		return is_exact(ctx, work, sum);
	return is_whole(ctx, work, sum);
}

/* Writes `work->header`, signed, and a whole checksum; lengths stay as they are. */
INLINE bool write_whole(struct xdp_md *ctx, struct work *work, __u32 value_sum)
{
	struct udphdr *udp = header_at(ctx, work->l4, struct udphdr);
	struct kv_header *kv = header_at(ctx, work->kv, struct kv_header);
	if (!udp || !kv)
		return false;
	sign(work);
	*kv = work->header;
	return write_checksum(ctx, work, udp, value_sum);
}

/* A write becomes what the keeper is asked, on its way to the store. */
INLINE int ask_to_keep(struct xdp_md *ctx, struct work *work, const struct config *config,
		       const struct lent *lent, __u64 number, bool also, __u32 sum)
{
	__u32 id = TENANT_SYSTEM;
	const struct kept *record = lent->record;
	const struct tenant *system = bpf_map_lookup_elem(&tenants, &id);
	if (!system)
		return pass_lent(ctx, work, config);
	__u64 secret[2] = {system->secret[0], system->secret[1]};
	__u16 node = record->node;
	__u64 base = record->base;
	barrier();
	if (READ_ONCE(record->epoch) != lent->epoch)
		return pass_lent(ctx, work, config);
	work->header.op = OP_KEEP_REQUEST;
	work->header.life = bpf_htons(record->life);
	work->header.flags = also ? FLAG_ALL : 0;
	work->header.expiry_ms = bpf_htonl(number);
	work->header.node = bpf_htons(node);
	work->header.part = 0;
	work->header.total = 0;
	work->header.epoch = bpf_cpu_to_be64(epoch_pair(config->switch_id, lent->epoch));
	work->header.version = bpf_cpu_to_be64(base + number);
	sign_with(work, secret);
	if (!write_whole(ctx, work, sum))
		return ends(COUNT_drop_lent_busy, XDP_DROP);
	count(COUNT_lent_write);
	return forward(ctx, work);
}

/* Whether the keeper answers as far as anybody knows; from now on it is asked. */
INLINE bool keeper_answers(const struct work *work, struct kept *record)
{
	__u64 since_ns = READ_ONCE(record->unanswered_ns);
	if (since_ns)
		return work->now_ns <= since_ns + UNANSWERED_NS;
	compare_and_swap(&record->unanswered_ns, 0, work->now_ns);
	return true;
}

/*
 * Whole, unconditional, without time to live. A write without a life gave up what keeps it from
 * being done twice.
 */
INLINE bool may_be_kept(const struct work *work)
{
	return !(work->header.flags & (FLAG_COMPARE | FLAG_ALL)) && !work->header.expiry_ms &&
	       !is_part(&work->header) && work->header.life && has_secret(work);
}

enum kept_install {
	INSTALLED,
	NOT_INSTALLED_BUSY,
	NOT_INSTALLED_OVER,
};

/* The packet's value becomes the one that reads see, unless there is a newer one. */
OUTLINE int install_kept(struct xdp_md *ctx, struct work *work, struct lent *lent, __u32 sum)
{
	if (!work || !lent)
		return NOT_INSTALLED_OVER;
	struct kept *record = lent->record;
	if (!lock_kept(lent, WHILE_ACTIVE))
		return is_still_active(lent) ? NOT_INSTALLED_BUSY : NOT_INSTALLED_OVER;
	bool done = true;
	if (bpf_be64_to_cpu(work->header.version) > record->version &&
	    !MUTANT(lent_installs_nothing))
		done = store_kept(ctx, work, record, sum);
	record->seen_ns = work->now_ns;
	unlock_seq(&record->seq);
	return done ? INSTALLED : NOT_INSTALLED_BUSY;
}

/* The packet, which goes on where it goes, ends behind its key. */
INLINE int send_on_bare(struct xdp_md *ctx, struct work *work)
{
	work->header.value_len = 0;
	if (!rewrite_packet(ctx, work, KV_HEADER_LEN + work->key_len, 0, ONWARDS))
		return XDP_DROP;
	return forward(ctx, work);
}

/* The header of a write's answer. */
INLINE void make_write_answer(struct work *work, const struct config *config, __u64 version)
{
	work->header.op = OP_WRITE_REPLY;
	work->header.flags = FLAG_CACHED;
	work->header.expiry_ms = 0;
	work->header.node = 0;
	work->header.epoch = bpf_cpu_to_be64(epoch_pair(config->switch_id, 0));
	work->header.version = bpf_cpu_to_be64(version);
}

/* As a switch that does not wait for the keeper; for tests. */
INLINE int answer_early(struct xdp_md *ctx, struct work *work, const struct config *config,
			struct lent *lent, __u64 number, __u32 sum)
{
	__u64 version = lent->record->base + number;
	work->header.version = bpf_cpu_to_be64(version);
	install_kept(ctx, work, lent, sum);
	make_write_answer(work, config, version);
	count(COUNT_lent_write);
	return send_back_bare(ctx, work);
}

INLINE int lent_write(struct xdp_md *ctx, struct work *work, const struct config *config,
		      const struct tenant *tenant, struct lent *lent)
{
	__u32 sum = 0;
	struct kept *record = lent->record;
	if (!may_be_kept(work) || !came_whole(ctx, work, &sum))
		return pass_lent(ctx, work, config);
	if (work->header.life != bpf_htons(record->life) && !MUTANT(lent_ignores_lives))
		return other_life(ctx, work, config, lent);
	if (!keeper_answers(work, record))
		return pass_lent(ctx, work, config);
	__u64 number = fetch_add(&record->number, 1) + 1;
	if (number >= KEPT_NUMBERS)
		return pass_lent(ctx, work, config);
	if (MUTANT(lent_answers_early))
		return answer_early(ctx, work, config, lent, number, sum);
	return ask_to_keep(ctx, work, config, lent, number, is_also(work, tenant), sum);
}

/* The secret that the write of this answer was signed with. False: its tenant is gone. */
INLINE bool take_secret(const struct work *work, __u64 secret[2])
{
	__u32 id = bpf_ntohl(work->header.tenant);
	const struct tenant *tenant = bpf_map_lookup_elem(&tenants, &id);
	if (!tenant)
		return false;
	bool also = work->header.flags & FLAG_ALL;
	secret[0] = also ? tenant->also_secret[0] : tenant->secret[0];
	secret[1] = also ? tenant->also_secret[1] : tenant->secret[1];
	barrier();
	return READ_ONCE(tenant->id) == id && (secret[0] | secret[1]);
}

/*
 * The keeper has the write, and whatever was kept before: this becomes what reads see, and then the
 * client's answer.
 */
INLINE int kept_reply(struct xdp_md *ctx, struct work *work, const struct config *config)
{
	struct lent lent = {};
	__u32 sum = 0;
	__u64 secret[2];
	if (!find_kept(work, WHILE_ACTIVE, bpf_ntohs(work->header.life), epoch_in(work), &lent) ||
	    !lent.record->is_owner || !take_secret(work, secret))
		return ends(COUNT_drop_lent_over, XDP_DROP);
	if (!is_whole(ctx, work, &sum))
		return ends(COUNT_drop_spoiled, XDP_DROP);
	switch (install_kept(ctx, work, &lent, sum)) {
	case INSTALLED:
		break;
	case NOT_INSTALLED_BUSY:
		return ends(COUNT_drop_lent_busy, XDP_DROP);
	default:
		return ends(COUNT_drop_lent_over, XDP_DROP);
	}
	WRITE_ONCE(lent.record->unanswered_ns, 0);
	make_write_answer(work, config, lent.record->base + bpf_ntohl(work->header.expiry_ms));
	sign_with(work, secret);
	count(COUNT_lent_answer);
	return send_on_bare(ctx, work);
}
