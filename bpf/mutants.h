/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ways to break the rules of docs/coherence.md, for tests that must notice: `if (MUTANT(name) ||
 * right)`. Nothing is left of them in a program for the kernel. A user-space build with -DMUTANTS
 * defines CHOSEN_MUTANT, an expression for the number of the one that is in force, 0 for none. Here
 * is what breaks the shared code: number, name, rule, what is broken. What breaks a discipline's
 * own is listed as OWN_MUTANTS(X), in mutants.h of its folder, which its C includes before anything
 * else. A number is one mutant's, whoever's list it is in.
 */
#pragma once

/* clang-format off */
#define MUTANT_LIST(X)                                                                                 \
	X(1, epoch_repeats, 1, "the counter goes back, so that numbers come again")                    \
	X(2, epoch_after_lookup, 1, "an epoch is taken after the table was searched")                  \
	X(3, entry_epoch_falls, 1, "an entry takes an epoch below the one that it has")                \
	X(4, probation_old_epoch, 1, "an item on probation has an epoch from before it could be found") \
	X(5, probation_twice, 2, "a key gets an item on probation beside the one that it has")         \
	X(6, write_invalidates_nothing, 2, "a write takes an epoch and leaves the entry as it is")     \
	X(7, entry_keeps_epoch, 2, "an entry is marked invalid and keeps its epoch")                   \
	X(8, write_takes_no_epoch, 2, "a write takes the last epoch again instead of a new one")       \
	X(9, write_carries_nothing, 2, "a write goes on without the epoch that it took")               \
	X(10, ack_invalidates_nothing, 4, "an invalidation is acknowledged, the entry left as it is")  \
	X(11, ack_takes_no_epoch, 4, "an acknowledgement carries an epoch that was taken before")      \
	X(12, installs_any_epoch, 5, "a grant is installed although the entry's epoch moved on")       \
	X(13, overwrites_younger, 5, "a grant is written over a younger one that came in between")     \
	X(14, serves_torn, 5, "a value that changed while it was copied is served")                    \
	X(15, serves_invalid, 6, "an entry is served that is not valid")                               \
	X(16, probation_valid, 6, "an item on probation is valid before anything was granted")         \
	X(17, serves_expired, 6, "an entry is served whose time to live has passed")                   \
	X(18, expiry_from_arrival, 6, "a time to live counts from the grant's arrival")                \
	X(19, serves_without_lease, 6, "an entry is served after its lease")                           \
	X(20, lease_from_arrival, 6, "a lease counts from its arrival instead of its request")         \
	X(21, serves_earlier_term, 6, "an entry of an earlier term is served")                         \
	X(22, floor_not_raised, 6, "a new term leaves entries of the earlier one as they are")         \
	X(25, lent_keeps_any_loan, 8, "a keeper keeps writes of other loans, and of one that has ended") \
	X(26, lent_keeper_forgets, 8, "a keeper keeps a write again that comes again")                 \
	X(27, lent_answers_early, 8, "an owner answers a write before it is kept")                     \
	X(28, lent_installs_nothing, 8, "a write is answered that reads do not see")                   \
	X(29, lent_begins_any_epoch, 8, "a loan begins that was not prepared under this epoch")        \
	X(30, lent_serves_sealed, 8, "an owner answers after the loan has ended")                      \
	X(31, lent_ignores_lives, 8, "an owner takes writes that name another life")
/* clang-format on */

#ifndef OWN_MUTANTS
#define OWN_MUTANTS(X)
#endif

#ifdef MUTANTS
enum mutant {
#define X(number, name, rule, breaks) MUTANT_##name = number,
	MUTANT_LIST(X) OWN_MUTANTS(X)
#undef X
};
#define MUTANT(name) (CHOSEN_MUTANT == MUTANT_##name)
#else
#define MUTANT(name) false
#endif
