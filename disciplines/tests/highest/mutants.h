/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ways to break this discipline, which has one rule, the first: as in bpf/mutants.h. */
#pragma once

/* clang-format off */
#define OWN_MUTANTS(X)                                                                                 \
	X(160, highest_falls, 1, "a lower number takes the place of a higher one")
/* clang-format on */
