/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stand-ins for maps. An array's element comes into being, all zeros, when it is first looked up; a hash
 * map's when the set-up puts it there. Each is an allocation of its own.
 */
#pragma once

#define HOST_CPUS 2
#define HOST_CHAINS 1024
/* Larger elements are cleared between runs, not freed: to allocate them is what costs. */
#define HOST_KEEP_BYTES 65536

struct host_table {
	const void *map;
	__u32 type;
	__u32 key_size;
	__u32 value_size;
	__u32 max_entries;
};

struct host_element {
	struct host_element *next;
	const void *map;
	__u32 cpu;
	__u32 key;
	__u32 size;
	bool used;
	void *value;
};

static struct host_element *host_chains[HOST_CHAINS];
/* The CPU that the program runs on now. */
static __u32 host_cpu;

#define host_table(m)                                                                              \
	((struct host_table){(m), sizeof(*(m)->type) / sizeof(int), sizeof(*(m)->key),             \
			     sizeof(*(m)->value), sizeof(*(m)->max_entries) / sizeof(int)})

static void *host_element(struct host_table table, __u32 key, bool create)
{
	bool is_per_cpu = table.type == BPF_MAP_TYPE_PERCPU_ARRAY;
	__u32 cpu = is_per_cpu ? host_cpu : 0;
	size_t chain = ((size_t)table.map / 8 + key * 31 + cpu) % HOST_CHAINS;
	struct host_element *at = host_chains[chain];
	while (at && (at->map != table.map || at->key != key || at->cpu != cpu))
		at = at->next;
	if (at && (at->used || create)) {
		at->used = true;
		return at->value;
	}
	if (!create)
		return NULL;
	at = calloc(1, sizeof(*at));
	void *value = calloc(1, table.value_size);
	if (!at || !value)
		abort();
	*at = (struct host_element){host_chains[chain], table.map, cpu,  key,
				    table.value_size,   true,      value};
	host_chains[chain] = at;
	return value;
}

/* Larger keys are folded: what shares a number shares an element. */
static __u32 host_index(struct host_table table, const void *key)
{
	__u32 index = 2166136261U;
	if (table.key_size == sizeof(index)) {
		memcpy(&index, key, sizeof(index));
		return index;
	}
	for (__u32 i = 0; i < table.key_size; i++)
		index = (index ^ ((const __u8 *)key)[i]) * 16777619U;
	return index;
}

static void *host_lookup(struct host_table table, const void *key)
{
	bool is_array = table.type == BPF_MAP_TYPE_ARRAY || table.type == BPF_MAP_TYPE_PERCPU_ARRAY;
	__u32 index;
	index = host_index(table, key);
	if (is_array && index >= table.max_entries)
		return NULL;
	return host_element(table, index, is_array);
}

/* The set-up's way in: the element, made if it is not there. */
#define host_put(m, key) host_element(host_table(m), (key), true)

/* Everything as after loading. */
static void host_tables_clear(void)
{
	for (int i = 0; i < HOST_CHAINS; i++) {
		struct host_element **link = &host_chains[i];
		while (*link) {
			struct host_element *at = *link;
			if (at->size >= HOST_KEEP_BYTES) {
				if (at->used)
					memset(at->value, 0, at->size);
				at->used = false;
				link = &at->next;
				continue;
			}
			*link = at->next;
			free(at->value);
			free(at);
		}
	}
}
