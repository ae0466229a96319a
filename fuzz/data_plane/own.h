/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a discipline adds to the script and the oracle: a header in its folder, in the place of this
 * one, which adds nothing. Records are what its control half gives; a packet comes back to its step
 * 1 where it was sent round.
 */
#pragma once

static const __u8 own_ops[] = {OP_READ_REQUEST};
/* Of 256 packets so many have one of these ops. */
#define OWN_OPS_OF_256 0

/* The epoch that a packet with this op would most likely carry; 0: as others. */
static __u64 own_epoch(__u8 op, __u8 (*next)(void))
{
	(void)op;
	(void)next;
	return 0;
}

/* Its tables, at a script's beginning. */
static void own_make(void)
{
}

/* A record behind a key, of bytes of the script, into `to`; its length. 0: there are none. */
static __u32 own_record(__u8 *to, __u8 (*next)(void))
{
	(void)to;
	(void)next;
	return 0;
}

/* Before a packet, and after one that nothing interrupted. */
static void own_before(const struct passage *p)
{
	(void)p;
}

static void own_check(const struct passage *p)
{
	(void)p;
}

/* Whether the packet was sent round as well. */
static bool own_goes_round(const struct passage *p)
{
	(void)p;
	return false;
}

/* After it came round. */
static void own_check_round(const struct passage *p)
{
	(void)p;
}
