/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ends that only packets about values that go round come to: as in bpf/counters.h. */
#pragma once

/* clang-format off */
#define OWN_COUNTERS(X)                                                                                \
	X(36, wake, "answered from the cache, and the answer sent round as well")                      \
	X(37, wake_grant, "grant that reads waited for, sent round as well")                           \
	X(38, hit_round, "answered by a value that goes round")                                        \
	X(39, wait, "read that waits for its value to come round; taken in")                           \
	X(40, wait_full, "read of a value that goes round, with as many waiting as may: forwarded")    \
	X(41, wait_late, "waited for a value for too long, not answered")                              \
	X(42, wait_no_room, "waited for a value that is longer than its request allows, not answered") \
	X(43, round_stale, "value that goes round, invalid by now or replaced: dropped")               \
	X(45, round_lapsed, "value that goes round, its lease or its time to live over: dropped")      \
	X(46, round_lost, "value that went round and was not seen any more: another was made")         \
	X(47, round_parked, "value that nobody waited for: no longer sent round, and kept in the cache") \
	X(56, read_part, "read of a part of a value that does not go round here; a grant was asked for") \
	X(133, wake_parts, "answered with the first part of a value that is kept in parts; the others come round after it") \
	X(134, drop_part_over, "part that came round for the next one, which is gone, invalid, being written or replaced, or whose port is gone: dropped") \
	X(136, wait_gone, "waited for a value whose place another one took, or by a port that is gone: not answered")
/* clang-format on */
