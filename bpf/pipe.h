/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which keys are read most, counted one by one: a HashPipe of each CPU, for disciplines that want
 * it instead of sketch.h's cells. A key always finds a place in the first stage; what stood there
 * moves on, and at each further stage the one that was counted more often stays. Nothing is
 * sampled. Slots carry the window that they count in, so that a new one needs no clearing.
 *
 * One read touches a slot of each stage, and one more where it moved another key.
 */
#pragma once

#include "sketch.h"

#define PIPE_STAGES 4
#define PIPE_SLOTS 4096

struct pipe_slot {
	__u64 key; /* `seeded` */
	__u32 count;
	__u32 window;
};

struct pipe {
	struct pipe_slot stage[PIPE_STAGES][PIPE_SLOTS];
};
_Static_assert(sizeof(struct pipe_slot) == 16, "crates/dataplane maps the same struct");

/* key: cpu. Written by the programs, read by the agent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2); /* set when loading */
	__type(key, __u32);
	__type(value, struct pipe);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} pipes SEC(".maps");

INLINE struct pipe_slot *slot_of(struct pipe *pipe, __u32 stage, __u64 key)
{
	return &pipe->stage[stage][key >> (16 * stage) & (PIPE_SLOTS - 1)];
}

/* Moves on what was in the way at the stage; false: nothing goes on from there. */
INLINE bool move_on(struct pipe *pipe, __u32 stage, struct pipe_slot *carried)
{
	struct pipe_slot *slot = slot_of(pipe, stage, carried->key);
	if (slot->window != carried->window) {
		*slot = *carried;
		return false;
	}
	if (slot->key == carried->key) {
		slot->count += carried->count;
		return false;
	}
	if (slot->count < carried->count) {
		struct pipe_slot smaller = *slot;
		*slot = *carried;
		*carried = smaller;
	}
	return true;
}

/* Counts a read; returns how many of this key in this window are known of on this CPU. */
INLINE __u32 pipe_add(struct pipe *pipe, __u64 key, __u32 window)
{
	struct pipe_slot *slot = slot_of(pipe, 0, key), carried = *slot;
	bool moves = slot->window == window && slot->key != key;
	__u32 known = 1;
	if (moves || slot->window != window)
		*slot = (struct pipe_slot){key, 1, window};
	else
		known = ++slot->count;
	for (__u32 stage = 1; stage < PIPE_STAGES; stage++) {
		const struct pipe_slot *own = slot_of(pipe, stage, key);
		if (own->key == key && own->window == window)
			known += own->count;
		moves = moves && move_on(pipe, stage, &carried);
	}
	return known;
}

/*
 * A read of a key that has no item (EVENT_HOT), or of one that did not answer it
 * (EVENT_UNANSWERED); reported from `threshold` reads in a window on.
 */
OUTLINE int pipe_miss(struct work *work, const struct config *config, __u32 threshold, __u8 kind)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct pipe *pipe = bpf_map_lookup_elem(&pipes, &cpu);
	struct sketch *sketch = get_sketch();
	if (!work || !config || !pipe || !sketch)
		return 0;
	__u64 key = seeded(work, config);
	__u32 known = pipe_add(pipe, key, config->window);
	if (known >= threshold)
		report_hot(work, config, sketch, key, known, kind);
	return 0;
}
