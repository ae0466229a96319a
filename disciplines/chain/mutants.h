/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ways to break the rules of docs/coordination.md: as in bpf/mutants.h. */
#pragma once

/* clang-format off */
#define OWN_MUTANTS(X)                                                                                 \
	X(32, order_any_number, 1, "what members of another arrangement say counts")                   \
	X(33, order_any_sequence, 2, "a version is applied on any other")                              \
	X(34, order_known_again, 3, "the head applies a request again that it knows")                  \
	X(35, order_noted_by_head, 3, "only the head notes whose a version is")                        \
	X(50, order_locks_nothing, 3, "a CPU changes what another one has locked")                     \
	X(51, order_new_unlocked, 3, "a key without an item is not looked for again under the lock")   \
	X(36, order_refusal_unnoted, 4, "the head does not note what it refuses")                      \
	X(37, order_refused_early, 4, "a refusal overtakes the version that it saw")                   \
	X(38, order_refused_by_head, 4, "the head answers what it refuses")                            \
	X(39, order_reads_unleased, 5, "a member answers reads without a lease")                       \
	X(40, order_holds_nothing, 6, "a member goes on although one that was removed may answer")     \
	X(41, order_holds_half, 6, "a member counts half of each lease that it granted")               \
	X(49, order_grants_to_slots, 6, "a lease is over once another is heard that has the slot now") \
	X(42, order_writes_held, 6, "the head takes writes while it holds")                            \
	X(43, order_clean_at_once, 7, "a version is clean where it is applied")                        \
	X(44, order_reads_dirty, 7, "any member answers with what it has")                             \
	X(45, order_window_open, 8, "the head takes versions for which the ring has no room")          \
	X(46, order_reads_unfilled, 9, "a tail answers reads of what is not filled yet")               \
	X(47, order_copies_over, 10, "a copy is written over what a tail has")                         \
	X(48, order_marks_nothing, 10, "nobody knows which versions a tail is copied and which it is passed")
/* clang-format on */
