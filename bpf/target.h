/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Everything that only the kernel can do stands behind this header: types, helpers, atomics. The
 * rest of bpf/ and disciplines/ compiles for the host as well, with another file in this
 * one's place.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <stddef.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* libbpf's own is no constant to clang 15. */
#undef offsetof
#define offsetof(type, member) __builtin_offsetof(type, member)

#define INLINE static __always_inline
/* A function of its own in the program: keeps the caller's code and the verifier's work small. */
#define OUTLINE static __noinline __attribute__((unused))

/*
 * Likewise, and the verifier looks at it once, whoever calls it. So it knows nothing of what it is
 * given: numbers, the context, and structs without pointers, which may be NULL.
 */
#define WHOLE __noinline __attribute__((unused))

/* Marks a load or store of shared memory that the compiler must do once and as a whole. */
#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))
/*
 * Keeps loads in order, and stores. x86 does by itself, so the compiler's order is enough;
 * elsewhere an atomic whose result is used is a full barrier in every JIT, wherever its word lies.
 */
#undef barrier
#if defined(__TARGET_ARCH_x86)
#define barrier() asm volatile("" ::: "memory")
#else
#define barrier()                                                                                  \
	({                                                                                         \
		__u64 word_ = 0;                                                                   \
		__u64 was_ = __sync_fetch_and_add(&word_, 1);                                      \
		asm volatile("" : : "r"(was_) : "memory");                                         \
	})
#endif
#ifndef unlikely /* libbpf has it from 1.4 on */
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif
/* Hides a value's origin from the compiler, so that the bound below it stays in the program. */
#define opaque(x) asm volatile("" : "+r"(x))

/*
 * From here on memory is read anew. What a loop found out about a number that it had read is no
 * longer known, and so the verifier need not follow each way out of the loop into what comes after.
 */
#define read_anew() asm volatile("" ::: "memory")

/*
 * Asks for the cache line at `p` ahead of its use; BPF has no prefetch, but nobody waits for
 * this load.
 */
#define touch(p) ((void)READ_ONCE(*(const __u8 *)(p)))

/*
 * A tail call to a place that is known when compiling: a jump, where any other goes through a
 * guarded indirect one.
 */
#define tail_call_to(ctx, map, place) bpf_tail_call_static((ctx), (map), (place))

/* Others may change what was read so far; a test lets them. */
#define meanwhile() ((void)0)

#define fetch_add(p, v) __sync_fetch_and_add((p), (v))
#define fetch_or(p, v) __sync_fetch_and_or((p), (v))
#define fetch_and(p, v) __sync_fetch_and_and((p), (v))
#define compare_and_swap(p, old, new) __sync_val_compare_and_swap((p), (old), (new))

/*
 * Tables of kinds that another target makes otherwise. A ring has records, and neither keys
 * nor values.
 */
#define RING(name, bytes)                                                                          \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_RINGBUF);                                                \
		__uint(max_entries, bytes);                                                        \
		__uint(pinning, LIBBPF_PIN_BY_NAME);                                               \
	} name SEC(".maps")

/* Groups of ports. key: group. Written by the agent. */
#define GROUPS(name, max)                                                                          \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);                                          \
		__uint(max_entries, max);                                                          \
		__type(key, __u32);                                                                \
		__uint(pinning, LIBBPF_PIN_BY_NAME);                                               \
		__array(                                                                           \
			values, struct {                                                           \
				__uint(type, BPF_MAP_TYPE_DEVMAP);                                 \
				__uint(max_entries, GROUP_PORTS);                                  \
				__type(key, __u32);                                                \
				__type(value, struct bpf_devmap_val);                              \
			});                                                                        \
	} name SEC(".maps")
#define lookup_group(groups, index) bpf_map_lookup_elem((groups), (index))
#define redirect_to_group(group)                                                                   \
	bpf_redirect_map((group), 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS)

/* Pairs of ports, in maps of just that size: a broadcast looks at every place. */
#define CLONES(name, max)                                                                          \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);                                           \
		__uint(max_entries, max);                                                          \
		__type(key, struct clone_key);                                                     \
		__uint(pinning, LIBBPF_PIN_BY_NAME);                                               \
		__array(                                                                           \
			values, struct {                                                           \
				__uint(type, BPF_MAP_TYPE_DEVMAP);                                 \
				__uint(max_entries, 2);                                            \
				__type(key, __u32);                                                \
				__type(value, struct bpf_devmap_val);                              \
			});                                                                        \
	} name SEC(".maps")
#define redirect_to_pair(pair) bpf_redirect_map((pair), 0, BPF_F_BROADCAST)

/*
 * Set when loading: slots are found by masking. In a section of its own, beside a discipline's
 * constants.
 */
struct switch_sizes {
	__u32 mask_of_buckets;
	__u32 count_of_pages;
};
#define SWITCH_SIZES                                                                               \
	const volatile struct switch_sizes switch_sizes SEC(".rodata.switch") = {4095, 79}
#define bucket_mask (switch_sizes.mask_of_buckets)
#define page_count (switch_sizes.count_of_pages)

/*
 * CLOCK_BOOTTIME, which goes on while the machine is suspended: no lease and no life lasts longer
 * for that. Read once in a tick of the kernel's on each CPU, since all clocks cost as much as a
 * lookup, and the tick's number is a word of memory. A tick comes before any device is back from a
 * suspension. What is read is behind the clock by a tick at most, or by some where the processor
 * that counts them is held up (CLOCK_LATE_NS).
 */
struct clock {
	__u64 tick;
	__u64 now_ns;
};

INLINE __u64 clock_ns(struct clock *clock)
{
	__u64 tick = bpf_jiffies64();
	if (clock->tick != tick) {
		clock->now_ns = bpf_ktime_get_boot_ns();
		clock->tick = tick;
	}
	return clock->now_ns;
}

/* The same to the nanosecond, at the cost of a lookup. */
INLINE __u64 fine_clock_ns(void)
{
	return bpf_ktime_get_boot_ns();
}

#define NS_PER_MS 1000000ULL

/* No verdict yet: the caller goes on. Every other return value of a step is an XDP verdict. */
#define CONTINUE (-1)
