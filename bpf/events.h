/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs tell the agent. */
#pragma once

#include "maps.h"

#define EVENT_HOT 1
#define EVENT_TOO_LARGE 2
/* As EVENT_HOT, of a key that has an item: reads that it did not answer. */
#define EVENT_UNANSWERED 3

/* `key_len` bytes of key are sent, no more. */
struct event {
	__u8 kind;
	__u8 key_len;
	__u16 value_len; /* EVENT_TOO_LARGE: what the value needs */
	__u32 tenant;
	__u32 count; /* EVENT_HOT, EVENT_UNANSWERED: this CPU's estimate in this window */
	__u32 window;
	__u8 key[256];
};
#define EVENT_HEADER_BYTES 16
_Static_assert(offsetof(struct event, key) == EVENT_HEADER_BYTES,
	       "crates/dataplane reads the same struct");

RING(events, 1 << 20);

/*
 * Tells the agent, which looks into the ring by itself: no wake-up per event. False if the ring is
 * full. Takes `work->scratch`.
 */
INLINE bool send_event(struct work *work, __u8 kind, __u32 amount, __u16 value_len, __u32 window)
{
	struct event *event = (struct event *)work->scratch;
	__u32 key_len = work->key_len;
	event->kind = kind;
	event->key_len = key_len;
	event->value_len = value_len;
	event->tenant = bpf_ntohl(work->header.tenant);
	event->count = amount;
	event->window = window;
	__builtin_memcpy(event->key, work->key, sizeof(event->key));
	return bpf_ringbuf_output(&events, event, EVENT_HEADER_BYTES + (key_len & 0xff),
				  BPF_RB_NO_WAKEUP) == 0;
}
_Static_assert(sizeof(struct event) <= sizeof(((struct work *)0)->scratch), "it has room there");
