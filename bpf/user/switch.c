// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What of a switch in user space is not inlined into its programs. */
#include <target.h>

#include <sys/mman.h>

#ifdef USER_EXACT
#include <sanitizer/asan_interface.h>
#define USER_GROUND 64
void (*user_interrupt)(void);
bool user_ring_is_full;
#else
#define USER_GROUND 0
#endif

_Thread_local struct user_cpu *user_cpu;

static void pause_a_little(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static void lock(__u32 *word)
{
	while (__atomic_exchange_n(word, 1, __ATOMIC_ACQUIRE))
		pause_a_little();
}

static void unlock(__u32 *word)
{
	__atomic_store_n(word, 0, __ATOMIC_RELEASE);
}

/* Zeros that take no memory until they are written. */
static void *zeros(size_t bytes)
{
	void *at = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

static __u64 padded(__u64 bytes)
{
	return (bytes + 7) & ~7ULL;
}

/* Sanitizers see whoever leaves his element, of which `used` bytes are his. */
static void poison(__u8 *first, __u64 elements, __u64 stride, __u64 used)
{
#ifdef USER_EXACT
	for (__u64 i = 0; i < elements; i++)
		__asan_poison_memory_region(first + i * stride + used, stride - used);
#else
	(void)first, (void)elements, (void)stride, (void)used;
#endif
}

/* ---- tables with keys */

/* An element: link and state, the key, the value; places count from 1. */
struct element {
	__u32 next;
	__u8 is_used;
	__u8 is_young; /* looked up since the last search for one to make room */
};

struct user_hash {
	__u8 *elements;
	__u32 *heads;
	__u64 stride;
	__u64 bytes;
	__u32 key_size;
	__u32 value_size;
	__u32 max_entries;
	__u32 mask;
	__u32 count;
	__u32 touched; /* places from here on were never used */
	__u32 free; /* the first of the others that are not */
	__u32 hand;
	__u32 changes;
	__u32 lock;
	bool makes_room; /* takes the place of one that was not looked up for long */
};

/* A change needs a place beside the one that it replaces. */
#define SPARE_PLACES 1

static struct element *element_at(const struct user_hash *hash, __u32 place)
{
	return (struct element *)(hash->elements + (place - 1) * hash->stride);
}

static void *key_of(struct element *element)
{
	return element + 1;
}

static void *value_in(const struct user_hash *hash, struct element *element)
{
	return (__u8 *)(element + 1) + padded(hash->key_size);
}

static __u32 head_of(const struct user_hash *hash, const void *key)
{
	__u64 mixed = 0x9e3779b97f4a7c15ULL;
	__u32 at = 0, word;
	for (; at + 4 <= hash->key_size; at += 4) {
		memcpy(&word, (const __u8 *)key + at, 4);
		mixed = (mixed ^ word) * 0xff51afd7ed558ccdULL;
		mixed ^= mixed >> 32;
	}
	for (; at < hash->key_size; at++)
		mixed = (mixed ^ ((const __u8 *)key)[at]) * 0x100000001b3ULL;
	return (mixed ^ mixed >> 29) & hash->mask;
}

static struct user_hash *hash_new(const struct user_map *map, __u32 entries)
{
	struct user_hash *hash = calloc(1, sizeof(*hash));
	__u32 heads = 1;
	if (!hash)
		return NULL;
	while (heads < entries)
		heads *= 2;
	hash->key_size = map->key_size;
	hash->value_size = map->value_size;
	hash->max_entries = entries;
	hash->mask = heads - 1;
	hash->makes_room = map->type == BPF_MAP_TYPE_LRU_HASH;
	__u64 bytes = sizeof(struct element) + padded(map->key_size) + padded(map->value_size);
	hash->stride = bytes + USER_GROUND;
	hash->bytes = (entries + SPARE_PLACES) * hash->stride;
	hash->elements = zeros(hash->bytes);
	hash->heads = zeros(heads * sizeof(__u32));
	if (hash->elements && hash->heads) {
		poison(hash->elements, entries + SPARE_PLACES, hash->stride, bytes);
		return hash;
	}
	free(hash);
	return NULL;
}

static void hash_clear(struct user_hash *hash)
{
	madvise(hash->elements, hash->bytes, MADV_DONTNEED);
	madvise(hash->heads, (hash->mask + 1) * sizeof(__u32), MADV_DONTNEED);
	hash->count = hash->touched = hash->free = hash->hand = 0;
}

static void hash_free(struct user_hash *hash)
{
	munmap(hash->elements, hash->bytes);
	munmap(hash->heads, (hash->mask + 1) * sizeof(__u32));
	free(hash);
}

static struct element *find(const struct user_hash *hash, const void *key)
{
	__u32 place = __atomic_load_n(&hash->heads[head_of(hash, key)], __ATOMIC_ACQUIRE);
	/*
	 * A place that is used again while this looks may lead into another list: bounded all
	 * the same.
	 */
	for (__u32 steps = 0; place && steps <= hash->max_entries; steps++) {
		struct element *element = element_at(hash, place);
		if (__atomic_load_n(&element->is_used, __ATOMIC_ACQUIRE) &&
		    !memcmp(key_of(element), key, hash->key_size))
			return element;
		place = __atomic_load_n(&element->next, __ATOMIC_ACQUIRE);
	}
	return NULL;
}

void *user_hash_lookup(struct user_hash *hash, const void *key)
{
	for (;;) {
		__u32 changes = __atomic_load_n(&hash->changes, __ATOMIC_ACQUIRE);
		struct element *element = find(hash, key);
		if (element) {
			if (hash->makes_room && !element->is_young)
				element->is_young = 1;
			return value_in(hash, element);
		}
		if (__atomic_load_n(&hash->changes, __ATOMIC_ACQUIRE) == changes)
			return NULL;
	}
}

/* Takes an element out of its list and gives its place back. */
static void unlink_element(struct user_hash *hash, struct element *element)
{
	__u32 *link = &hash->heads[head_of(hash, key_of(element))];
	while (*link && element_at(hash, *link) != element)
		link = &element_at(hash, *link)->next;
	__u32 place = *link;
	__atomic_store_n(&element->is_used, 0, __ATOMIC_RELEASE);
	__atomic_store_n(link, element->next, __ATOMIC_RELEASE);
	__atomic_fetch_add(&hash->changes, 1, __ATOMIC_ACQ_REL);
	element->next = hash->free;
	hash->free = place;
	hash->count--;
}

static void make_room(struct user_hash *hash)
{
	for (;;) {
		hash->hand = hash->hand % hash->touched + 1;
		struct element *element = element_at(hash, hash->hand);
		if (element->is_used && !element->is_young) {
			unlink_element(hash, element);
			return;
		}
		element->is_young = 0;
	}
}

static __u32 take_place(struct user_hash *hash)
{
	__u32 place = hash->free;
	if (place)
		hash->free = element_at(hash, place)->next;
	else
		place = ++hash->touched;
	return place;
}

long user_hash_update(struct user_hash *hash, const void *key, const void *value, __u64 flags)
{
	long result = 0;
	if (!hash)
		return -ENOENT;
	lock(&hash->lock);
	struct element *before = find(hash, key);
	if (before && flags == BPF_NOEXIST) {
		result = -EEXIST;
	} else if (!before && flags == BPF_EXIST) {
		result = -ENOENT;
	} else {
		if (!before && hash->count == hash->max_entries && hash->makes_room)
			make_room(hash);
		if (!before && hash->count == hash->max_entries) {
			result = -E2BIG;
		} else {
			__u32 place = take_place(hash);
			struct element *element = element_at(hash, place);
			__u32 *head = &hash->heads[head_of(hash, key)];
			memcpy(key_of(element), key, hash->key_size);
			memcpy(value_in(hash, element), value, hash->value_size);
			element->next = *head;
			element->is_young = 0;
			__atomic_store_n(&element->is_used, 1, __ATOMIC_RELEASE);
			__atomic_store_n(head, place, __ATOMIC_RELEASE);
			hash->count++;
			if (before)
				unlink_element(hash, before);
		}
	}
	unlock(&hash->lock);
	return result;
}

long user_hash_delete(struct user_hash *hash, const void *key)
{
	if (!hash)
		return -ENOENT;
	lock(&hash->lock);
	struct element *element = find(hash, key);
	if (element)
		unlink_element(hash, element);
	unlock(&hash->lock);
	return element ? 0 : -ENOENT;
}

bool user_hash_at(struct user_hash *hash, __u32 place, void **key, void **value, bool *end)
{
	*end = place >= hash->touched;
	if (*end)
		return false;
	struct element *element = element_at(hash, place + 1);
	*key = key_of(element);
	*value = value_in(hash, element);
	return element->is_used;
}

/* ---- the ring */

struct ring {
	__u64 head; /* bytes written */
	__u64 tail; /* bytes taken */
	__u32 lock;
	__u32 unused;
	__u8 bytes[];
};

#define RECORD_HEADER 8

static void ring_copy(struct ring *ring, __u32 size, __u64 at, void *bytes, __u32 len, bool in)
{
	for (__u32 done = 0; done < len;) {
		__u32 from = (at + done) % size, part = len - done;
		if (part > size - from)
			part = size - from;
		if (in)
			memcpy(ring->bytes + from, (__u8 *)bytes + done, part);
		else
			memcpy((__u8 *)bytes + done, ring->bytes + from, part);
		done += part;
	}
}

long user_ring_output(struct user_table *table, const void *data, __u32 size)
{
	struct ring *ring = (struct ring *)table->base;
	__u64 need = RECORD_HEADER + padded(size), header = size;
	if (!ring)
		return -EINVAL;
#ifdef USER_EXACT
	if (user_ring_is_full)
		return -EAGAIN;
#endif
	lock(&ring->lock);
	bool fits = ring->head - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) + need <=
		    table->max_entries;
	if (fits) {
		__u64 at = ring->head;
		ring_copy(ring, table->max_entries, at, &header, RECORD_HEADER, true);
		ring_copy(ring, table->max_entries, at + RECORD_HEADER, (void *)data, size, true);
		__atomic_store_n(&ring->head, at + need, __ATOMIC_RELEASE);
	}
	unlock(&ring->lock);
	return fits ? 0 : -EAGAIN;
}

__u32 user_ring_take(struct user_table *table, void *to, __u32 room)
{
	struct ring *ring = (struct ring *)table->base;
	__u64 size;
	if (!ring || ring->tail == __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE))
		return 0;
	ring_copy(ring, table->max_entries, ring->tail, &size, RECORD_HEADER, false);
	__u32 len = size < room ? size : room;
	ring_copy(ring, table->max_entries, ring->tail + RECORD_HEADER, to, len, false);
	__atomic_store_n(&ring->tail, ring->tail + RECORD_HEADER + padded(size), __ATOMIC_RELEASE);
	return len;
}

/* ---- switches */

/*
 * Names of the tables that any switch has had so far; a table's place is its number. The first is
 * nobody's.
 */
static const char *names[USER_TABLES];
static __u32 names_lock;

static __u32 number_of(const char *name, bool make)
{
	__u32 number;
	for (number = 1; number < USER_TABLES && names[number]; number++)
		if (!strcmp(names[number], name))
			return number;
	if (!make || number == USER_TABLES)
		return 0;
	names[number] = name;
	return number;
}

static __u32 entries_of(const struct user_map *map, const struct user_size *sizes, __u32 count)
{
	for (__u32 i = 0; i < count; i++)
		if (!strcmp(sizes[i].name, map->name))
			return sizes[i].entries;
	return map->max_entries;
}

static bool has_keys(__u32 type)
{
	return type == BPF_MAP_TYPE_HASH || type == BPF_MAP_TYPE_LRU_HASH ||
	       type == BPF_MAP_TYPE_DEVMAP_HASH;
}

static __u64 table_bytes(const struct user_switch *at, const struct user_table *table)
{
	__u64 cpus = table->type == BPF_MAP_TYPE_PERCPU_ARRAY ? at->cpus : 1;
	if (table->type == BPF_MAP_TYPE_RINGBUF)
		return sizeof(struct ring) + table->max_entries;
	return table->max_entries * table->stride * cpus;
}

static bool table_new(struct user_switch *at, struct user_table *table, const struct user_map *map,
		      __u32 entries)
{
	*table = (struct user_table){
		.type = map->type,
		.key_size = map->key_size,
		.value_size = map->value_size,
		.max_entries = entries,
		.stride = padded(map->value_size) + USER_GROUND,
	};
	if (has_keys(map->type)) {
		table->hash = hash_new(map, entries);
		return table->hash != NULL;
	}
	table->base = zeros(table_bytes(at, table));
	if (table->base && map->type != BPF_MAP_TYPE_RINGBUF)
		poison(table->base, table_bytes(at, table) / table->stride, table->stride,
		       table->value_size);
	return table->base != NULL;
}

struct user_switch *user_switch_new(const struct user_unit *const *units, __u32 count,
				    const struct user_size *sizes, __u32 size_count, __u32 cpus)
{
	struct user_switch *at = calloc(1, sizeof(*at));
	bool made = at && cpus && cpus <= USER_CPUS;
	if (at)
		at->cpus = cpus;
	lock(&names_lock);
	for (__u32 u = 0; made && u < count; u++) {
		for (__u32 m = 0; made && m < units[u]->map_count; m++) {
			const struct user_map *map = &units[u]->maps[m];
			__u32 number = number_of(map->name, true);
			made = number != 0;
			*(unsigned long *)map->map = number;
			if (made && !at->table[number].max_entries)
				made = table_new(at, &at->table[number], map,
						 entries_of(map, sizes, size_count));
		}
	}
	unlock(&names_lock);
	for (__u32 i = 0; made && i < cpus; i++) {
		at->cpu[i] = aligned_alloc(64, (sizeof(*at->cpu[i]) + 63) & ~63UL);
		made = at->cpu[i] != NULL;
		if (made)
			*at->cpu[i] = (struct user_cpu){.at = at, .number = i, .random = i + 1};
	}
	if (made)
		return at;
	user_switch_free(at);
	return NULL;
}

void user_switch_free(struct user_switch *at)
{
	if (!at)
		return;
	for (__u32 i = 0; i < USER_TABLES; i++) {
		struct user_table *table = &at->table[i];
		if (table->hash)
			hash_free(table->hash);
		if (table->base)
			munmap(table->base, table_bytes(at, table));
	}
	for (__u32 i = 0; i < USER_CPUS; i++)
		free(at->cpu[i]);
	free(at);
}

void user_switch_clear(struct user_switch *at)
{
	for (__u32 i = 0; i < USER_TABLES; i++) {
		struct user_table *table = &at->table[i];
		if (table->hash)
			hash_clear(table->hash);
		if (table->base) /* the memory of what is zero goes back */
			madvise(table->base, table_bytes(at, table), MADV_DONTNEED);
	}
}

struct user_table *user_table_named(struct user_switch *at, const char *name)
{
	lock(&names_lock);
	__u32 number = number_of(name, false);
	unlock(&names_lock);
	return number && at->table[number].max_entries ? &at->table[number] : NULL;
}

int user_run(struct user_cpu *cpu, struct xdp_md *ctx, int (*program)(struct xdp_md *ctx))
{
	struct user_cpu *before = user_cpu;
	user_cpu = cpu;
	__atomic_fetch_add(&cpu->runs, 1, __ATOMIC_SEQ_CST);
	int verdict = program(ctx);
	__atomic_fetch_add(&cpu->runs, 1, __ATOMIC_RELEASE);
	user_cpu = before;
	return verdict;
}

void user_quiesce(struct user_switch *at)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (__u32 i = 0; i < at->cpus; i++) {
		__u64 runs = __atomic_load_n(&at->cpu[i]->runs, __ATOMIC_ACQUIRE);
		while ((runs & 1) && __atomic_load_n(&at->cpu[i]->runs, __ATOMIC_ACQUIRE) == runs)
			pause_a_little();
	}
}
