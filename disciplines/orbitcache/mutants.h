/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ways to break rule 6 of docs/coherence.md where values go round: as in bpf/mutants.h. */
#pragma once

/* clang-format off */
#define OWN_MUTANTS(X)                                                                                 \
	X(23, round_any_word, 6, "a value that goes round is served although its entry's word moved on") \
	X(24, round_any_generation, 6, "a value that goes round is served although another was made since")
/* clang-format on */
