// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * NetCache: the switch answers reads of hot keys, counts the others, and keeps its copies coherent with the
 * stores that it forwards the rest to. Tail-called by the entry program with an admitted packet.
 */
#include "discipline.h"

/* The parameter word with the reads per window from which a key is reported. */
#define HOT_THRESHOLD 0
/* That with the longest items that are cached: bytes of the key over bytes of the value, 16 bits each; 0: any. */
#define LONGEST 1

/* Answers from the item. The copy is checked after it was made, before the packet becomes the reply. */
INLINE int answer(struct xdp_md *ctx, struct work *work, const struct config *config,
		  const struct found *found, __u64 word)
{
	struct item *item = found->item;
	__u32 seq = READ_ONCE(item->seq);
	barrier();
	__u64 version = item->version, expiry_ns = item->expiry_ns;
	__u32 len = item->value_len, value_sum = item->sum;
	bool expires = item->flags & ITEM_EXPIRES;
	__u32 payload_len = KV_HEADER_LEN + work->key_len + len;
	if (len > VALUE_MAX_BYTES || !make_room(ctx, work, payload_len)) {
		count(COUNT_bypass_no_room);
		return forward(ctx, work);
	}
	__u8 *value = value_of(found, work->key_len);
	if (len &&
	    bpf_xdp_store_bytes(ctx, work->kv + KV_HEADER_LEN + work->key_len, value, len) < 0) {
		count(COUNT_bypass_no_room);
		return forward(ctx, work);
	}
	barrier();
	bool torn = (seq & 1) || READ_ONCE(item->seq) != seq || READ_ONCE(item->word) != word;
	if (torn && !MUTANT(serves_torn)) {
		count(COUNT_bypass_torn);
		restore_padding(ctx, work, len);
		return forward(ctx, work);
	}
	work->header.op = OP_READ_REPLY;
	work->header.flags = FLAG_CACHED;
	work->header.value_len = bpf_htons(len);
	work->header.total = 0;
	work->header.epoch = bpf_cpu_to_be64(epoch_pair(config->switch_id, 0));
	work->header.version = bpf_cpu_to_be64(version);
	work->header.expiry_ms =
		expires ? bpf_htonl((expiry_ns - work->now_ns) / NS_PER_MS + 1) : 0;
	count(COUNT_hit);
	return send_back(ctx, work, payload_len, value_sum);
}

INLINE bool key_is_cached(const struct work *work)
{
	__u32 longest = work->parameter[LONGEST] >> 16;
	return !longest || work->key_len <= longest;
}

INLINE int read_request(struct xdp_md *ctx, struct work *work, struct config *config)
{
	struct found found;
	if (is_part(&work->header)) {
		count(COUNT_bypass_part);
		disown(ctx, work, config);
		return forward(ctx, work);
	}
	if (!find(work, &found)) {
		count(COUNT_miss);
		if (key_is_cached(work))
			count_miss(work, config, work->parameter[HOT_THRESHOLD]);
		disown(ctx, work, config);
		return forward(ctx, work);
	}
	touch_rest(&found);
	count_request(&found, config);
	struct item *item = found.item;
	__u64 word = READ_ONCE(item->word);
	struct lease *lease = lease_of(item);
	if (!lease || !lease_holds(lease, work->now_ns)) {
		count(COUNT_read_no_lease);
		return forward(ctx, work);
	}
	if ((!is_valid(word) && !MUTANT(serves_invalid)) ||
	    (epoch_of(word) <= READ_ONCE(lease->floor) && !MUTANT(serves_earlier_term))) {
		count(COUNT_read_invalid);
		ask_for_grant(ctx, work, config, item, lease);
		return forward(ctx, work);
	}
	if ((item->flags & ITEM_EXPIRES) && !is_before(work->now_ns, item->expiry_ns) &&
	    !MUTANT(serves_expired)) {
		count(COUNT_read_expired);
		ask_for_grant(ctx, work, config, item, lease);
		return forward(ctx, work);
	}
	return answer(ctx, work, config, &found, word);
}

/* Rule 2: invalid here first, then on to the store with the epoch that proves it. */
INLINE int write_request(struct xdp_md *ctx, struct work *work, struct config *config)
{
	__u64 epoch = MUTANT(write_takes_no_epoch) ? newest_epoch(config) : take_epoch(config);
	struct found found;
	bool have = find(work, &found);
	if (MUTANT(epoch_after_lookup)) {
		barrier();
		epoch = take_epoch(config);
	}
	count(COUNT_write);
	if (have && !MUTANT(write_invalidates_nothing) &&
	    !raise_epoch(found.item, epoch, work->now_ns)) {
		count(COUNT_write_contended);
		disown(ctx, work, config);
		return forward(ctx, work);
	}
	if (have)
		count(COUNT_write_invalidated);
	/*
	 * Another switch may have stamped it before us: it keeps the place unless only we have an entry.
	 * What claims to be our own stamp is replaced: only we know our epochs.
	 */
	if (!MUTANT(write_carries_nothing) &&
	    (!work->header.epoch || names_this_switch(work, config) ||
	     (have && !(work->header.flags & FLAG_GRANT))))
		stamp(ctx, work, config, epoch, have ? FLAG_GRANT : 0);
	return forward(ctx, work);
}

/* A grant for this switch. Of a value that is longer than the tenant's may be, the agent is told that nothing holds it. */
INLINE void take_grant(struct xdp_md *ctx, struct work *work, struct config *config)
{
	__u32 longest = work->parameter[LONGEST] & 0xffff;
	if (longest && work->value_len > longest) {
		send_event(work, EVENT_TOO_LARGE, 0, 0xffff, config->window);
		count(COUNT_grant_too_large);
		return;
	}
	count(install(ctx, work, config));
}

/* A grant for this switch is installed on its way to the client. */
INLINE int reply(struct xdp_md *ctx, struct work *work, struct config *config)
{
	if ((work->header.flags & FLAG_GRANT) && names_this_switch(work, config))
		take_grant(ctx, work, config);
	return forward(ctx, work);
}

INLINE int fetch_reply(struct xdp_md *ctx, struct work *work, struct config *config)
{
	if (!names_this_switch(work, config))
		return forward(ctx, work);
	if (work->header.flags & FLAG_GRANT)
		take_grant(ctx, work, config);
	return ends(COUNT_fetch_reply, XDP_DROP);
}

STEP int netcache(struct xdp_md *ctx)
{
	struct work *work = get_work();
	struct config *config = get_config();
	if (!work || !config)
		return XDP_PASS;
	switch (work->op) {
	case OP_READ_REQUEST:
		return read_request(ctx, work, config);
	case OP_WRITE_REQUEST:
	case OP_DELETE_REQUEST:
		return write_request(ctx, work, config);
	case OP_READ_REPLY:
	case OP_WRITE_REPLY:
		return reply(ctx, work, config);
	case OP_FETCH_REPLY:
		return fetch_reply(ctx, work, config);
	case OP_CORRECTION_REQUEST:
		count(COUNT_bypass_correction);
		return forward(ctx, work);
	default:
		return forward(ctx, work);
	}
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
