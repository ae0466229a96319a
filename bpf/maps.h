/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every table that programs of all disciplines share. All are pinned by name, so that the programs
 * of several objects share them and a new agent finds them again. Sizes that depend on the switch
 * are set when loading.
 *
 * Programs of an earlier build run beside those of this one while an agent is replaced, on the same
 * tables: a layout changes under a new name only. `work_area`, `known_tenants` and `programs`
 * belong to one loading, and are made anew by each.
 */
#pragma once

#include "counters.h"
#include "wire.h"

#define CELL_BYTES 64
/* Cells in which an item may start: 128 items of a 16-byte key and a 128-byte value. */
#define PAGE_START_CELLS 384
/* An item's longest run of cells: header, longest key, longest value that fits one packet. */
#define ITEM_MAX_CELLS 32
#define ITEM_MAX_BYTES (ITEM_MAX_CELLS * CELL_BYTES)
#define PAGE_CELLS (PAGE_START_CELLS + ITEM_MAX_CELLS - 1)
#define PAGE_BYTES (PAGE_CELLS * CELL_BYTES)

#define BUCKET_SLOTS 8
#define MAX_DISCIPLINES 16
#define PROGRAMS_PER_DISCIPLINE 8
/* The number of tenants whose packets are only forwarded. No discipline has it. */
#define NO_DISCIPLINE 15
_Static_assert(NO_DISCIPLINE < MAX_DISCIPLINES, "it has a place of its own in `programs`");
/* Words that a discipline has of each tenant. */
#define PARAMETERS 2
#define MAX_LEASES 1024
#define SKETCH_ROWS 4
#define SKETCH_COLUMNS 32768
#define BLOOM_CELLS 65536
#define BURST_CELLS 8192
#define MAX_TENANTS 4096

/* What the agent tells the programs. Read by every packet, written rarely. */
struct config {
	__u32 switch_id; /* 1..65535 */
	__u32 window; /* number of the statistics window, counted by the agent */
	__u32 sample_mask; /* 2^n - 1: one request in 2^n is counted */
	__u32 share; /* hot keys that each tenant may report in a window, from one CPU */
	__u64 seed; /* scatters what is counted; nobody outside of the switch knows it */
	__u32 source_check; /* of source.h */
	__u32 layout; /* of the tables; the agent refuses those of another */
	__u64 life; /* drawn when the tables were made: others are other memory */
	__u64 tenants_changed; /* how often `tenants` was, counted behind each change */
	__u64 frame_most; /* bytes of the longest frame that all of its links carry; 0: any */
	__u64 sums_later; /* not 0: whoever takes a packet finishes its checksum (udp.h) */
	/* Rule 1: the invalidation counter, on a cache line of its own. Only ever rises. */
	__u64 epoch;
	__u64 unused_too[7];
};
_Static_assert(sizeof(struct config) == 128,
	       "two cache lines; crates/dataplane maps the same struct");

/* key: 0. Written by the agent, `epoch` also by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} config SEC(".maps");

#define TENANT_DROP_OVER_RATE 0x1
#define TENANT_MEASURED 0x2 /* its requests are counted by client and store */
#define TENANT_WRITE_BACK 0x4 /* its keys may be lent to this switch */
/* Of a packet's `work->flags` beside those: its checksum is to be finished by others (udp.h). */
#define WORK_UNFINISHED 0x8000
/* Above the flags: the tenant's place in arrays of MAX_TENANTS. */
#define TENANT_PLACE_SHIFT 16

/*
 * Behind the map's own 56 bytes of an element (link, hash, key) the first word ends their cache
 * line, and the rest is the next one: admitting a packet touches these two.
 */
struct tenant {
	__u32 id; /* again: an element's memory may become another tenant's while it is read */
	__u32 flags;
	__u64 secret[2]; /* SipHash key, as two little-endian words; zero: no secret */
	__u64 also_secret[2]; /* accepted as well while a secret is changed; zero: none */
	__u64 ns_per_request; /* 0: no limit */
	__u64 next_ns; /* when the next request would conform; written by the programs */
	__u32 burst_ns; /* how far ahead of its rate a tenant may run */
	__u32 parameter_0; /* this and parameter_1: what they mean is the discipline's affair */
	__u32 discipline; /* its number */
	__u32 parameter_1;
};
_Static_assert(sizeof(struct tenant) == 72, "crates/dataplane writes the same struct");

#define HASH_SALT 0x9e3779b97f4a7c15ULL

/*
 * Mixed into the key hash before the table is searched: keeps equal hashes of different
 * tenants apart.
 */
INLINE __u64 hash_salt(__u32 tenant)
{
	return tenant * HASH_SALT;
}

/* key: tenant id. Written by the agent. Takes memory for those that there are. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_TENANTS);
	__type(key, __u32);
	__type(value, struct tenant);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} tenants SEC(".maps");

#define KNOWN_TENANTS 2048

/*
 * What a CPU noted of a tenant: a packet of one that is known costs a cache line, and no call of a
 * helper. It counts as long as no tenant has changed.
 */
struct known_tenant {
	__u64 as_of; /* `tenants_changed`, and one more */
	__u32 id;
	__u32 discipline;
	__u64 secret[2];
	__u64 also_secret[2];
	__u32 flags;
	__u32 parameter[PARAMETERS];
	__u32 is_limited;
};
_Static_assert(sizeof(struct known_tenant) == 64, "one cache line");

/*
 * A tenant has two places (admit.h), of which it takes one that is free, or else the first
 * from another.
 */
struct known_tenants {
	struct known_tenant place[KNOWN_TENANTS];
};

/* key: cpu. Written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* begins on a page, and so each place on a line */
	__uint(max_entries, 2); /* set when loading */
	__type(key, __u32);
	__type(value, struct known_tenants);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} known_tenants SEC(".maps");

#define MAX_FLOWS 8192

/* Who asks whom; addresses as in `struct lease`. */
struct flow {
	__u32 tenant;
	__u8 client[16];
	__u8 store[16];
};
_Static_assert(sizeof(struct flow) == 36, "crates/dataplane reads the same struct");

/*
 * Requests counted, one in 64. Written by the programs, emptied by the agent; those that are
 * counted rarely make room for new ones, so that somebody who makes up addresses takes no memory
 * beyond this.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct flow);
	__type(value, __u64);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} traffic SEC(".maps");

/* key: discipline's number * PROGRAMS_PER_DISCIPLINE + step. Written when loading. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, MAX_DISCIPLINES *PROGRAMS_PER_DISCIPLINE);
	__type(key, __u32);
	__type(value, __u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} programs SEC(".maps");

/* key: interface index, of this switch's interfaces. Written when attaching. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} ports SEC(".maps");

/* An interface as people name it, filled up with zeros. */
struct port_name {
	char name[16];
};

/* key: interface index, of the same interfaces. Written when attaching. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct port_name);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} port_names SEC(".maps");

/* key: enum counter. Per CPU; summed by whoever asks. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNT_MAX);
	__type(key, __u32);
	__type(value, __u64);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} counters SEC(".maps");

/*
 * The lookup table: buckets of one cache line. A slot is a 32-bit fingerprint over a 32-bit
 * reference (23 bits of page, 9 of cell); 0 is empty. Written one slot at a time: by the agent, and
 * by programs those that are empty (probation.h). The agent lets an RCU grace period pass before it
 * uses an item's cells again, so whoever found an item here may finish with it.
 */
struct bucket {
	__u64 slot[BUCKET_SLOTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 4096); /* a power of two, set when loading */
	__type(key, __u32);
	__type(value, struct bucket);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} buckets SEC(".maps");

struct page {
	__u8 bytes[PAGE_BYTES];
};

/* key: page index. Items are written by the agent (header, key) and the programs (value). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 79); /* set when loading */
	__type(key, __u32);
	__type(value, struct page);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} pages SEC(".maps");

SWITCH_SIZES;

/*
 * Requests of the items of a page, each at its first cell. Those of an item go on where that of
 * another in its cells ended.
 */
struct page_hits {
	__u32 cell[PAGE_START_CELLS];
};

/* key: cpu * pages + page. Written by the programs, never reset. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * 79); /* set when loading */
	__type(key, __u32);
	__type(value, struct page_hits);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} hits SEC(".maps");

/* A lease of one store (rule 6). The agent names the store, the programs keep the rest. */
struct lease {
	__u8 store[16]; /* its address; IPv4 as ::ffff:a.b.c.d */
	__u64 until_ns; /* CLOCK_BOOTTIME; served only before it */
	__u64 floor; /* epochs up to this one belong to an earlier term */
	__u64 term; /* compared for equality only */
	__u32 lock;
	__u32 unused[5];
};
_Static_assert(sizeof(struct lease) == 64, "one cache line; crates/dataplane maps the same struct");

/* key: lease slot. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_LEASES);
	__type(key, __u32);
	__type(value, struct lease);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} leases SEC(".maps");

/*
 * Count-min sketch, Bloom filter and shares of reports of one CPU. Each cell is tagged with the low
 * bits of the window it was last written in, so that a new window needs no clearing: a cell of
 * another window counts as zero. Before the same bits come again, the agent makes it zero.
 */
struct sketch {
	__u16 row[SKETCH_ROWS][SKETCH_COLUMNS]; /* 4 bits of window over 12 bits of count */
	__u8 bloom[BLOOM_CELLS]; /* the window mod 255, plus 1; 0: never written */
	/*
	 * Hot keys reported, 8 bits of window over 24 bits of count: of each tenant's share, and of
	 * what is for whoever comes first.
	 */
	__u32 reports[MAX_TENANTS];
	__u32 reports_of_all;
	__u32 unused;
	/*
	 * The latest reads of a key: 16 bits of its hash and of a stretch of time's number, the low
	 * 8 of that, 8 of count.
	 */
	__u32 burst[BURST_CELLS];
};

/* key: cpu. Written by the programs, read by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2); /* set when loading */
	__type(key, __u32);
	__type(value, struct sketch);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} sketches SEC(".maps");

/* State of a SipHash. */
struct sip {
	__u64 v0, v1, v2, v3;
};

/* What one packet's way through the programs remembers; a tail call keeps nothing else. */
struct work {
	__u8 l3; /* offsets from the packet's start in bytes */
	__u8 l4;
	__u8 kv;
	__u8 is_ipv6;
	__u8 is_vlan;
	__u8 base; /* of the discipline's steps in `programs` */
	__u8 key_len;
	__u8 op;
	__u16 value_len;
	__u16 payload_len; /* of the UDP payload in bytes */
	__u32 round; /* how often the packet was sent round; 0: it came in from outside */
	__u64 hash[2]; /* host order, salted with the tenant */
	__u64 now_ns; /* coarse CLOCK_BOOTTIME */
	__u64 secret[2]; /* the one that the packet is signed with */
	__u32 parameter[PARAMETERS]; /* of the tenant */
	struct kv_header header; /* as it came in */
	struct clock clock; /* this CPU's; the only thing that the packet before leaves behind */
	__u32 place; /* of the tenant, in arrays of MAX_TENANTS */
	__u32 carry; /* from one step to the next, as the discipline likes */
	__u32 flags; /* of the tenant */
	__u32 out; /* interface that `forward` last sent the packet to */
	__u8 key[256 + 16]; /* padded with zeros to whole words */
	struct sip shared; /* the tag's hash as far as a reply shares it with its request */
	struct sip unnamed; /* and as far as it does not depend on `node` */
	__u8 scratch[512]; /* for whoever needs it within one step */
};
_Static_assert(offsetof(struct work, header) == 64, "what every step reads is one cache line");

/* key: 0. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} work_area SEC(".maps");

INLINE void count_by(enum counter which, __u64 by)
{
	__u32 key = which;
	__u64 *value = bpf_map_lookup_elem(&counters, &key);
	if (value)
		*value += by;
}

INLINE void count(enum counter which)
{
	count_by(which, 1);
}

/* No counter: nothing speaks against it. */
#define NOTHING COUNT_MAX

/* Counts, and is the verdict: `return ends(COUNT_x, XDP_PASS)`. */
INLINE int ends(enum counter which, int verdict)
{
	count(which);
	return verdict;
}

INLINE struct config *get_config(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&config, &zero);
}

INLINE struct work *get_work(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&work_area, &zero);
}
