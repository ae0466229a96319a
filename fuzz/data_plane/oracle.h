/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What may be served, and what must hold after every packet. It follows the packets that went in
 * and the epochs that came out, by the rules of docs/coherence.md; of the tables it reads epochs
 * and sequence counts only.
 */
#pragma once

#define GRANTS_MAX 64
/* Moments of one packet's way: before it, and after each packet that interrupted it. */
#define MOMENTS_MAX 8

#define demand(condition, what)                                                                    \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: violated: %s\n", __FILE__, __LINE__, what);        \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* A value that some store granted. */
struct grant {
	__u32 tenant, expiry_ms;
	__u64 epoch, version;
	__u8 source[16];
	__u8 key_len;
	__u8 key[250];
	__u32 value_len;
	__u8 value[VALUE_MAX_BYTES];
};

/* What is known of an entry beside the tables. */
struct knowledge {
	__u64 epoch;
	__u64 since_ns; /* when it was first seen with this epoch */
	__u64 least; /* grants for epochs below are dead: a write or an invalidation came since */
};

struct lease_knowledge {
	__u64 until_ns;
	__u64 floor;
	__u64 term;
};

struct moment {
	struct knowledge entry[PLACES];
	struct lease_knowledge lease[STORES];
	bool is_there[PLACES];
};

static struct grant grants[GRANTS_MAX];
static __u32 grants_made;
static struct knowledge known[PLACES];
static struct lease_knowledge leases_known[STORES];
/*
 * Until when the lease replies under way may extend a lease: whoever interrupts them may
 * profit already.
 */
static __u64 pending_until_ns[STORES];

static void oracle_reset(void)
{
	grants_made = 0;
	memset(known, 0, sizeof(known));
	memset(leases_known, 0, sizeof(leases_known));
	memset(pending_until_ns, 0, sizeof(pending_until_ns));
}

/* A new entry: whatever was granted before is not for it. */
static void oracle_inserted(__u32 place)
{
	__u64 epoch = the_config()->epoch;
	known[place] = (struct knowledge){epoch, kernel.now_ns, epoch};
}

/* Which of the script's keys it is, found where that is to be found; KEYS: none. */
static __u32 key_in(const struct item *item, __u32 slot)
{
	for (__u32 key = 0; key < KEYS; key++) {
		__u64 hash[2];
		__u8 bytes[256];
		key_hash(key, hash);
		key_bytes(key, bytes);
		hash[1] ^= hash_salt(item->tenant);
		const struct bucket *bucket = put(&buckets, slot / BUCKET_SLOTS);
		__u32 fingerprint = hash[1] >> 32 ?: 1;
		if (item->key_len == key_lens[key] && !memcmp(item + 1, bytes, key_lens[key]) &&
		    ((__u32)hash[1] & bucket_mask) == slot / BUCKET_SLOTS &&
		    bucket->slot[slot % BUCKET_SLOTS] >> 32 == fingerprint)
			return key;
	}
	return KEYS;
}

/*
 * What programs made of blanks, as the agent finds out: an item that may not be, since its packet
 * claimed another hash than its key's, goes. `epoch` was taken before the packet came in.
 */
static void see_blanks(__u64 epoch)
{
	struct blanks *blanks = put(&probation, 0);
	for (__u32 place = 0; place < PLACES; place++) {
		__u32 slot = blank_in[place] ? blanks->blank[blank_in[place] - 1].slot : 0,
		      reference;
		if (!slot--)
			continue;
		blank_in[place] = 0;
		if (slot == BLANK_LEFT - 1)
			continue;
		struct bucket *bucket = put(&buckets, slot / BUCKET_SLOTS);
		struct item *item = place_of(place, &reference);
		__u64 *at = &bucket->slot[slot % BUCKET_SLOTS];
		demand((__u32)*at == reference, "a blank is where its ring says");
		demand(item->lease < STORES, "an item on probation has its store's lease");
		demand(!item->word || item->word >> 1 > epoch,
		       "an item on probation takes its epoch when it can be found");
		for (int i = 0; i < BUCKET_SLOTS; i++)
			demand(&bucket->slot[i] == at || bucket->slot[i] >> 32 != *at >> 32,
			       "fingerprints are unique in a bucket");
		__u32 key = key_in(item, slot);
		if (key == KEYS) {
			*at = 0;
			continue;
		}
		entries[place] =
			(struct entry){true, false, item->tenant, key, item->lease, at, item};
		known[place] = (struct knowledge){item->word >> 1, kernel.now_ns, epoch + 1};
	}
}

static bool is_authentic(const struct frame *frame, const struct view *view)
{
	const struct tenant *tenant =
		tenant_of(op_is_system(view->op) ? TENANT_SYSTEM : view->tenant);
	if (!tenant)
		return false;
	if (!(tenant->secret[0] | tenant->secret[1]))
		return true;
	return view->tag == right_tag(frame->bytes + view->kv);
}

/* The entry that the programs find for a packet: by half of its hash, and its key; -1: none. */
static int place_found(const struct view *view)
{
	for (int i = 0; i < PLACES; i++) {
		__u64 hash[2];
		__u8 key[256];
		if (!entries[i].is_there || entries[i].tenant != view->tenant)
			continue;
		key_hash(entries[i].key, hash);
		key_bytes(entries[i].key, key);
		if (view->key_len == key_lens[entries[i].key] && hash[1] == view->hash[1] &&
		    !memcmp(key, view->key, view->key_len))
			return i;
	}
	return -1;
}

/* Likewise, of a packet that says its whole hash. */
static int place_for(const struct view *view)
{
	__u64 hash[2];
	int place = place_found(view);
	if (place >= 0)
		key_hash(entries[place].key, hash);
	return place >= 0 && hash[0] == view->hash[0] ? place : -1;
}

/* Counters of the CPU that it ran on, before and after. */
struct counts {
	__u64 of[COUNT_MAX];
};

static struct counts read_counts(void)
{
	struct counts counts;
	for (__u32 i = 0; i < COUNT_MAX; i++)
		counts.of[i] = *(__u64 *)put(&counters, i);
	return counts;
}

/* A packet under way. */
struct passage {
	struct frame in, out;
	struct view before, after;
	struct counts was, moved;
	struct moment moments[MOMENTS_MAX];
	__u32 count_of_moments;
	__u64 epoch_before;
	bool was_interrupted;
	int verdict;
	__u32 first_len; /* of what came out: bytes in its first buffer */
};

static void note_moment(struct passage *p)
{
	if (p->count_of_moments == MOMENTS_MAX)
		return;
	struct moment *moment = &p->moments[p->count_of_moments++];
	memcpy(moment->entry, known, sizeof(known));
	memcpy(moment->lease, leases_known, sizeof(leases_known));
	for (int i = 0; i < PLACES; i++)
		moment->is_there[i] = entries[i].is_there;
}

static bool renews_lease(const struct frame *frame, const struct view *view)
{
	return view->is_whole && view->op == OP_LEASE_REPLY && view->tenant == TENANT_SYSTEM &&
	       view->request < STORES && view->epoch >> 48 == SWITCH && is_authentic(frame, view) &&
	       !memcmp(view->source, stores[view->request].address, 16) &&
	       view->version <= kernel.now_ns + CLOCK_MARGIN_NS;
}

/* What may be granted from now on: noted before the packet runs. */
static void note_grant(const struct frame *frame, const struct view *view)
{
	bool may_grant = view->op == OP_READ_REPLY || view->op == OP_WRITE_REPLY ||
			 view->op == OP_FETCH_REPLY;
	if (!view->is_whole || !may_grant || !(view->flags & FLAG_GRANT) ||
	    view->epoch >> 48 != SWITCH || view->value_len > VALUE_MAX_BYTES || view->part ||
	    view->total > view->value_len || view->key_len > KV_MAX_KEY ||
	    !is_authentic(frame, view) || !arrived_whole(frame, view))
		return;
	struct grant *grant = &grants[grants_made++ % GRANTS_MAX];
	*grant = (struct grant){
		.tenant = view->tenant,
		.expiry_ms = view->expiry_ms,
		.epoch = view->epoch & EPOCH_NUMBER_MASK,
		.version = view->version,
		.key_len = view->key_len,
		.value_len = view->value_len,
	};
	memcpy(grant->source, view->source, 16);
	memcpy(grant->key, view->key, view->key_len);
	memcpy(grant->value, view->value, view->value_len);
}

/* Rules 2, 5 and 6: whether this grant may be served at that moment. */
static bool may_serve(const struct passage *p, const struct moment *m, int place,
		      const struct grant *grant)
{
	const struct view *reply = &p->after;
	const struct knowledge *entry = &m->entry[place];
	const struct lease_knowledge *lease = &m->lease[entries[place].lease];
	if (!m->is_there[place] || grant->tenant != reply->tenant ||
	    grant->key_len != reply->key_len || grant->value_len != reply->value_len ||
	    memcmp(grant->key, reply->key, grant->key_len) ||
	    memcmp(grant->value, reply->value, grant->value_len) ||
	    grant->version != reply->version ||
	    memcmp(grant->source, stores[entries[place].lease].address, 16))
		return false;
	if (grant->epoch != entry->epoch || grant->epoch < entry->least ||
	    grant->epoch <= lease->floor ||
	    (kernel.now_ns >= lease->until_ns &&
	     kernel.now_ns >= pending_until_ns[entries[place].lease]))
		return false;
	if (!grant->expiry_ms)
		return reply->expiry_ms == 0;
	__u64 ends_ns = entry->since_ns + grant->expiry_ms * NS_PER_MS;
	return kernel.now_ns < ends_ns && reply->expiry_ms > 0 &&
	       reply->expiry_ms <= (ends_ns - kernel.now_ns) / NS_PER_MS + 1;
}

static void check_hit(const struct passage *p)
{
	const struct view *in = &p->before, *out = &p->after;
	demand(in->op == OP_READ_REQUEST && out->op == OP_READ_REPLY, "a hit answers a read");
	demand(out->tenant == in->tenant && out->client == in->client &&
		       out->request == in->request && out->hash[0] == in->hash[0] &&
		       out->hash[1] == in->hash[1] && out->key_len == in->key_len &&
		       !memcmp(out->key, in->key, in->key_len),
	       "a reply names the request that it answers, with its whole key");
	demand(out->flags == FLAG_CACHED && out->epoch == epoch_pair(SWITCH, 0),
	       "a hit names the switch, and is neither stamp nor grant");
	int place = place_for(in);
	demand(place >= 0 || p->before.is_ours, "a hit has an entry");
	/* A request may find its entry by half of its hash; the entry may be gone by now. */
	for (int i = 0; i < PLACES; i++)
		for (__u32 m = 0; m < p->count_of_moments; m++)
			for (__u32 g = 0; g < GRANTS_MAX && g < grants_made; g++)
				if (may_serve(p, &p->moments[m], i, &grants[g]))
					return;
	demand(false,
	       "a served value was granted for this key and the newest epoch, under a lease");
}

/*
 * A reply ends with its datagram; or its first buffer does, and what lies in others is what the
 * sender had there.
 */
static bool ends_with_datagram(const struct passage *p, const struct view *out)
{
	__u32 end = out->kv + out->payload_len, behind = p->out.len - end;
	if (p->out.len == end)
		return true;
	return p->first_len == end && behind <= p->in.len &&
	       !memcmp(p->out.bytes + end, p->in.bytes + p->in.len - behind, behind);
}

static void check_sent_back(const struct passage *p)
{
	const struct view *in = &p->before, *out = &p->after;
	const struct tenant *tenant = tenant_of(op_is_system(in->op) ? TENANT_SYSTEM : in->tenant);
	demand(out->is_whole && ends_with_datagram(p, out), "a reply is whole");
	/* A read's is counted on: what flipped in it still shows. */
	bool counted = p->moved.of[COUNT_hit] || p->moved.of[COUNT_lent_read] ||
		       p->moved.of[COUNT_lent_padding];
	demand(has_udp_sum(&p->out, out), "a reply has a checksum");
	if (!counted || !has_udp_sum(&p->in, in) || was_sent_so(&p->in, in))
		demand(checksums_are_right(&p->out, out), "a reply's checksums are right");
	else
		demand(!sums_to_ones(udp_sum(&p->out, out)), "what is spoiled still shows");
	demand(is_authentic(&p->out, out), "a reply is signed");
	demand(tenant, "no reply for an unknown tenant");
	if (!(tenant->secret[0] | tenant->secret[1]))
		demand(out->payload_len <= in->payload_len && p->out.len <= p->in.len,
		       "who has no secret gets no reply larger than the request");
	if (p->moved.of[COUNT_hit])
		check_hit(p);
}

/*
 * Forwarded or passed on: header fields may be stamped, hop limit and addresses changed,
 * nothing else.
 */
static void check_passed_on(const struct passage *p)
{
	const struct view *in = &p->before, *out = &p->after;
	demand(out->is_ours && out->kv == in->kv && out->payload_len == in->payload_len,
	       "what is passed on keeps its shape");
	demand(out->op == in->op && out->tenant == in->tenant && out->client == in->client &&
		       out->request == in->request && out->version == in->version &&
		       out->value_len == in->value_len && out->expiry_ms == in->expiry_ms &&
		       out->part == in->part && out->total == in->total &&
		       out->key_len == in->key_len && out->hash[0] == in->hash[0] &&
		       out->hash[1] == in->hash[1],
	       "what is passed on asks for the same");
	__u32 same = p->moved.of[COUNT_bypass_torn] ? 80U + in->key_len : in->payload_len;
	demand(same <= 80 ||
		       !memcmp(p->out.bytes + out->kv + 80, p->in.bytes + in->kv + 80, same - 80),
	       "what is passed on keeps key and value");
	bool padding_was_zero = true;
	for (__u32 i = 80U + in->key_len + in->value_len; i < in->payload_len; i++)
		padding_was_zero &= !p->in.bytes[in->kv + i];
	if (checksums_are_right(&p->in, in) && padding_was_zero)
		demand(checksums_are_right(&p->out, out), "right checksums stay right");
	if (has_udp_sum(&p->in, in) && !arrived_whole(&p->in, in) && padding_was_zero)
		demand(!sums_to_ones(udp_sum(&p->out, out)), "what is spoiled still shows");
	if (is_authentic(&p->in, in))
		demand(is_authentic(&p->out, out), "right tags stay right");
}

/* By the counters' numbers; where there is no counter, no name. */
static const char *const names[COUNT_MAX] = {
#define X(number, name, meaning) [number] = #name,
	COUNTERS(X) OWN_COUNTERS(X)
#undef X
};
/* Over all inputs: how often each counter rose. */
static __u64 totals[COUNT_MAX];

/* Every packet comes to one end, and the verdict fits it. */
static void check_ending(const struct passage *p)
{
	__u64 passed = 0, dropped = 0, sent = 0, forwarded = p->moved.of[COUNT_forward];
	for (int i = 0; i < COUNT_MAX; i++) {
		if (!names[i])
			continue;
		if (!strncmp(names[i], "pass_", 5))
			passed += p->moved.of[i];
		if (!strncmp(names[i], "drop_", 5))
			dropped += p->moved.of[i];
	}
	dropped += p->moved.of[COUNT_fetch_reply] + p->moved.of[COUNT_invalidate_contended] +
		   p->moved.of[COUNT_lease_renewed] + p->moved.of[COUNT_lease_stale] +
		   p->moved.of[COUNT_round_gone];
	sent += p->moved.of[COUNT_hit] + p->moved.of[COUNT_invalidate] +
		p->moved.of[COUNT_lease_offer] + p->moved.of[COUNT_probe];
	demand(passed + dropped + sent + forwarded == 1, "exactly one counter says how it ended");
	demand(p->verdict == (passed    ? XDP_PASS
			      : dropped ? XDP_DROP
			      : sent    ? XDP_TX
					: XDP_REDIRECT),
	       "the verdict is what the counter says");
}

static void learn_lease(const struct passage *p)
{
	const struct view *in = &p->before;
	demand(renews_lease(&p->in, in),
	       "only a lease's store renews it, and not from a later time");
	struct lease_knowledge *lease = &leases_known[in->request];
	__u64 until_ns = in->version + in->expiry_ms * NS_PER_MS;
	if (lease->term != in->client)
		*lease = (struct lease_knowledge){until_ns, p->epoch_before, in->client};
	else if (lease->until_ns < until_ns)
		lease->until_ns = until_ns;
}

/* What the packet did to epochs, as seen from outside and in the items. */
static void learn_epochs(const struct passage *p)
{
	bool is_write = p->moved.of[COUNT_write] && !p->moved.of[COUNT_write_contended];
	int place = p->before.is_whole ? place_for(&p->before) : -1;
	if (place >= 0 && entries[place].is_given)
		place = -1;
	if (place >= 0 && (is_write || p->moved.of[COUNT_invalidate])) {
		__u64 least = p->epoch_before + 1;
		__u64 claimed = p->after.epoch & EPOCH_NUMBER_MASK;
		if (p->after.epoch >> 48 == SWITCH && claimed <= the_config()->epoch &&
		    claimed > least)
			least = claimed;
		if (known[place].least < least)
			known[place].least = least;
		demand(entries[place].item->word >> 1 >= least,
		       "a write or an invalidation raises the entry's epoch");
	}
	for (int i = 0; i < PLACES; i++) {
		if (!entries[i].is_there)
			continue;
		__u64 epoch = entries[i].item->word >> 1;
		demand(epoch >= known[i].epoch, "an item's epoch never falls");
		demand(epoch <= the_config()->epoch, "an item's epoch was taken from the counter");
		if (epoch > known[i].epoch) {
			known[i].epoch = epoch;
			known[i].since_ns = kernel.now_ns;
		}
	}
}

static void check_tables(const struct passage *p, bool is_nested)
{
	demand(the_config()->epoch >= p->epoch_before, "the invalidation counter never falls");
	for (int i = 0; i < PLACES && !is_nested; i++)
		if (entries[i].is_there)
			demand(!(entries[i].item->seq & 1), "nobody leaves an item locked");
	for (int i = 0; i < PLACES; i++) {
		const struct item *item = entries[i].item;
		if (entries[i].is_there && item->word & 1)
			demand(48U + (item->key_len + 7) / 8 * 8 + (item->value_len + 7) / 8 * 8 <=
				       (item->flags & ITEM_CELLS) * 64U,
			       "a value stays in its item's cells");
	}
	for (int i = 0; i < BUCKETS && !is_nested; i++)
		demand(!*(__u32 *)put(&bucket_locks, i), "nobody leaves a bucket locked");
	for (int i = 0; i < STORES && !is_nested; i++)
		demand(!((struct lease *)put(&leases, i))->lock, "nobody leaves a lease locked");
}

/* After the packet: `out` is what left. */
static void see_what_came(struct passage *p)
{
	struct counts now = read_counts();
	for (int i = 0; i < COUNT_MAX; i++)
		totals[i] += p->moved.of[i] = now.of[i] - p->was.of[i];
	p->after = view_of(&p->out);
	check_ending(p);
}

static void check_passage(struct passage *p, bool is_nested)
{
	see_what_came(p);
	check_tables(p, is_nested);
	if (!p->before.is_ours) {
		demand(p->verdict == XDP_PASS && p->in.len == p->out.len &&
			       !memcmp(p->in.bytes, p->out.bytes, p->in.len),
		       "what is not ours passes unchanged");
		return;
	}
	if (!p->before.is_whole)
		demand(p->verdict == XDP_DROP || p->verdict == XDP_PASS,
		       "nothing comes of half a packet");
	if (p->moved.of[COUNT_lease_renewed])
		learn_lease(p);
	if (p->verdict == XDP_TX)
		check_sent_back(p);
	else if (p->before.is_whole && p->verdict != XDP_DROP)
		check_passed_on(p);
	learn_epochs(p);
}
