/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every end that a packet can come to has a counter: a number, a name, a meaning. The shared code's
 * are listed here. A discipline that comes to other ends lists those as OWN_COUNTERS(X), in
 * counters.h of its folder, which its C includes before anything else. A number is one counter's
 * for ever, whoever's list it is in. The control side reads names and meanings from these lists.
 */
#pragma once

#include <target.h>

/* clang-format off */
#define COUNTERS(X)                                                                                    \
	X(0, pass_not_ours, "other protocols and ports, left to the kernel")                           \
	X(1, pass_other_magic, "our port, but not our magic: left to the kernel")                      \
	X(2, pass_other_mac, "ours, in a frame for another receiver on the link: left to the kernel")  \
	X(3, pass_local, "ours, for this host or without a route: left to the kernel")                 \
	X(4, pass_no_neighbour, "ours, next hop not resolved yet: left to the kernel")                 \
	X(5, pass_ttl, "ours, hop limit used up: left to the kernel")                                  \
	X(6, pass_mtu, "ours, too large for the next link: left to the kernel")                        \
	X(7, pass_no_port, "ours, next hop through an interface that is not this switch's")            \
	X(8, pass_vlan, "ours and tagged with a VLAN: forwarded by the kernel")                        \
	X(9, drop_short_header, "malformed: shorter than the header")                                  \
	X(10, drop_bad_version, "malformed: a protocol version that is not spoken here")               \
	X(11, drop_unknown_op, "malformed: op not assigned")                                           \
	X(12, drop_unknown_status, "malformed: status not assigned")                                   \
	X(13, drop_bad_key_length, "malformed: key length not possible for the op")                    \
	X(14, drop_bad_value_length, "malformed: value where there must be none")                      \
	X(15, drop_bad_part, "malformed: more of a value than there is")                               \
	X(16, drop_truncated, "malformed: lengths exceed the packet")                                  \
	X(17, drop_source, "ours, from an address that no route leads back to, as --source-check asks") \
	X(18, drop_spoiled, "word about a lease, probe, invalidation or word about a loan whose checksum is wrong or missing; read with a wrong one that would wait for its value") \
	X(19, drop_forged, "invalidation, or word about a loan, for this switch that is not signed with the system's secret") \
	X(20, drop_over_rate, "request above its tenant's rate, and the tenant is set to drop")        \
	X(21, bypass_over_rate, "request above its tenant's rate, forwarded past the cache")           \
	X(22, bypass_unknown_tenant, "tenant not known here, forwarded past the cache")                \
	X(23, bypass_bad_tag, "auth tag wrong, forwarded past the cache")                              \
	X(24, bypass_no_discipline, "tenant without a discipline here, forwarded")                     \
	X(25, bypass_part, "read of a part of a value, forwarded past the cache")                      \
	X(26, bypass_correction, "correction request, forwarded past the cache")                       \
	X(27, bypass_no_room, "hit, but the reply fits neither the packet nor its padding: forwarded") \
	X(28, bypass_torn, "hit, but the item changed while it was copied: forwarded")                 \
	X(29, drop_rounds, "went round as often as its discipline allows")                             \
	X(30, drop_refused, "refused by its discipline")                                               \
	X(31, bypass_no_recirculation, "to be sent round, but there is no recirculation port: forwarded") \
	X(32, bypass_no_group, "to be copied to ports, but there is no such group: forwarded")         \
	X(33, bypass_no_step, "next step of its discipline not there, forwarded")                      \
	X(34, recirculate, "sent round, to come back to its discipline")                               \
	X(35, fan_out, "copied to the ports of a group")                                               \
	X(44, round_gone, "value that goes round and has no entry any more: dropped")                  \
	X(48, answer, "answered from what only the switch has")                                        \
	X(49, consume, "taken in by its discipline; nothing is sent on")                               \
	X(50, forward, "sent on to the next hop by the data plane")                                    \
	X(51, hit, "answered from the cache")                                                          \
	X(52, miss, "read of a key that has no entry")                                                 \
	X(53, read_invalid, "read of an entry whose value is invalid; a grant was asked for")          \
	X(54, read_no_lease, "read of an entry without a lease from its store")                        \
	X(55, read_expired, "read of an entry whose time to live has passed")                          \
	X(57, write, "write or delete seen")                                                           \
	X(58, write_invalidated, "write or delete that invalidated an entry")                          \
	X(59, write_contended, "write that found its entry busy and passed without an epoch")          \
	X(60, grant_installed, "grant whose value was installed")                                      \
	X(61, grant_stale, "grant for an epoch that is no longer current, not installed")              \
	X(62, grant_spoiled, "grant whose checksum is wrong or missing, not installed")                \
	X(63, grant_refused, "grant from a host that is not the entry's store")                        \
	X(64, grant_too_large, "grant whose value does not fit the item's cells")                      \
	X(65, grant_busy, "grant that found its item being written")                                   \
	X(66, grant_no_entry, "grant for a key that has no entry any more")                            \
	X(67, fetch_reply, "fetch reply, consumed")                                                    \
	X(68, invalidate, "invalidation by a store, acknowledged")                                     \
	X(69, invalidate_contended, "invalidation that found its entry busy; the store repeats it")    \
	X(76, lent_read, "read of a key that is lent to this switch, answered")                        \
	X(77, lent_padding, "read of a lent key without room for the answer, told so")                 \
	X(78, lent_write, "write of a lent key, sent on to be kept by another switch")                 \
	X(79, lent_answer, "write of a lent key that another switch keeps, answered")                  \
	X(80, lent_other_life, "write of a lent key that names another life, told so")                 \
	X(81, lent_pass, "write of a lent key that is the store's affair, forwarded")                  \
	X(82, keep, "write of a key that is lent to another switch, kept")                             \
	X(83, keep_again, "write that had been kept before, answered again")                           \
	X(84, keep_pass, "write to be kept here, but there is no such loan or no room: forwarded")     \
	X(85, drop_keep_old, "write so old that nobody can tell whether it was kept")                  \
	X(86, drop_lent_busy, "about a lent key, and its record was being changed; it comes again")    \
	X(87, drop_lent_over, "keeper's answer to a loan that is over")                                \
	X(88, lend, "store's word to prepare or begin a loan, done")                                   \
	X(89, lend_refused, "store's word to prepare or begin a loan, refused")                        \
	X(90, take, "store's question what was kept, answered")                                        \
	X(119, lease_offer, "lease offer, turned into a request")                                      \
	X(120, lease_renewed, "lease reply, taken")                                                    \
	X(121, lease_stale, "lease reply that came too late or from the wrong host")                   \
	X(122, probe, "probe of a neighbouring switch, answered")                                      \
	X(123, hot_report, "hot key reported")                                                         \
	X(124, hot_report_lost, "hot key not reported, the ring was full; it is reported again")       \
	X(125, hot_report_share, "hot key not reported, its tenant had its share; reported in the next window") \
	X(126, probation, "key read often enough for an item on probation")                            \
	X(127, probation_no_blank, "no item on probation: the tenant has no blank left, or another CPU took it") \
	X(128, probation_busy, "no item on probation: somebody else fills a slot of the bucket")       \
	X(129, probation_full, "no item on probation: no slot is free, the fingerprint is taken, or the key too long")
/* clang-format on */

#ifndef OWN_COUNTERS
#define OWN_COUNTERS(X)
#endif

enum counter {
#define X(number, name, meaning) COUNT_##name = number,
	COUNTERS(X) OWN_COUNTERS(X)
#undef X
	/* All numbers are below it: the map that every program counts in has so much room. */
	COUNT_MAX = 256
};
