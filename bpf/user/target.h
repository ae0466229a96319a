/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * In place of bpf/target.h: the data plane as native code, for soft switches, simulation, models
 * and fuzzers. Many switches live in one process (struct user_switch); a thread runs packets of one
 * of their CPUs at a time (user_cpu).
 *
 * With USER_EXACT, for sanitizers: every packet is an allocation of exactly its size, elements of
 * tables have poisoned ground between them, and another CPU's packet may run inside a helper call
 * (user_interrupt).
 */
#pragma once

/* The context holds addresses in __u32 there; here they have 64 bits. */
#define xdp_md kernel_xdp_md
#include <linux/bpf.h>
#undef xdp_md
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#undef __always_inline
#define __always_inline inline __attribute__((always_inline, unused))
#define INLINE static __always_inline
#define OUTLINE static __attribute__((noinline, unused))
#define WHOLE OUTLINE

/*
 * Sections say what is a table and what a program; whoever lists them (USER_LIST) reads that in the
 * text. Weak, since every object has the tables that all share: one name is one table, as it is
 * where they are pinned.
 */
#ifndef USER_LIST
#define SEC(name) __attribute__((weak, used))
#endif

#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))
#undef barrier
#ifdef USER_EXACT
/* The other CPU may come in wherever order matters, and in each helper. */
extern void (*user_interrupt)(void);
extern bool user_ring_is_full; /* whatever is in it */
#define user_moment() (user_interrupt ? user_interrupt() : (void)0)
#define meanwhile() user_moment()
#define barrier() meanwhile()
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))
#elif defined(MUTANTS)
/* Wherever order matters, if a test has this CPU stop there (`moment` of struct user_cpu). */
#define user_moment() ((void)0)
#define meanwhile() (user_cpu->moment ? user_cpu->moment(user_cpu->moment_of) : (void)0)
#define barrier() (__atomic_thread_fence(__ATOMIC_ACQ_REL), meanwhile())
#define WRITE_ONCE(x, v) (meanwhile(), *(volatile typeof(x) *)&(x) = (v))
#else
#define user_moment() ((void)0)
#define meanwhile() ((void)0)
#define barrier() __atomic_thread_fence(__ATOMIC_ACQ_REL)
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))
#endif
#define unlikely(x) __builtin_expect(!!(x), 0)
#define opaque(x) asm volatile("" : "+r"(x))
#define touch(p) __builtin_prefetch(p)
#define read_anew() ((void)0)
#define fetch_add(p, v) __sync_fetch_and_add((p), (v))
#define fetch_or(p, v) __sync_fetch_and_or((p), (v))
#define fetch_and(p, v) __sync_fetch_and_and((p), (v))
#define compare_and_swap(p, old, new)                                                              \
	({                                                                                         \
		meanwhile();                                                                       \
		__sync_val_compare_and_swap((p), (old), (new));                                    \
	})

#define NS_PER_MS 1000000ULL
#define CONTINUE (-1)

/* Of mutants.h: the one that somebody chose for this switch. */
#define CHOSEN_MUTANT (user_cpu->at->mutant)

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "only for little-endian hosts"
#endif
#define bpf_htons(x) ((__be16)__builtin_bswap16(x))
#define bpf_ntohs(x) ((__u16)__builtin_bswap16(x))
#define bpf_htonl(x) ((__be32)__builtin_bswap32(x))
#define bpf_ntohl(x) ((__u32)__builtin_bswap32(x))
#define bpf_cpu_to_be64(x) ((__be64)__builtin_bswap64(x))
#define bpf_be64_to_cpu(x) ((__u64)__builtin_bswap64(x))

/* As libbpf spells tables: sizes and types are kept in the types of members. */
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define LIBBPF_PIN_BY_NAME 1

#include "packet.h"
#include "switch.h"
#include "tables.h"
#include "helpers.h"
