/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ends that only packets about keys with replicas at stores come to: as in bpf/counters.h. */
#pragma once

/* clang-format off */
#define OWN_COUNTERS(X)                                                                                \
	X(70, redirect, "read of a key that has replicas, sent to one of them")                        \
	X(71, redirect_invalid, "read of a key no replica of which has confirmed its copy: sent home") \
	X(72, replica_update, "write of a key that has replicas, sent to one of them as well")         \
	X(73, replica_round, "write of a key that has replicas, sent round as well, to be sent to the next") \
	X(74, replica_confirm, "word of a store that its replica may be read, taken")                  \
	X(75, replica_drop, "word of a store that it has no replica any more, taken")                   \
	X(135, replica_skip, "write of a key that has replicas, not sent to one of them, to which only the kernel knows the way: the next one is sent it")
/* clang-format on */
