/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which cold keys are read most: a HashPipe of each CPU. A key always finds a place in the first stage; what stood there moves on,
 * and at each further stage the one that was counted more often stays. Nothing is sampled. Slots carry the window that they
 * count in, so that a new one needs no clearing.
 */
#pragma once

#include "discipline.h"

#define STAGES 4
#define STAGE_SLOTS 4096
/* Reports of one key in a window: when it comes to the threshold, and at as many doublings. */
#define DOUBLINGS 15

struct slot {
	__u64 key; /* mixed from its hash; 0 in one that was never used */
	__u32 count;
	__u32 window;
};

struct pipe {
	struct slot stage[STAGES][STAGE_SLOTS];
};

/* key: cpu. Written by the programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2); /* set when loading */
	__type(key, __u32);
	__type(value, struct pipe);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} kvswitch_pipes SEC(".maps");

INLINE struct slot *slot_of(struct pipe *pipe, __u32 stage, __u64 key)
{
	return &pipe->stage[stage][key >> (16 * stage) & (STAGE_SLOTS - 1)];
}

/* Counts a read; returns how many of this key in this window are known of. */
INLINE __u32 pipe_add(struct pipe *pipe, __u64 key, __u32 window)
{
	struct slot *slot = slot_of(pipe, 0, key);
	struct slot carried = *slot;
	__u32 known = 1;
	if (slot->key == key && slot->window == window) {
		known = ++slot->count;
		carried.window = window - 1;
	} else {
		*slot = (struct slot){key, 1, window};
	}
	for (__u32 i = 1; i < STAGES; i++) {
		struct slot *own = slot_of(pipe, i, key);
		if (own->key == key && own->window == window)
			known += own->count;
		if (carried.window != window)
			continue;
		struct slot *other = slot_of(pipe, i, carried.key);
		if (other->window != window) {
			*other = carried;
			carried.window = window - 1;
		} else if (other->key == carried.key) {
			other->count += carried.count;
			carried.window = window - 1;
		} else if (other->count < carried.count) {
			struct slot smaller = *other;
			*other = carried;
			carried = smaller;
		}
	}
	return known;
}

/* A read of a cold key; reported from `threshold` reads in a window on, and again when they have doubled. */
OUTLINE int count_cold(struct work *work, const struct config *config, __u32 threshold)
{
	__u32 cpu = bpf_get_smp_processor_id(), level = 0;
	struct pipe *pipe = bpf_map_lookup_elem(&kvswitch_pipes, &cpu);
	struct sketch *sketch = get_sketch();
	if (!work || !config || !pipe || !sketch)
		return 0;
	__u64 key = seeded(work, config);
	__u32 known = pipe_add(pipe, key, config->window);
	if (!threshold || known < threshold)
		return 0;
	for (__u64 next = 2ULL * threshold; next <= known && level < DOUBLINGS; next *= 2)
		level++;
	report_hot(work, config, sketch, key, known, level);
	return 0;
}
