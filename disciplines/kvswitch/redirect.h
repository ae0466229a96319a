/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A hot key's record: which stores have it, and whose turn it is. */
#pragma once

#include "load.h"

#define TURNS_MAX 64

/*
 * In an item's cells. The first `stores` of `store` are different ones, its home before the others, which are replicas;
 * what comes after them has some of these again. A turn of the home's may always be taken.
 */
struct replicas {
	__u32 turn; /* reads so far */
	__u16 turns; /* 1 to TURNS_MAX */
	__u16 stores; /* 1 to `turns` */
	__u64 valid; /* bit i: the replica of turn i may be read */
	__u16 store[TURNS_MAX]; /* holder ids; the record ends after `turns` of them */
};
_Static_assert(offsetof(struct replicas, store) == 16, "src/record.rs writes the same struct");
