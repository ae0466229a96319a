/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ways to break the rules of docs/coherence.md (order_...: of docs/coordination.md), for tests that
 * must notice: `if (MUTANT(name) || right)`. Nothing is left of them in a program for the kernel. A
 * user-space build with -DMUTANTS defines CHOSEN_MUTANT, an expression for the one that is in
 * force, 0 for none. This list is the only one: name, rule, what is broken.
 */
#pragma once

/* clang-format off */
#define MUTANT_LIST(X)                                                                                  \
	X(epoch_repeats, 1, "the counter goes back, so that numbers come again")                        \
	X(epoch_after_lookup, 1, "an epoch is taken after the table was searched")                      \
	X(entry_epoch_falls, 1, "an entry takes an epoch below the one that it has")                    \
	X(probation_old_epoch, 1, "an item on probation has an epoch from before it could be found")     \
	X(probation_twice, 2, "a key gets an item on probation beside the one that it has")             \
	X(write_invalidates_nothing, 2, "a write takes an epoch and leaves the entry as it is")         \
	X(entry_keeps_epoch, 2, "an entry is marked invalid and keeps its epoch")                       \
	X(write_takes_no_epoch, 2, "a write takes the last epoch again instead of a new one")           \
	X(write_carries_nothing, 2, "a write goes on without the epoch that it took")                   \
	X(ack_invalidates_nothing, 4, "an invalidation is acknowledged, the entry left as it is")       \
	X(ack_takes_no_epoch, 4, "an acknowledgement carries an epoch that was taken before")           \
	X(installs_any_epoch, 5, "a grant is installed although the entry's epoch moved on")            \
	X(overwrites_younger, 5, "a grant is written over a younger one that came in between")          \
	X(serves_torn, 5, "a value that changed while it was copied is served")                         \
	X(serves_invalid, 6, "an entry is served that is not valid")                                    \
	X(probation_valid, 6, "an item on probation is valid before anything was granted")              \
	X(serves_expired, 6, "an entry is served whose time to live has passed")                        \
	X(expiry_from_arrival, 6, "a time to live counts from the grant's arrival")                     \
	X(serves_without_lease, 6, "an entry is served after its lease")                                \
	X(lease_from_arrival, 6, "a lease counts from its arrival instead of its request")              \
	X(serves_earlier_term, 6, "an entry of an earlier term is served")                              \
	X(floor_not_raised, 6, "a new term leaves entries of the earlier one as they are")              \
	X(round_any_word, 6, "a value that goes round is served although its entry's word moved on")    \
	X(round_any_generation, 6, "a value that goes round is served although another was made since")  \
	X(lent_keeps_any_loan, 8, "a keeper keeps writes of other loans, and of one that has ended")    \
	X(lent_keeper_forgets, 8, "a keeper keeps a write again that comes again")                      \
	X(lent_answers_early, 8, "an owner answers a write before it is kept")                          \
	X(lent_installs_nothing, 8, "a write is answered that reads do not see")                        \
	X(lent_begins_any_epoch, 8, "a loan begins that was not prepared under this epoch")             \
	X(lent_serves_sealed, 8, "an owner answers after the loan has ended")                           \
	X(lent_ignores_lives, 8, "an owner takes writes that name another life")                        \
	X(order_any_number, 1, "what members of another arrangement say counts")                        \
	X(order_any_sequence, 2, "a version is applied on any other")                                   \
	X(order_known_again, 3, "the head applies a request again that it knows")                       \
	X(order_noted_by_head, 3, "only the head notes whose a version is")                             \
	X(order_refusal_unnoted, 4, "the head does not note what it refuses")                           \
	X(order_refused_early, 4, "a refusal overtakes the version that it saw")                        \
	X(order_refused_by_head, 4, "the head answers what it refuses")                                 \
	X(order_reads_unleased, 5, "a member answers reads without a lease")                            \
	X(order_holds_nothing, 6, "a member goes on although one that was removed may answer")          \
	X(order_holds_half, 6, "a member counts half of each lease that it granted")                    \
	X(order_writes_held, 6, "the head takes writes while it holds")                                 \
	X(order_clean_at_once, 7, "a version is clean where it is applied")                             \
	X(order_reads_dirty, 7, "any member answers with what it has")                                  \
	X(order_window_open, 8, "the head takes versions for which the ring has no room")               \
	X(order_reads_unfilled, 9, "a tail answers reads of what is not filled yet")                    \
	X(order_copies_over, 10, "a copy is written over what a tail has")                              \
	X(order_marks_nothing, 10, "nobody knows which versions a tail is copied and which it is passed")
/* clang-format on */

#ifdef MUTANTS
enum mutant {
	MUTANT_none,
#define X(name, rule, breaks) MUTANT_##name,
	MUTANT_LIST(X)
#undef X
		MUTANT_MAX
};
#define MUTANT(name) (CHOSEN_MUTANT == MUTANT_##name)
#else
#define MUTANT(name) false
#endif
