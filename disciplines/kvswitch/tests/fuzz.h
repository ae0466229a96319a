/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Records of replicas, in the script and the oracle (fuzz/data_plane): where reads and updates may
 * go, which bits may change, and that a write that goes round comes to an end.
 */
#pragma once

#define OWN_STEPS kvswitch, kvswitch_update

static const __u8 own_ops[] = {
	OP_READ_REQUEST, OP_WRITE_REQUEST, OP_DELETE_REQUEST, OP_REPLICA_CONFIRM,
	OP_READ_REQUEST, OP_WRITE_REQUEST, OP_REPLICA_DROP,   OP_REPLICA_UPDATE,
};
#define OWN_OPS_OF_256 0x60

#define FIRST_STORE 0x8001

/* What a store says of its own replica; 0: it is nothing of that kind. */
static __u64 own_epoch(__u8 op, __u8 (*next)(void))
{
	if (op != OP_REPLICA_CONFIRM && op != OP_REPLICA_DROP)
		return 0;
	return epoch_pair(FIRST_STORE + next() % 8, 7);
}

/* Where packets are cloned to, and what the tenants' parameters say. */
static void own_make(void)
{
	static const struct user_group group = {.count = 2};
	for (__u32 round = 0; round < RECIRCULATION_PORTS; round++) {
		struct clone_key key = {PORT_IFINDEX, round};
		user_hash_update(user_table_of(&clones)->hash, &key, &group, 0);
	}
	for (int i = 0; i < TENANTS; i++)
		tenant_of(tenant_ids[i])->parameter_1 =
			FAN_OUT | (i & 1 ? ON_TOP | TWO_CHOICES : 0);
}

/* The address of a replica: behind the last of the stores', by its number. */
static void address_for(__u32 store, bool is_ipv6, __u8 to[16])
{
	memcpy(to, stores[is_ipv6].address, 16);
	to[15] = store;
}

static __u32 own_record(__u8 *to, __u8 (*next)(void))
{
	struct replicas *key = (void *)to;
	__u8 how = next(), turns = 1 + next() % TURNS_MAX;
	bool is_ipv6 = how & 1;
	memset(key, 0, sizeof(*key));
	key->turns = turns;
	key->count = 1 + next() % turns;
	key->scale = (__u32)(((1ULL << 32) + turns - 1) / turns);
	key->home = FIRST_STORE;
	key->home_place = 0;
	key->is_ipv6 = is_ipv6;
	key->is_entry = (how & 6) == 6;
	key->valid = (how & 8) ? ~0ULL : 0;
	__u32 each = is_ipv6 ? IPV6_TURN : IPV4_TURN;
	for (__u32 i = 0; i < turns; i++) {
		struct turn *turn = (void *)(key->turn + i * each);
		__u8 address[16];
		/* The first are different replicas; turns of these and of the home follow. */
		turn->store = FIRST_STORE + (i < key->count ? 1 + i : i % (key->count + 1));
		turn->place = turn->store - FIRST_STORE;
		address_for(turn->store, is_ipv6, address);
		memcpy(turn->address, is_ipv6 ? address : address + 12, is_ipv6 ? 16 : 4);
	}
	return sizeof(*key) + turns * each;
}

/* The record of the packet's key; NULL: it has none. */
static struct replicas *record_for(const struct view *view)
{
	int place = view->is_whole ? place_found(view) : -1;
	return place >= 0 && entries[place].is_given ? (void *)record_in(place) : NULL;
}

/* Bits before a packet. */
static __u64 bits_before;
static bool had_record;

static void own_before(const struct passage *p)
{
	struct replicas *key = p->before.is_ours ? record_for(&p->before) : NULL;
	had_record = key;
	bits_before = key ? key->valid : 0;
}

static __u64 bits_of(const struct replicas *key, __u32 store)
{
	__u64 bits = 0;
	for (__u32 i = 0; i < key->turns; i++)
		if (store_at(key, i) == store)
			bits |= 1ULL << i;
	return bits;
}

static __u32 node_in(const struct frame *frame, const struct view *view)
{
	return big_endian(frame->bytes + view->kv + 48, 2);
}

/*
 * Whether the packet is addressed to this replica of the key, by its own address and number, and to
 * nobody else.
 */
static void check_goes_to(const struct frame *frame, const struct view *view, __u32 store)
{
	const __u8 *ip = frame->bytes + view->l3;
	__u8 address[16];
	address_for(store, view->is_ipv6, address);
	demand(store > FIRST_STORE && node_in(frame, view) == store, "a replica is named");
	demand(!memcmp(view->is_ipv6 ? ip + 24 : ip + 16, view->is_ipv6 ? address : address + 12,
		       view->is_ipv6 ? 16 : 4),
	       "what names a replica goes there");
}

/* Bits are set by confirmations of their store only, cleared by its word and by whatever writes. */
static void check_bits(const struct passage *p, const struct replicas *key)
{
	const struct view *in = &p->before;
	__u64 bits = bits_of(key, in->epoch >> 48);
	__u64 set = key->valid & ~bits_before, cleared = bits_before & ~key->valid;
	bool is_system = is_authentic(&p->in, in);
	demand(!set || (in->op == OP_REPLICA_CONFIRM && is_system && !(set & ~bits)),
	       "only a store's own confirmation makes its replica one that is read");
	bool writes = in->op == OP_WRITE_REQUEST || in->op == OP_DELETE_REQUEST ||
		      in->op == OP_REPLICA_UPDATE;
	demand(!cleared || writes || (in->op == OP_REPLICA_DROP && is_system && !(cleared & ~bits)),
	       "only writes and a store's own word end that its replica is read");
	if (p->moved.of[COUNT_write_invalidated])
		demand(!key->valid, "after a write no replica is read until it has confirmed");
}

static void own_check(const struct passage *p)
{
	const struct view *in = &p->before;
	struct replicas *key = had_record ? record_for(in) : NULL;
	if (p->moved.of[COUNT_redirect])
		demand(key, "only what has replicas goes to one");
	if (!key)
		return;
	check_bits(p, key);
	if (!p->moved.of[COUNT_redirect])
		return;
	__u32 store = node_in(&p->out, &p->after);
	demand(in->op == OP_READ_REQUEST, "only reads go to one replica");
	if (!p->moved.of[COUNT_forward])
		return;
	demand(bits_of(key, store) & bits_before, "a read goes to a replica that has confirmed");
	check_goes_to(&p->out, &p->after, store);
}

static bool own_goes_round(const struct passage *p)
{
	return p->verdict == XDP_REDIRECT && p->moved.of[COUNT_replica_round];
}

/* A write, or the update of one replica, has become that of the next. */
static void own_check_round(const struct passage *p)
{
	const struct view *in = &p->before, *out = &p->after;
	struct replicas *key = record_for(in);
	if (!p->moved.of[COUNT_replica_update]) {
		demand(p->verdict != XDP_REDIRECT || p->moved.of[COUNT_replica_skip],
		       "what is no update ends");
		return;
	}
	demand(key, "only what has replicas is sent to them");
	demand(out->is_whole && out->op == OP_REPLICA_UPDATE, "it is an update");
	demand(out->client == in->client && out->request == in->request &&
		       out->tenant == in->tenant && out->expiry_ms == in->expiry_ms &&
		       out->version == in->version && out->value_len == in->value_len &&
		       out->key_len == in->key_len &&
		       !memcmp(p->out.bytes + out->kv + 80, p->in.bytes + in->kv + 80,
			       out->key_len + out->value_len),
	       "an update is of the same write");
	if (in->op == OP_DELETE_REQUEST)
		demand(out->flags & FLAG_ALL, "a delete's update says that it is one");
	demand(is_authentic(&p->out, out), "an update is signed");
	if (checksums_are_right(&p->in, in))
		demand(checksums_are_right(&p->out, out), "an update's checksums are right");
	__u32 store = node_in(&p->out, out), before = node_in(&p->in, in);
	check_goes_to(&p->out, out, store);
	demand(before == NODE_ALL || before == FIRST_STORE || store > before,
	       "each replica has its turn once");
}
