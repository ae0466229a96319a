/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A switch in this process: its tables, its programs, the CPUs that run them. crates/dataplane has
 * the same structs.
 */
#pragma once

#define USER_TABLES 64
#define USER_PROGRAMS 128
#define USER_CPUS 64
#define USER_GROUP_PORTS 64

struct user_hash;

struct clock {
	__u64 unused;
};

/*
 * An array's elements lie at `base`, `stride` bytes apart, those of one CPU after those of another.
 */
struct user_table {
	__u8 *base;
	struct user_hash *hash; /* instead, for tables with keys */
	__u64 stride;
	__u32 max_entries; /* 0: this switch has no such table */
	__u32 type; /* BPF_MAP_TYPE_* */
	__u32 key_size;
	__u32 value_size;
};

/*
 * A group of ports, in the place of a map of ports. Written whole by the agent while no
 * program runs.
 */
struct user_group {
	int (*egress)(struct xdp_md *ctx); /* runs on each copy; NULL: none does */
	__u32 count; /* 0: there is no such group */
	__u32 comes_back; /* copies go to the port that the packet came in by, too */
	__u32 ports[USER_GROUP_PORTS];
};

struct user_switch {
	struct user_table table[USER_TABLES];
	int (*program[USER_PROGRAMS])(struct xdp_md *ctx); /* as `programs` of maps.h */
	int (*entry)(struct xdp_md *ctx);
	int (*comes_back)(struct xdp_md *ctx);
	/* Answers as bpf_fib_lookup does. */
	long (*fib)(void *context, struct bpf_fib_lookup *fib);
	void *fib_context;
	struct user_cpu *cpu[USER_CPUS];
	__u32 cpus;
	__u32 mask_of_buckets;
	__u32 count_of_pages;
	__u32 mutant; /* of mutants.h; only what was compiled for tests looks at it */
};

/* Who runs packets: one thread at a time. */
struct user_cpu {
	struct user_switch *at;
	__u64 runs; /* odd while a program runs */
	__u64 now_ns; /* what CLOCK_BOOTTIME shows */
	__u64 late_ns; /* by which the coarse clock is behind it */
	__u64 random;
	const struct user_group *group; /* where the last redirect leads; NULL: to `port` */
	__u32 port;
	__u32 number;
	/* For tests: called where another CPU may come in; only what was compiled for them does. */
	void (*moment)(void *moment_of);
	void *moment_of;
};

extern _Thread_local struct user_cpu *user_cpu;

/* What an object consists of; the build lists it. */
struct user_map {
	const char *name;
	void *map;
	__u32 type;
	__u32 key_size;
	__u32 value_size;
	__u32 max_entries;
};

struct user_program {
	const char *name;
	int (*run)(struct xdp_md *ctx);
};

struct user_unit {
	const struct user_map *maps;
	const struct user_program *programs;
	__u32 map_count;
	__u32 program_count;
};

/* A table of another size than the C says. */
struct user_size {
	const char *name;
	__u32 entries;
};

/*
 * Makes a switch with the tables of these objects, all zeros; NULL: too many tables, or no memory.
 */
struct user_switch *user_switch_new(const struct user_unit *const *units, __u32 count,
				    const struct user_size *sizes, __u32 size_count, __u32 cpus);
void user_switch_free(struct user_switch *at);
/* Makes all tables empty again; entries of tables without keys are zeros. */
void user_switch_clear(struct user_switch *at);
/* NULL: there is none of that name. */
struct user_table *user_table_named(struct user_switch *at, const char *name);
/* Runs a program on a packet; returns its verdict. */
int user_run(struct user_cpu *cpu, struct xdp_md *ctx, int (*program)(struct xdp_md *ctx));
/* Returns once every run that began before has ended. */
void user_quiesce(struct user_switch *at);

/*
 * Tables with keys. They behave as the kernel's: a change makes a new element, whose memory may be
 * another's next.
 */
void *user_hash_lookup(struct user_hash *hash, const void *key);
long user_hash_update(struct user_hash *hash, const void *key, const void *value, __u64 flags);
long user_hash_delete(struct user_hash *hash, const void *key);
/* The element at a place; false if there is none. `*end`: there are no places from here on. */
bool user_hash_at(struct user_hash *hash, __u32 place, void **key, void **value, bool *end);

/* The ring that programs write to and the agent empties. */
long user_ring_output(struct user_table *ring, const void *data, __u32 size);
/* Takes the oldest record; 0: there is none. Longer ones than `room` are cut off. */
__u32 user_ring_take(struct user_table *ring, void *to, __u32 room);
