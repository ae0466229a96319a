/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The contract of a discipline's C, and its only include, but for pipe.h where it counts keys one
 * by one, and tally.h. The Rust side is crates/decide (what is registered and decided) and
 * crates/dataplane (what is loaded and written).
 *
 * STEPS. A discipline's object has one to eight programs of the section `STEP`. The entry program
 * calls the first for each packet that it admits for a tenant of the discipline;
 * `return next_step(ctx, work, n)` goes on in step n and does not come back. A step begins so:
 *
 *	STEP int name(struct xdp_md *ctx)
 *	{
 *		struct work *work = get_work();
 *		struct config *config = get_config();
 *		if (!work || !config)
 *			return XDP_PASS;
 *
 * WHAT `work` HOLDS when the first step runs: offsets of the headers (`l3`, `l4`, `kv`), address
 * family and VLAN; `op`, key (padded with zeros) and lengths, all within their bounds; `header` as
 * it came in, network order; the key's hash, salted with the tenant; the clock; the secret that the
 * packet was signed with and is to be signed with again; the tenant's parameter words; `round`. It
 * is this packet's until its last program returns, and survives `next_step`. The packet is
 * well-formed, its tenant known, its tag right, its rate kept. Key hash and source address are what
 * the sender says.
 *
 * VERDICTS. A function returns CONTINUE (not yet decided) or XDP_PASS, XDP_DROP, XDP_TX,
 * XDP_REDIRECT; a program returns the latter only, never XDP_ABORTED. When in doubt:
 * `return forward(ctx, work)`, the packet goes where it would have gone. A program that answers a
 * read answers it right or forwards it: docs/coherence.md has the rules for copies of what a store
 * has, coherence.h the functions that keep them. A store's invalidation for this switch never
 * reaches a discipline: the entry program makes the key's item invalid and acknowledges it.
 *
 * COUNTING. Each end of a packet's way counts under exactly one name of counters.h:
 * `return ends(COUNT_x, verdict)`. `forward`, `next_step`, `fan_out`, `recirculate` count by
 * themselves; `send_back` does not: COUNT_answer, or COUNT_hit for a copy of what a store has. A
 * packet that ends here is COUNT_consume or COUNT_drop_refused, or comes to an end that the
 * discipline lists itself (OWN_COUNTERS). What happens on the way (COUNT_miss) may be counted
 * beside.
 *
 * TALLIES (tally.h). `tally(work, n)` adds one to the tenant's word n, below TALLIES (`tally_by`
 * more): what the control half is to know of the discipline's own work, as numbers of each window
 * (`Event::WindowEnd`). In steps only, not in an egress program.
 *
 * PARAMETERS. `work->parameter[0]` and `[1]` are the tenant's words from
 * `Configuration::parameters`. Nobody else knows what they mean; both are 0 until the control half
 * said otherwise.
 *
 * MAPS. Besides the shared tables a discipline may define its own, with names that begin with its
 * `maps_of` and an underscore, and `__uint(pinning, LIBBPF_PIN_BY_NAME)`: they outlive the agent.
 * Sizes may be given by the registration. A map's layout never changes under the same name:
 * programs of the build before run on it too. Key and value have no padding; tenants share a map,
 * so keys begin with the tenant. Rows of a hash map are the configuration's: others are removed by
 * an agent that starts. What programs add belongs in an LRU hash or an array. Global variables are
 * constants.
 *
 * ITEMS. `find` leads to the packet's item. With a value that a store granted: coherence.h. With a
 * record that the control half gave: given.h, `find_given`, `read_record`, `lock_item`.
 *
 * FANNING OUT. `GROUPS(name, max)` defines a map of groups of ports, which the control half fills
 * (`Configuration::groups`); `return fan_out(ctx, work, &name, index)` copies the packet to every
 * port of the group but the one that it came in by. The object's program of the section `EGRESS`,
 * if it has one, runs on each copy as it leaves, and returns XDP_PASS, or XDP_DROP to end this
 * copy. It runs later, when other packets have had `work`: all that it needs is in the copy, in
 * `ctx->egress_ifindex` and in maps (`port_name(ctx->egress_ifindex)` is what the control half
 * calls the port). Ethernet addresses are its to write: where no route was asked for nobody else
 * does. Checksums too: a UDP checksum covers the addresses. In generic mode some kernels let copies
 * share their bytes, and what is written to one is written to all (docs/operations/drivers.md).
 *
 * RECIRCULATION. `RECIRCULATES` once in the C asks for a recirculation port;
 * `return recirculate(ctx, work, most)` sends the packet out by it. It comes back to step 1, with
 * `work` parsed anew from its bytes, but neither its tag nor its tenant's rate are looked at again;
 * `work->round` says how often it went round. From the round after `most` on it is dropped:
 * COUNT_drop_rounds. The number is in the Ethernet header, which belongs to the port meanwhile;
 * whatever else a packet must remember stands in fields of its own. XDP_TX has no meaning there: a
 * reply leaves by `forward`, as anywhere if `rewrite_packet` made it with TURNED. (`send_back`
 * swaps Ethernet addresses too; what `forward` leaves to the kernel would be for somebody else.) A
 * copy of a fan-out goes round, and counts its rounds, where the port is one of the group and the
 * egress program leaves the Ethernet header alone. `recirculate_by` names one of
 * RECIRCULATION_PORTS (`round_for_copies`, `round_for_truth`); each carries some 128 packets before
 * it loses any.
 *
 * CLONES. `find_pair(port, n)` leads to a port of the switch with recirculation port n beside it;
 * the verdict `clone_to(pair)` sends the packet out by the port, as it is, and round as well. Both
 * have the same bytes, the Ethernet header that `send_back` or the discipline wrote among them:
 * `work->round` of the copy that comes back is anything, and it is addressed to whom the other went
 * to: `address_to_far_end` comes before a `forward` that may leave it to the kernel. The verdict
 * counts nothing. A port may be the one that the packet came in by.
 */
#pragma once

#include "copies.h"
#include "events.h"
#include "given.h"
#include "rate.h"
#include "recirculate.h"

#define STEP SEC("xdp.frags")
#define EGRESS SEC("xdp.frags/devmap")

/*
 * Goes on in another step of the same discipline. Returns only where there is none: the packet is
 * forwarded then.
 */
INLINE int next_step(struct xdp_md *ctx, struct work *work, __u32 step)
{
	bpf_tail_call(ctx, &programs, work->base + (step & (PROGRAMS_PER_DISCIPLINE - 1)));
	count(COUNT_bypass_no_step);
	return forward(ctx, work);
}

/* Most ports of a group. */
#define GROUP_PORTS 64

/* The verdict that copies the packet to a group; forwards it where there is no such group. */
#define fan_out(ctx, work, groups, index)                                                          \
	({                                                                                         \
		__u32 index_ = (index);                                                            \
		const void *group_ = lookup_group((groups), &index_);                              \
		int verdict_;                                                                      \
		if (group_ && write_round((ctx), (work)->round + 1)) {                             \
			verdict_ = redirect_to_group((void *)group_);                              \
			count(COUNT_fan_out);                                                      \
		} else {                                                                           \
			count(COUNT_bypass_no_group);                                              \
			verdict_ = forward((ctx), (work));                                         \
		}                                                                                  \
		verdict_;                                                                          \
	})

/* What the control half calls an interface of this switch; NULL for others. */
INLINE const struct port_name *port_name(__u32 ifindex)
{
	return bpf_map_lookup_elem(&port_names, &ifindex);
}

/*
 * Recirculation ports by number, and each port of the switch together with each of them. Written
 * when the ports are made. `recirculate_by` takes the number; `most` is in the contract above.
 */
#define RECIRCULATES                                                                               \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_DEVMAP);                                                 \
		__uint(max_entries, RECIRCULATION_PORTS);                                          \
		__type(key, __u32);                                                                \
		__type(value, struct bpf_devmap_val);                                              \
		__uint(pinning, LIBBPF_PIN_BY_NAME);                                               \
	} recirculation SEC(".maps");                                                              \
                                                                                                   \
	CLONES(clones, CLONED_PORTS *RECIRCULATION_PORTS);                                         \
                                                                                                   \
	__attribute__((unused)) INLINE int recirculate_by(struct xdp_md *ctx, struct work *work,   \
							  __u32 number, __u32 most)                \
	{                                                                                          \
		__u32 place = number & (RECIRCULATION_PORTS - 1);                                  \
		if (work->round >= most)                                                           \
			return ends(COUNT_drop_rounds, XDP_DROP);                                  \
		if (bpf_redirect_map(&recirculation, place, XDP_PASS) != XDP_REDIRECT ||           \
		    !write_round(ctx, work->round + 1)) {                                          \
			count(COUNT_bypass_no_recirculation);                                      \
			return forward(ctx, work);                                                 \
		}                                                                                  \
		return ends(COUNT_recirculate, XDP_REDIRECT);                                      \
	}                                                                                          \
	_Static_assert(true, "")

#define recirculate(ctx, work, most) recirculate_by((ctx), (work), 0, (most))

/*
 * Where `clone_to` leads: a port, and the recirculation port of a number beside it. NULL: there is
 * none of either.
 */
#define find_pair(port_, number)                                                                   \
	({                                                                                         \
		struct clone_key key_ = {(port_), (number) & (RECIRCULATION_PORTS - 1)};           \
		lookup_group(&clones, &key_);                                                      \
	})
#define clone_to(pair) redirect_to_pair((void *)(pair))
