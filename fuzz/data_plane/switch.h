/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One switch of two CPUs (bpf/user), and what the kernel around it is to do. */
#pragma once

#define CPUS 2
#define DISCIPLINE_NUMBER 3
#define BUCKETS 64
#define PAGES 3

struct kernel {
	__u64 now_ns;
	long fib_code; /* BPF_FIB_LKUP_RET_*, or negative */
	__u32 fib_ifindex;
	bool ring_is_full;
};
static struct kernel kernel;
static struct user_switch *the_switch;

static long look_up(void *context, struct bpf_fib_lookup *fib)
{
	(void)context;
	if (kernel.fib_code)
		return kernel.fib_code;
	memset(fib->smac, 0xa1, 6);
	memset(fib->dmac, 0xb2, 6);
	fib->ifindex = kernel.fib_ifindex;
	return 0;
}

/* Beside a run a table is looked at as the first CPU does. */
static void switch_new(int (*const *steps)(struct xdp_md *ctx), __u32 step_count)
{
	static const struct user_map maps[] = {
#define TABLE(name) USER_MAP(name)
#include TABLES
	};
	static const struct user_unit unit = {maps, NULL, sizeof(maps) / sizeof(maps[0]), 0};
	static const struct user_unit *const units[] = {&unit};
	static const struct user_size sizes[] = {
		{"buckets", BUCKETS},
		{"pages", PAGES},
		{"hits", PAGES * CPUS},
		{"sketches", CPUS},
	};
	the_switch = user_switch_new(units, 1, sizes, sizeof(sizes) / sizeof(sizes[0]), CPUS);
	if (!the_switch)
		abort();
	user_cpu = the_switch->cpu[0];
	the_switch->mask_of_buckets = BUCKETS - 1;
	the_switch->count_of_pages = PAGES;
	the_switch->fib = look_up;
	for (__u32 step = 0; step < step_count; step++)
		the_switch->program[DISCIPLINE_NUMBER * PROGRAMS_PER_DISCIPLINE + step] =
			steps[step];
}

static int switch_run(__u32 cpu, struct xdp_md *ctx, int (*program)(struct xdp_md *ctx))
{
	the_switch->cpu[cpu]->now_ns = kernel.now_ns;
	user_ring_is_full = kernel.ring_is_full;
	return user_run(the_switch->cpu[cpu], ctx, program);
}

/* The set-up's way in: the element, made if it is not there. */
static void *put_element(struct user_table *table, __u32 type, __u32 value_size, __u32 key)
{
	void *found = user_lookup(table, type, value_size, &key);
	if (found)
		return found;
	void *zeros = calloc(1, value_size);
	if (!zeros || user_hash_update(table->hash, &key, zeros, 0))
		abort();
	free(zeros);
	return user_lookup(table, type, value_size, &key);
}
#define put(m, key) put_element(user_table_of(m), user_type(m), sizeof(*(m)->value), (key))
