// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * KVSwitch: hot keys have replicas at several stores, and each read goes to one of them, in turn.
 * Nothing that is said here about replicas has to be true: a store that is asked for what it may
 * not answer asks the key's home (docs/coherence.md).
 *
 * Of other hot keys the control half may have put the value here, under the lease of the key's
 * store: hybrid.h.
 */
#include "counters.h"

#include "hybrid.h"

RECIRCULATES;

/*
 * A read without an item: counted, unless another switch sees to the key, or chose where it
 * is read.
 */
INLINE int read_cold(struct xdp_md *ctx, struct work *work, struct config *config)
{
	bool is_chosen = work->header.node && !(work->parameter[FLAGS] & ON_TOP);
	count(COUNT_miss);
	disown(ctx, work, config);
	if (count_load(ctx, work, REQUEST) && !is_chosen)
		pipe_miss(work, config, work->parameter[HOT_THRESHOLD], EVENT_HOT);
	return forward(ctx, work);
}

/*
 * A read of an item that is no record for it: of none, of a copy, of one that another switch
 * sees to.
 */
OUTLINE int read_other(struct xdp_md *ctx, struct work *work)
{
	struct found found = {};
	struct config *config = get_config();
	if (!work || !config)
		return XDP_PASS;
	if (!find(work, &found))
		return read_cold(ctx, work, config);
	if (is_copy(&found))
		return read_copy(ctx, work, config, &found);
	return go_home(ctx, work, config);
}

/* A read that has no turn, or none that is valid, goes home. */
OUTLINE int read_home(struct xdp_md *ctx, struct work *work, __u32 home_place)
{
	const struct config *config = get_config();
	if (!work || !config)
		return XDP_PASS;
	disown(ctx, work, config);
	count_at(work, home_place, SENT);
	return forward(ctx, work);
}

INLINE bool redirect(struct xdp_md *ctx, struct work *work, const struct found *found,
		     const struct replicas *key, const bool is_ipv6)
{
	struct target to = {};
	__u32 counted = count_each_request(found);
	if (!take_turn(found, key, work, counted, is_ipv6, &to))
		return false;
	if (!(is_ipv6 ? send_ipv6(ctx, work, &to, WORDS_OF_READ)
		      : send_ipv4(ctx, work, &to, WORDS_OF_READ)))
		return false;
	count_at(work, to.place, SENT);
	return true;
}

/*
 * The way of a redirected read is kept short: what few packets need stands in functions of its own.
 */
INLINE int take_read(struct xdp_md *ctx, struct work *work)
{
	struct found found = {};
	if (unlikely(!find(work, &found) || is_copy(&found)))
		return read_other(ctx, work);
	const struct replicas *key = replicas_of(&found, work);
	if (unlikely(!is_for_us(work, key)))
		return read_other(ctx, work);
	if (!(unlikely(work->is_ipv6) ? redirect(ctx, work, &found, key, true)
				      : redirect(ctx, work, &found, key, false)))
		return read_home(ctx, work, key->home_place);
	count(COUNT_redirect);
	return forward(ctx, work);
}

/*
 * Whether the write may be sent to replicas as it is: whole, and by nobody before, or by one that
 * saw to other racks. What a rack has of another one's key is not sent the write, but its
 * entry's update.
 *
 * Each round counts against the tenant's rate as a request does: who writes more than it allows has
 * its replicas called by their homes.
 */
INLINE bool fans_out(struct work *work, const struct replicas *key)
{
	bool was_sent = work->header.node && !(work->parameter[FLAGS] & ON_TOP);
	return (work->parameter[FLAGS] & FAN_OUT) && !was_sent && !key->is_entry &&
	       !is_part(&work->header) && next_replica(work, key, NODE_ALL) < key->count &&
	       pays_for(work, key->count);
}

/* The port that the packet leaves by, with the one that it goes round by. */
INLINE const void *find_loop(const struct work *work)
{
	return find_pair(work->out, round_for_copies(work->hash[0]));
}

INLINE int round_too(const void *pair)
{
	return ends(COUNT_replica_round, clone_to(pair));
}

/*
 * No replica may be read until it has confirmed the next value. The write goes home, and round to
 * become the first update.
 */
INLINE int take_write(struct xdp_md *ctx, struct work *work, struct config *config)
{
	struct found found = {};
	bool have = find(work, &found);
	if (have && is_copy(&found))
		return write_copy(ctx, work, config);
	count(COUNT_write);
	if (!have)
		return write_home(ctx, work, config);
	struct replicas *key = replicas_of(&found, work);
	WRITE_ONCE(key->valid, 0);
	count(COUNT_write_invalidated);
	bool more = fans_out(work, key);
	int verdict = write_home(ctx, work, config);
	if (!more || verdict != XDP_REDIRECT)
		return verdict;
	const void *pair = find_loop(work);
	if (!pair)
		return verdict;
	work->header.node = bpf_htons(NODE_ALL);
	sign(work);
	rewrite_header(ctx, work);
	return round_too(pair);
}

/*
 * An update that another switch sent to a store. If that has the key for this rack, the update goes
 * round as a write does, to become those of the other replicas here, and none of them may be read
 * until it has confirmed the next value.
 */
INLINE int take_update(struct xdp_md *ctx, struct work *work)
{
	struct found found = {};
	if (!(work->parameter[FLAGS] & ON_TOP))
		return forward(ctx, work);
	if (count_load(ctx, work, UPDATE))
		tally(work, ENTERED);
	if (!find_given(work, &found))
		return forward(ctx, work);
	struct replicas *key = replicas_of(&found, work);
	if (!key->is_entry || !is_for_us(work, key))
		return forward(ctx, work);
	WRITE_ONCE(key->valid, 0);
	count(COUNT_write_invalidated);
	bool more = (work->parameter[FLAGS] & FAN_OUT) && key->count && pays_for(work, key->count);
	int verdict = forward(ctx, work);
	if (!more || verdict != XDP_REDIRECT)
		return verdict;
	const void *pair = find_loop(work);
	return pair ? round_too(pair) : verdict;
}

/* A store says that its replica may be read again, or no longer. */
INLINE int about_replica(struct xdp_md *ctx, struct work *work)
{
	struct found found = {};
	__u32 store = bpf_be64_to_cpu(work->header.epoch) >> EPOCH_NUMBER_BITS;
	if (find_given(work, &found)) {
		struct replicas *key = replicas_of(&found, work);
		__u64 turns = turns_of(work, key, store);
		if (work->op == OP_REPLICA_DROP)
			fetch_and(&key->valid, ~turns);
		else
			fetch_or(&key->valid, turns);
		if (turns)
			count(work->op == OP_REPLICA_DROP ? COUNT_replica_drop
							  : COUNT_replica_confirm);
	}
	return forward(ctx, work);
}

/* All but reads. */
OUTLINE int take_others(struct xdp_md *ctx, struct work *work)
{
	struct config *config = get_config();
	if (!work || !config)
		return XDP_PASS;
	switch (work->op) {
	case OP_WRITE_REQUEST:
	case OP_DELETE_REQUEST:
		return take_write(ctx, work, config);
	case OP_CORRECTION_REQUEST:
		return go_home(ctx, work, config);
	case OP_REPLICA_UPDATE:
		return take_update(ctx, work);
	case OP_REPLICA_CONFIRM:
	case OP_REPLICA_DROP:
		return about_replica(ctx, work);
	case OP_READ_REPLY:
	case OP_WRITE_REPLY:
		count_load(ctx, work, REPLY);
		return reply(ctx, work, config);
	case OP_DELETE_REPLY:
		count_load(ctx, work, REPLY);
		return forward(ctx, work);
	case OP_FETCH_REPLY:
		return fetch_reply(ctx, work, config);
	default:
		return forward(ctx, work);
	}
}

STEP int kvswitch(struct xdp_md *ctx)
{
	struct work *work = get_work();
	if (!work)
		return XDP_PASS;
	return !unlikely(work->op != OP_READ_REQUEST) ? take_read(ctx, work)
						      : take_others(ctx, work);
}

/*
 * An update whose way only the kernel knows, with others to come after it: a packet is passed or
 * sent round, not both. The replica is called by its home instead, as if the update was lost.
 */
INLINE int skip_replica(struct xdp_md *ctx, struct work *work)
{
	count(COUNT_replica_skip);
	work->round = 0; /* a clone does not count them */
	return recirculate_by(ctx, work, round_for_copies(work->hash[0]), 1);
}

/*
 * A write came round, or the update that it became: it becomes the update of the next replica, and
 * goes to that. `node` says how far it is.
 */
STEP int kvswitch_update(struct xdp_md *ctx)
{
	struct work *work = get_work();
	struct found found = {};
	if (!work)
		return XDP_DROP;
	address_to_far_end(ctx);
	if (!find_given(work, &found))
		return ends(COUNT_round_gone, XDP_DROP);
	const struct replicas *key = replicas_of(&found, work);
	struct target to = {};
	__u32 seq = begin_reading(&found);
	__u32 replicas = key->count, turn = next_replica(work, key, bpf_ntohs(work->header.node));
	read_target(key, turn, work->is_ipv6, &to);
	if (!was_whole(&found, seq) || turn >= replicas)
		return ends(COUNT_round_gone, XDP_DROP);
	if (work->op == OP_DELETE_REQUEST)
		work->header.flags |= FLAG_ALL;
	work->header.op = OP_REPLICA_UPDATE;
	if (!send_to(ctx, work, &to, WORDS_OF_UPDATE))
		return ends(COUNT_round_gone, XDP_DROP);
	bool is_last = turn + 1 >= replicas;
	enum counter how = send_on(ctx, work);
	if (how != COUNT_forward && !is_last)
		return skip_replica(ctx, work);
	count(COUNT_replica_update);
	count_update(work, to.place);
	int verdict = sent_on(how);
	if (is_last)
		return verdict;
	const void *pair = find_loop(work);
	return pair ? round_too(pair) : verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
