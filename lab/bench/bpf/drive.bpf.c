// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Stands before the program under test. A test run repeats on one packet, which the last repeat has
 * turned into a reply: this writes a request for another random key over it and goes on by a tail
 * call. Whatever stands behind, also nothing, it costs the same, so that it can be measured and
 * taken off.
 */
#include "wire.h"

/* Ethernet, IPv4 and UDP, our header, a key of 16 bytes. */
#define FRONT_BYTES 138
#define HEADER_AT 42
#define KEY_AT 122

#define REQUESTS_MAX 65536
#define PICKS 16384

struct drive_config {
	__u64 random; /* state of the generator */
	__u64 salt; /* mixed into every key hash */
	__u32 first; /* keys are first .. first + keys */
	__u32 keys;
	__u32 target; /* index into `targets` */
	__u32 prepared; /* whether the packet gets its tag and checksum from `requests` */
	__u32 picked; /* whether keys are those of `picks`, as often as they stand there */
	/* keys are first .. first << octaves, each doubling as popular as the next; 0: all alike */
	__u32 octaves;
	/* a power of two: key n is the tenant's of number n modulo this; 0: what `front` says */
	__u32 tenants;
	__u8 front[FRONT_BYTES]; /* the request, without hash, key, tag and checksum */
	__u8 unused[2];
};
_Static_assert(sizeof(struct drive_config) == 184, "lab/bench/src/drive.rs writes the same struct");

/* key: 0. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct drive_config);
} configs SEC(".maps");

/* What is right for each key's request. */
struct request {
	__u64 tag;
	__u16 check;
	__u8 unused[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REQUESTS_MAX);
	__type(key, __u32);
	__type(value, struct request);
} requests SEC(".maps");

struct picks {
	__u16 key[PICKS]; /* less `first` */
};

/* key: 0. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct picks);
} picks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

/* As in lab/bench/src/drive.rs. */
INLINE __u64 scramble(__u64 x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

/*
 * As Zipf with an exponent of 1 has it, but for steps at powers of two: what follows after `first`.
 */
INLINE __u64 in_octaves(const struct drive_config *config, __u64 drawn)
{
	__u64 at = drawn * config->octaves;
	__u64 from = (__u64)config->first << (at >> 32 & 15);
	return from - config->first + (from * (__u32)at >> 32);
}

INLINE __u64 pick(const struct drive_config *config, __u64 drawn)
{
	__u32 zero = 0;
	if (config->octaves)
		return in_octaves(config, drawn);
	struct picks *picked = config->picked ? bpf_map_lookup_elem(&picks, &zero) : NULL;
	return picked ? picked->key[drawn & (PICKS - 1)] : drawn * config->keys >> 32;
}

SEC("xdp.frags")
int drive(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct drive_config *config = bpf_map_lookup_elem(&configs, &zero);
	__u8 *data = (void *)(long)ctx->data;
	if (!config || data + FRONT_BYTES > (__u8 *)(long)ctx->data_end)
		return XDP_ABORTED;
	config->random = config->random * 6364136223846793005ULL + 1442695040888963407ULL;
	__u64 number = config->first + pick(config, config->random >> 32);
	__builtin_memcpy(data, config->front, FRONT_BYTES);
	struct kv_header *kv = (void *)(data + HEADER_AT);
	__u64 high = scramble(number ^ config->salt), low = scramble(high + number);
	kv->key_hash[0] = bpf_cpu_to_be64(high);
	kv->key_hash[1] = bpf_cpu_to_be64(low);
	__u64 *key = (void *)(data + KEY_AT);
	key[0] = number;
	key[1] = ~number;
	if (config->tenants)
		kv->tenant = bpf_htonl(scramble((number & (config->tenants - 1)) + 1) >> 32);
	if (config->prepared) {
		__u32 index = number;
		const struct request *request = bpf_map_lookup_elem(&requests, &index);
		if (!request)
			return XDP_ABORTED;
		kv->tag = request->tag;
		((struct udphdr *)kv - 1)->check = request->check;
	}
	bpf_tail_call(ctx, &targets, config->target);
	return XDP_ABORTED;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
