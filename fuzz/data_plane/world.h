/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the tables hold: tenants, stores, and entries made in the steps in which crates/dataplane
 * makes them.
 */
#pragma once

#define SWITCH 1
#define KEYS 6
#define TENANTS 5
#define STORES 2
#define PLACES 6
#define PORT_IFINDEX 2

/* Tenant 0 has no secret; 9 and 10 have a rate; the last one is the system's. */
static const __u32 tenant_ids[TENANTS] = {0, 7, 9, 10, TENANT_SYSTEM};
static const __u8 key_lens[KEYS] = {16, 1, 250, 15, 8, 16};

struct store {
	__u8 address[16];
};
/* Such that their leases' slots, 0 and 1, are among those in which programs look for them. */
static const struct store stores[STORES] = {
	{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 33, 1, 2}},
	{{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 126, 0, 2}},
};

static void key_bytes(__u32 key, __u8 to[256])
{
	memset(to, 'a' + key, 256);
}

/* The last two keys fall into one bucket; one fingerprint is 0, which a slot cannot hold. */
static void key_hash(__u32 key, __u64 hash[2])
{
	hash[0] = 0x1111111111111111ULL * (key + 1);
	hash[1] = (__u64)(key == 3 ? 0 : key + 1) << 32 | (key == 5 ? 4 : key);
}

static struct tenant *tenant_of(__u32 id)
{
	for (int i = 0; i < TENANTS; i++)
		if (tenant_ids[i] == id)
			return put(&tenants, id);
	return NULL;
}

/* `rotating`: tenant 9's packets are signed with the secret that is accepted as well. */
static void make_tenants(bool system_has_secret, bool rotating, __u32 threshold)
{
	for (int i = 0; i < TENANTS; i++) {
		__u32 id = tenant_ids[i];
		bool is_system = id == TENANT_SYSTEM;
		*tenant_of(id) = (struct tenant){
			.id = id,
			.parameter_0 = threshold,
			.burst_ns = 50 * NS_PER_MS,
			.ns_per_request = id == 9 || id == 10 ? 100 * NS_PER_MS : 0,
			.discipline = is_system ? NO_DISCIPLINE : DISCIPLINE_NUMBER,
			.flags = TENANT_MEASURED | (id == 10 ? TENANT_DROP_OVER_RATE : 0),
		};
		if (id && (!is_system || system_has_secret))
			tenant_of(id)->secret[0] = 0x0123456789abcdefULL + id;
		if (id == 9 && rotating)
			tenant_of(id)->also_secret[1] = 0xfedcba9876543210ULL;
	}
	((struct config *)put(&config, 0))->tenants_changed++;
}

static struct config *the_config(void)
{
	return put(&config, 0);
}

static void make_switch(void)
{
	the_config()->switch_id = SWITCH;
	the_config()->epoch = 1005; /* so that few steps pass a multiple of eight */
	((struct bpf_devmap_val *)put(&ports, PORT_IFINDEX))->ifindex = PORT_IFINDEX;
	for (int i = 0; i < STORES; i++)
		memcpy(((struct lease *)put(&leases, i))->store, stores[i].address, 16);
}

/*
 * The tag of the packet that starts at `kv`, under its tenant's secret, or its second one; 0 if it
 * has none.
 */
static __u64 right_tag(const __u8 *kv)
{
	struct work *work = calloc(1, sizeof(*work));
	const struct tenant *tenant =
		tenant_of(op_is_system(kv[40]) ? TENANT_SYSTEM : big_endian(kv + 4, 4));
	__u64 tag = 0;
	if (!work)
		abort();
	memcpy(&work->header, kv, 80);
	work->key_len = work->header.key_len <= KV_MAX_KEY ? work->header.key_len : 0;
	memcpy(work->key, kv + 80, work->key_len);
	if (tenant && (tenant->secret[0] | tenant->secret[1])) {
		bool rotating = tenant->also_secret[0] | tenant->also_secret[1];
		memcpy(work->secret, rotating ? tenant->also_secret : tenant->secret, 16);
		hash_shared(work);
		tag = bpf_be64_to_cpu(tag_of(work));
	}
	free(work);
	return tag;
}

/* An entry as the agent knows it. */
struct entry {
	bool is_there, is_given;
	__u32 tenant, key, lease;
	__u64 *slot;
	struct item *item;
};
static struct entry entries[PLACES];
/* What programs may make an item of, by its place; its number in the ring, plus 1. */
static __u32 blank_in[PLACES];

/* Both ends of a page, so that an item's cells end where the page does. */
static struct item *place_of(__u32 place, __u32 *reference)
{
	__u32 page = place / 2, cell = place & 1 ? PAGE_START_CELLS - 1 : 0;
	*reference = page << 9 | cell;
	return (void *)((struct page *)put(&pages, page))->bytes + cell * CELL_BYTES;
}

static bool insert_entry(__u32 place, __u32 tenant, __u32 key, __u32 lease, __u32 cells)
{
	__u64 hash[2];
	__u32 reference;
	__u8 bytes[256];
	key_hash(key, hash);
	hash[1] ^= hash_salt(tenant);
	__u32 fingerprint = hash[1] >> 32 ?: 1;
	struct bucket *bucket = put(&buckets, (__u32)hash[1] & bucket_mask);
	__u64 *free_slot = NULL;
	/* The agent waits until the program has done. */
	if (*(__u32 *)put(&bucket_locks, (__u32)hash[1] & bucket_mask & (BUCKET_LOCKS - 1)))
		return false;
	for (int i = BUCKET_SLOTS - 1; i >= 0; i--) {
		if (bucket->slot[i] >> 32 == fingerprint)
			return false;
		if (!bucket->slot[i])
			free_slot = &bucket->slot[i];
	}
	__u32 need =
		(sizeof(struct item) + ((key_lens[key] + 7) & ~7) + CELL_BYTES - 1) / CELL_BYTES;
	if (!free_slot || entries[place].is_there || blank_in[place])
		return false;
	struct item *item = place_of(place, &reference);
	item->word = 0;
	item->key_len = key_lens[key];
	item->flags = cells < need ? need : cells;
	item->value_len = 0;
	item->tenant = tenant;
	item->lease = lease;
	item->epoch_ns = kernel.now_ns;
	item->seq = (item->seq + 2) & ~1U;
	memset(bytes, 0, sizeof(bytes));
	key_bytes(key, bytes);
	memset(bytes + key_lens[key], 0, 256 - key_lens[key]);
	memcpy(item + 1, bytes, (key_lens[key] + 7) & ~7);
	*free_slot = (__u64)fingerprint << 32 | reference;
	item->word = ++the_config()->epoch << 1;
	entries[place] = (struct entry){true, false, tenant, key, lease, free_slot, item};
	return true;
}

/* The agent gives the programs cells; all tenants here have one place. */
static void give_blank(__u32 place, __u32 cells)
{
	struct blanks *blanks = put(&probation, 0);
	__u32 reference, at = blanks->end & (BLANKS - 1);
	if (entries[place].is_there || blank_in[place])
		return;
	struct item *item = place_of(place, &reference);
	item->word = 0;
	item->key_len = 0;
	item->value_len = 0;
	item->flags = cells;
	item->seq = (item->seq + 2) & ~1U;
	blanks->blank[at] = (struct blank){reference, 0};
	blank_in[place] = at + 1;
	blanks->end++;
}

/* The bytes that a control half gave. */
static __u8 *record_in(__u32 place)
{
	struct item *item = entries[place].item;
	return (__u8 *)(item + 1) + ((item->key_len + 7) & ~7);
}

/* Likewise of an entry that is a record: of its cells so many are needed. */
static bool give_entry(__u32 place, __u32 tenant, __u32 key, const __u8 *record, __u32 len)
{
	__u32 cells = (sizeof(struct item) + ((key_lens[key] + 7) & ~7) + len + CELL_BYTES - 1) /
		      CELL_BYTES;
	if (!insert_entry(place, tenant, key, 0, cells))
		return false;
	entries[place].is_given = true;
	entries[place].item->lease = NO_LEASE;
	entries[place].item->value_len = len;
	memcpy(record_in(place), record, len);
	return true;
}

static void evict_entry(__u32 place)
{
	if (entries[place].is_there)
		*entries[place].slot = 0;
	entries[place].is_there = false;
}
