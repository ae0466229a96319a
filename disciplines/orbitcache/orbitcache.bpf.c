// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * OrbitCache: values of cached items go round as packets, reads wait for theirs, and each packet
 * that comes round answers one of those that wait, by a clone. An item's cells hold its value as
 * elsewhere (coherence.h): from there a packet is made when somebody asks, and there the value
 * stays when nobody does.
 */
#include "counters.h"
#include "mutants.h"

#include "orbits.h"

/* Parameter words. The reads per window from which a key is reported. */
#define HOT_THRESHOLD 0
/*
 * Tallies. Reads of items that may be answered here, and those of them that found no place to wait.
 */
#define TALLY_READS 0
#define TALLY_OVERFLOWS 1

RECIRCULATES;

#include "parts.h"
#include "tally.h"

/* What becomes of a read whose value may be answered here. */
enum fate {
	READ_OVERFLOWS,
	READ_WAITS,
	READ_WAKES,
	READ_SPOILED,
	READ_ALONE, /* nothing goes round by the port that it came by */
};

/*
 * Takes the orbit for packets made under `word`. Those who wait for the same item go on waiting.
 * The caller has locked it.
 */
INLINE void take_orbit(struct orbit *orbit, __u64 item, __u64 shape, __u64 word, __u64 fine_ns)
{
	if ((orbit->generation & 1) && fine_ns >= orbit->seen_ns + STALE_NS) {
		orbit->lost++;
		count(COUNT_round_lost);
	}
	if (orbit->item != item || orbit->shape != shape) {
		count_by(COUNT_wait_gone, orbit->waiting);
		orbit->first = orbit->waiting = orbit->lost = 0;
		orbit->item = item;
		orbit->shape = shape;
	}
	orbit->word = word;
	orbit->seen_ns = orbit->busy_ns = fine_ns;
	WRITE_ONCE(orbit->generation, (orbit->generation + 1) | 1);
}

/*
 * What becomes of a read; or of a value that is to go round, which does not wait. READ_WAKES: no
 * other does, and the orbit was taken.
 */
INLINE enum fate enter(struct xdp_md *ctx, struct work *work, const struct found *found, __u64 word,
		       __u32 *place, __u32 *generation)
{
	__u64 item = item_of(work);
	__u64 shape = shape_of(work, found);
	*place = find_place(item, shape, work->now_ns);
	bool takes_others = *place == ORBITS;
	if (takes_others)
		*place = place_of_others(work, item, shape);
	struct orbit *orbit = orbit_at(*place);
	enum fate fate = READ_OVERFLOWS;
	if (work->op == OP_READ_REQUEST &&
	    !find_pair(ctx->ingress_ifindex, round_for_copies(*place)))
		return READ_ALONE;
	/* Its answer is made of another packet, and nobody would see what flipped in this one. */
	if (work->op == OP_READ_REQUEST && is_spoiled(ctx, work))
		return READ_SPOILED;
	if (!orbit || !lock_orbit(orbit))
		return fate;
	bool goes = goes_round(orbit, work->now_ns);
	bool ours = orbit->item == item && orbit->shape == shape;
	if (goes && ours && orbit->word == word) {
		if (work->op == OP_READ_REQUEST && join(ctx, work, orbit))
			fate = READ_WAITS;
	} else if (ours && !goes && is_hopeless(orbit, work->now_ns)) {
		fate = READ_ALONE;
	} else if (ours || !goes || (takes_others && !orbit->waiting)) {
		fate = READ_WAKES;
		take_orbit(orbit, item, shape, word, fine_clock_ns());
		*generation = orbit->generation;
	}
	unlock_orbit(orbit);
	return fate;
}

/*
 * Packets of this generation, of which none came round yet, are made of this one, and have this
 * sum. False: it is another's by now.
 */
INLINE bool set_sum(const struct work *work, struct orbit *orbit, __u32 generation, __u16 sum)
{
	if (!lock_orbit(orbit))
		return false;
	bool ours = orbit->generation == generation;
	if (ours) {
		orbit->sum = sum;
		orbit->unfinished = work->flags & WORK_UNFINISHED;
	}
	unlock_orbit(orbit);
	return ours;
}

/* No packet of this generation goes round any more. False: it was another's already. */
OUTLINE int lay_down(struct orbit *orbit, __u32 generation)
{
	if (!orbit)
		return false;
	return compare_and_swap(&orbit->generation, generation, generation + 1) == generation;
}

/* Whether somebody waits, in an orbit of this packet's shape, for the item. */
INLINE bool is_waited_for(const struct work *work, const struct found *found, __u32 *place)
{
	__u64 item = item_of(work);
	__u64 shape = shape_of(work, found);
	*place = find_place(item, shape, work->now_ns);
	const struct orbit *orbit = orbit_at(*place);
	return orbit && orbit->item == item && orbit->shape == shape && READ_ONCE(orbit->waiting);
}

/* The read becomes its answer, and goes round as the value's packet beside. */
INLINE int wake(struct xdp_md *ctx, struct work *work, const struct config *config,
		const struct found *found, __u64 word, __u32 place, __u32 generation)
{
	__u32 payload_len = 0, value_sum = 0;
	int verdict = load_answer(ctx, work, config, found, word, &payload_len, &value_sum);
	struct orbit *orbit = orbit_at(place);
	if (verdict == CONTINUE && orbit) {
		const void *pair = find_pair(ctx->ingress_ifindex, round_for_copies(place));
		if (!set_sum(work, orbit, generation, value_sum))
			pair = NULL;
		if (pair)
			work->header.epoch = name_packet(config, place, generation);
		verdict = answer_read(ctx, work, payload_len, value_sum);
		if (verdict == XDP_TX && pair)
			return ends(COUNT_wake, clone_to(pair));
		count(verdict == XDP_TX ? COUNT_hit : COUNT_drop_refused);
	}
	lay_down(orbit, generation);
	return verdict;
}

/* Found no place to wait. */
INLINE int overflow(struct xdp_md *ctx, struct work *work)
{
	tally(work, TALLY_OVERFLOWS);
	count(COUNT_wait_full);
	return forward(ctx, work);
}

/*
 * A part that is not kept is asked of the store, under the epoch that the others have. A version
 * that is not the item's is the store's affair.
 */
INLINE int read_part(struct xdp_md *ctx, struct work *work, struct config *config,
		     const struct found *found, __u64 word)
{
	if (work->header.version &&
	    bpf_be64_to_cpu(work->header.version) != READ_ONCE(found->item->version))
		return pass_part(ctx, work, config);
	struct part *kept = find_part(work, found, word, part_in(work));
	if (kept)
		return answer_part(ctx, work, config, found, kept, word);
	count(COUNT_read_part);
	if (!work->header.epoch || names_this_switch(work, config))
		stamp(ctx, work, config, epoch_of(word), FLAG_GRANT);
	return forward(ctx, work);
}

INLINE int read_request(struct xdp_md *ctx, struct work *work, struct config *config)
{
	struct found found = {};
	__u64 word = 0;
	__u32 place = ORBITS, generation = 0;
	int verdict = find_answer(ctx, work, config, work->parameter[HOT_THRESHOLD], &found, &word);
	if (verdict != CONTINUE)
		return verdict;
	tally(work, TALLY_READS);
	if (READ_ONCE(found.item->value_len) == VALUE_IN_PARTS)
		return read_part(ctx, work, config, &found, word);
	if (is_part(&work->header))
		return pass_part(ctx, work, config);
	__u32 need = KV_HEADER_LEN + work->key_len + READ_ONCE(found.item->value_len);
	if (need > room_of(work)) {
		count(COUNT_bypass_no_room);
		return forward(ctx, work);
	}
	switch (enter(ctx, work, &found, word, &place, &generation)) {
	case READ_WAITS:
		return ends(COUNT_wait, XDP_DROP);
	case READ_SPOILED:
		return ends(COUNT_drop_spoiled, XDP_DROP);
	case READ_WAKES:
		return wake(ctx, work, config, &found, word, place, generation);
	case READ_ALONE:
		return answer_from_cells(ctx, work, config, &found, word);
	default:
		return overflow(ctx, work);
	}
}

/* A part is kept on its way to the client. */
INLINE int granted_part(struct xdp_md *ctx, struct work *work)
{
	__u32 sum = 0;
	enum counter what = install_part(ctx, work, &sum);
	count(what);
	if (what == COUNT_grant_installed)
		keep_part(ctx, work, epoch_in(work) << 1 | 1, sum);
	return work->op == OP_FETCH_REPLY ? ends(COUNT_fetch_reply, XDP_DROP) : forward(ctx, work);
}

/*
 * Those who wait for what was granted have it from the reply itself, which goes on to its client,
 * and round.
 */
INLINE int granted(struct xdp_md *ctx, struct work *work, struct config *config)
{
	struct found found = {};
	__u32 place = ORBITS;
	enum counter what = install(ctx, work, config);
	count(what);
	bool wakes = what == COUNT_grant_installed && find(work, &found) &&
		     is_waited_for(work, &found, &place);
	if (work->op == OP_FETCH_REPLY) {
		if (!wakes)
			return ends(COUNT_fetch_reply, XDP_DROP);
		count(COUNT_wake_grant);
		return recirculate_by(ctx, work, round_for_copies(place), LOOK_EVERY);
	}
	int verdict = forward(ctx, work);
	if (!wakes || verdict != XDP_REDIRECT)
		return verdict;
	const void *pair = find_pair(work->out, round_for_copies(place));
	return pair ? ends(COUNT_wake_grant, clone_to(pair)) : verdict;
}

STEP int orbitcache(struct xdp_md *ctx)
{
	struct work *work = get_work();
	struct config *config = get_config();
	if (!work || !config)
		return XDP_PASS;
	if (work->op == OP_READ_REQUEST)
		return read_request(ctx, work, config);
	if (op_carries_grant(work->op) && is_grant(work, config))
		return is_part(&work->header) ? granted_part(ctx, work)
					      : granted(ctx, work, config);
	return other_than_read(ctx, work, config);
}

/* Another round. */
INLINE int go_on(struct xdp_md *ctx, struct work *work, __u32 place)
{
	work->round &= LOOK_EVERY - 1;
	return recirculate_by(ctx, work, round_for_copies(place), LOOK_EVERY);
}

/* This packet ends, and with it what goes round. */
INLINE int end_round(struct orbit *orbit, __u32 generation, enum counter why)
{
	lay_down(orbit, generation);
	return ends(why, XDP_DROP);
}

/* Nobody waits, and nobody did for as long as the tenant has set. */
INLINE bool park(const struct work *work, struct orbit *orbit, __u32 generation, __u64 fine_ns)
{
	__u32 park_us = work->parameter[ORBIT] & PARK_MASK ?: PARK_US;
	bool parked = false;
	if (park_us == PARK_MASK || fine_ns < orbit->busy_ns + park_us * 1000ULL ||
	    !lock_orbit(orbit))
		return false;
	if (!orbit->waiting && orbit->generation == generation) {
		WRITE_ONCE(orbit->generation, generation + 1);
		parked = true;
	}
	unlock_orbit(orbit);
	return parked;
}

/* Takes the next one that waits and may still be answered so. False: there is none. */
INLINE bool next_waiting(const struct work *work, struct orbit *orbit, __u32 generation,
			 __u64 fine_ns, __u32 payload_len, struct waiting *one)
{
	bool taken = false;
	if (!lock_orbit(orbit))
		return false;
	for (int i = 0; i < QUEUE && !taken; i++) {
		__u32 waiting = orbit->waiting;
		if (!waiting || (orbit->generation != generation && !MUTANT(round_any_generation)))
			break;
		const struct waiting *next = &orbit->queue[orbit->first & (QUEUE - 1)];
		orbit->first = (orbit->first + 1) & (QUEUE - 1);
		orbit->waiting = waiting - 1;
		if (work->now_ns > next->since_ns + LATE_NS) {
			count(COUNT_wait_late);
		} else if (next->room < payload_len) {
			count(COUNT_wait_no_room);
		} else {
			*one = *next;
			taken = true;
		}
	}
	if (taken)
		orbit->busy_ns = fine_ns;
	unlock_orbit(orbit);
	return taken;
}

/*
 * Makes the packet the read that waited, but for the value behind its key: `send_back` makes it
 * the answer.
 */
INLINE bool stand_in(struct xdp_md *ctx, struct work *work, const struct waiting *one)
{
	struct ethhdr *eth = eth_of(ctx);
	struct udphdr *udp = header_at(ctx, work->l4, struct udphdr);
	if (!eth || !udp || !write_addresses(ctx, work, one))
		return false;
	__builtin_memcpy(eth->h_source, one->from_mac, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, one->to_mac, ETH_ALEN);
	udp->source = one->from_port;
	udp->dest = one->to_port;
	if (work->is_vlan) {
		struct vlan_tag *vlan = header_at(ctx, sizeof(*eth), struct vlan_tag);
		if (!vlan)
			return false;
		vlan->control = one->vlan;
		eth->h_proto = one->tag;
	}
	work->header.client = one->client;
	work->header.request = one->request;
	work->header.key_hash[0] = one->key_hash[0];
	work->header.key_hash[1] = one->key_hash[1];
	work->header.life = one->life;
	work->header.node = one->node;
	work->secret[0] = one->secret[0];
	work->secret[1] = one->secret[1];
	if (has_secret(work))
		hash_shared(work);
	return true;
}

/*
 * A value came round. Nothing is known of it but that this switch sent it: whoever waits is
 * answered only if the item still is what the packet was made of, valid, and under its store's
 * lease. Reads are linearized here.
 */
INLINE int came_round(struct xdp_md *ctx, struct work *work, const struct config *config)
{
	__u64 name = epoch_in(work);
	__u32 place = name >> 32, generation = (__u32)name;
	struct orbit *orbit = orbit_at(place);
	struct found found = {};
	if (!orbit || work->op != OP_READ_REPLY || !names_this_switch(work, config) ||
	    (READ_ONCE(orbit->generation) != generation && !MUTANT(round_any_generation)))
		return ends(COUNT_round_stale, XDP_DROP);
	if (!READ_ONCE(orbit->waiting) && (work->round & (LOOK_EVERY - 1)))
		return go_on(ctx, work, place);
	if (!find(work, &found))
		return end_round(orbit, generation, COUNT_round_gone);
	const struct item *item = found.item;
	__u64 word = orbit->word;
	enum counter why = objection(work, item, lease_of(item), word);
	__u64 version = item->version;
	__u64 expiry_ns = item->flags & ITEM_EXPIRES ? item->expiry_ns : 0;
	__u32 value_sum = orbit->sum;
	barrier();
	if (READ_ONCE(item->word) != word && !MUTANT(round_any_word))
		return end_round(orbit, generation, COUNT_round_stale);
	if (why != NOTHING)
		return end_round(orbit, generation, COUNT_round_lapsed);
	__u64 fine_ns = fine_clock_ns();
	WRITE_ONCE(orbit->seen_ns, fine_ns);
	WRITE_ONCE(orbit->lost, 0);
	struct waiting *one = (struct waiting *)work->scratch;
	__u32 payload_len = KV_HEADER_LEN + work->key_len + work->value_len;
	if (!next_waiting(work, orbit, generation, fine_ns, payload_len, one)) {
		if (park(work, orbit, generation, fine_ns))
			return ends(COUNT_round_parked, XDP_DROP);
		return go_on(ctx, work, place);
	}
	const void *pair = find_pair(one->port, round_for_copies(place));
	if (!pair) {
		count(COUNT_wait_gone);
		return go_on(ctx, work, place);
	}
	make_answer(work, config, work->value_len, version, expiry_ns);
	work->header.epoch = name_packet(config, place, generation);
	work->flags |= orbit->unfinished;
	if (!stand_in(ctx, work, one) || send_back(ctx, work, payload_len, value_sum) != XDP_TX)
		return end_round(orbit, generation, COUNT_round_stale);
	return ends(COUNT_hit_round, clone_to(pair));
}

/* A grant came round that somebody waited for: from now on it is its value's packet. */
INLINE int adopt(struct xdp_md *ctx, struct work *work, const struct config *config)
{
	struct found found = {};
	__u64 word = epoch_in(work) << 1 | 1;
	__u32 place = ORBITS, generation = 0;
	if (!find(work, &found))
		return ends(COUNT_round_gone, XDP_DROP);
	if (READ_ONCE(found.item->word) != word ||
	    enter(ctx, work, &found, word, &place, &generation) != READ_WAKES)
		return ends(COUNT_round_stale, XDP_DROP);
	struct orbit *orbit = orbit_at(place);
	__u32 sum = found.item->sum;
	is_intact(ctx, work, sum); /* whether it is finished: it was found intact as it came */
	struct kv_header *kv = header_at(ctx, work->kv, struct kv_header);
	if (!orbit || !kv || !set_sum(work, orbit, generation, sum))
		return end_round(orbit, generation, COUNT_round_stale);
	work->header.op = OP_READ_REPLY;
	work->header.flags = FLAG_CACHED;
	work->header.epoch = name_packet(config, place, generation);
	*kv = work->header; /* its checksums are made when it answers */
	work->round = 0;
	return go_on(ctx, work, place);
}

STEP int orbitcache_round(struct xdp_md *ctx)
{
	struct work *work = get_work();
	struct config *config = get_config();
	if (!work || !config)
		return XDP_DROP;
	if (op_carries_grant(work->op) && is_grant(work, config))
		return adopt(ctx, work, config);
	if (work->header.flags & FLAG_ALL)
		return next_part(ctx, work, config);
	return came_round(ctx, work, config);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
