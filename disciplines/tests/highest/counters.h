/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ends that only packets of this discipline come to: as in bpf/counters.h. */
#pragma once

/* clang-format off */
#define OWN_COUNTERS(X)                                                                                \
	X(160, drop_above_ceiling, "number above its tenant's ceiling")
/* clang-format on */
