/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tables as the programs see them. A table's variable holds its number, which is the same in
 * every switch.
 */
#pragma once

#define user_table_of(m) (&user_cpu->at->table[*(const unsigned long *)(m)])
#define user_type(m) (sizeof(*(m)->type) / sizeof(int))

/*
 * Bytes from element to element: as in the kernel's arrays; sanitizers have their ground behind it.
 */
#ifdef USER_EXACT
#define user_stride(table, value_size) ((table)->stride)
#else
#define user_stride(table, value_size) (((__u64)(value_size) + 7) & ~7ULL)
#endif

/* `type` and `value_size` are constants where this is inlined. */
INLINE void *user_lookup(const struct user_table *table, __u32 type, __u32 value_size,
			 const void *key)
{
	bool per_cpu = type == BPF_MAP_TYPE_PERCPU_ARRAY;
	(void)value_size;
	if (type == BPF_MAP_TYPE_HASH || type == BPF_MAP_TYPE_LRU_HASH ||
	    type == BPF_MAP_TYPE_DEVMAP_HASH)
		return table->hash ? user_hash_lookup(table->hash, key) : NULL;
	__u64 index = *(const __u32 *)key;
	if (index >= table->max_entries)
		return NULL;
	if (per_cpu)
		index += (__u64)user_cpu->number * table->max_entries;
	return table->base + index * user_stride(table, value_size);
}

#define bpf_map_lookup_elem(m, key)                                                                \
	((typeof(*(m)->value) *)user_lookup(user_table_of(m), user_type(m), sizeof(*(m)->value),   \
					    (key)))

#define bpf_map_update_elem(m, key, value, flags)                                                  \
	user_hash_update(user_table_of(m)->hash, (key), (value), (flags))

#define bpf_map_delete_elem(m, key) user_hash_delete(user_table_of(m)->hash, (key))

/* Declared otherwise here than where the kernel has a kind of table for it. */
#define RING(name, bytes)                                                                          \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_RINGBUF);                                                \
		__uint(max_entries, bytes);                                                        \
		__type(key, __u32);                                                                \
		__type(value, __u32);                                                              \
	} name SEC(".maps")

#define GROUPS(name, max)                                                                          \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);                                          \
		__uint(max_entries, max);                                                          \
		__type(key, __u32);                                                                \
		__type(value, struct user_group);                                                  \
	} name SEC(".maps")

#define CLONES(name, max)                                                                          \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_HASH);                                                   \
		__uint(max_entries, max);                                                          \
		__type(key, struct clone_key);                                                     \
		__type(value, struct user_group);                                                  \
	} name SEC(".maps")

#define bucket_mask (user_cpu->at->mask_of_buckets)
#define page_count (user_cpu->at->count_of_pages)
#define SWITCH_SIZES _Static_assert(true, "the switch has it")

/* An entry of the list of an object's tables. */
#define USER_MAP(m)                                                                                \
	{#m,                                                                                       \
	 &m,                                                                                       \
	 user_type(&m),                                                                            \
	 sizeof(*(m).key),                                                                         \
	 sizeof(*(m).value),                                                                       \
	 sizeof(*(m).max_entries) / sizeof(int)},
