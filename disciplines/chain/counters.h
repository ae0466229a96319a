/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ends that only packets about keys come to that switches keep in chains: as in bpf/counters.h. */
#pragma once

/* clang-format off */
#define OWN_COUNTERS(X)                                                                                \
	X(91, order_apply, "write of a key that switches keep in order, applied here")                 \
	X(92, order_refuse, "write of such a key whose condition does not hold: that is remembered")   \
	X(93, order_pass, "write or refusal of such a key, sent on to the next switch")                \
	X(94, order_commit, "write or refusal that every switch of the key has, at the last of them")  \
	X(95, order_known, "write that had been taken before, sent on or answered again")              \
	X(96, order_ack, "word that a version is committed, taken")                                    \
	X(97, order_nack, "word that versions are missing, sent to the switch before")                 \
	X(98, order_stream, "version that is missing further on, sent again")                          \
	X(99, order_round, "sent on, and round as well, to be sent to another switch")                 \
	X(100, order_copy, "version or session of such a key, copied from another switch")             \
	X(101, order_watch, "write of such a key, told to a client that watches it")                   \
	X(102, order_read_on, "read of a key whose newest version is not known to be committed: sent on") \
	X(103, order_no_lease, "read while another switch of the key has not confirmed that this is one") \
	X(104, order_unfilled, "read of a key that is still to be copied to the last switch: told to try again") \
	X(105, order_held, "asked while switches of an earlier arrangement may still answer: told to try again") \
	X(106, order_full, "write of a key with as many versions under way as it may have: told to try again") \
	X(107, order_moved, "request under another arrangement of the switches, told the present one") \
	X(108, order_no_session, "write of a client whose session is not here, told so")               \
	X(109, order_diverged, "two writes under one number: never")                                   \
	X(110, order_signal, "word that another switch is there, taken or answered")                   \
	X(111, drop_order_number, "of switches to each other, under another arrangement than the present one") \
	X(112, drop_order_stranger, "of switches to each other, from or for one that has no part in it") \
	X(113, drop_order_held, "write of such a key, while switches of an earlier arrangement may still answer") \
	X(114, drop_order_again, "write of such a key that has been applied; nobody asked for it again") \
	X(115, drop_order_early, "write of such a key before others that come first; those were asked for") \
	X(116, drop_order_missing, "about such a key or session that is not here; reported")           \
	X(117, drop_order_unfilled, "write of such a key that is still to be copied here")             \
	X(118, drop_order_busy, "about such a key, and its record was being changed; it comes again")  \
	X(130, drop_order_untold, "write of such a key that a client is not told of that watches it: its tenant is above its rate") \
	X(131, order_dirty, "read of a key whose newest version here is not known to be committed; counted by the member that is asked first") \
	X(132, order_relaxed, "of these, answered with that version, as the client asked")
/* clang-format on */
