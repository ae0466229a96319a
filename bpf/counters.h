/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every end that a packet can come to has a counter with a name. This list is the only one: the
 * control side reads names and meanings from this file.
 */
#pragma once

#include <target.h>

/* clang-format off */
#define COUNTERS(X)                                                                                    \
	X(pass_not_ours, "other protocols and ports, left to the kernel")                              \
	X(pass_other_magic, "our port, but not our magic: left to the kernel")                         \
	X(pass_other_mac, "ours, in a frame for another receiver on the link: left to the kernel")     \
	X(pass_local, "ours, for this host or without a route: left to the kernel")                    \
	X(pass_no_neighbour, "ours, next hop not resolved yet: left to the kernel")                    \
	X(pass_ttl, "ours, hop limit used up: left to the kernel")                                     \
	X(pass_mtu, "ours, too large for the next link: left to the kernel")                           \
	X(pass_no_port, "ours, next hop through an interface that is not this switch's")               \
	X(pass_vlan, "ours and tagged with a VLAN: forwarded by the kernel")                           \
	X(drop_short_header, "malformed: shorter than the header")                                     \
	X(drop_bad_version, "malformed: a protocol version that is not spoken here")                   \
	X(drop_unknown_op, "malformed: op not assigned")                                               \
	X(drop_unknown_status, "malformed: status not assigned")                                       \
	X(drop_bad_key_length, "malformed: key length not possible for the op")                        \
	X(drop_bad_value_length, "malformed: value where there must be none")                          \
	X(drop_bad_part, "malformed: more of a value than there is")                                   \
	X(drop_truncated, "malformed: lengths exceed the packet")                                      \
	X(drop_source, "ours, from an address that no route leads back to, as --source-check asks")    \
	X(drop_spoiled, "lease reply, invalidation or word about a loan whose checksum is wrong or missing") \
	X(drop_forged, "invalidation, or word about a loan, for this switch that is not signed with the system's secret") \
	X(drop_over_rate, "request above its tenant's rate, and the tenant is set to drop")            \
	X(bypass_over_rate, "request above its tenant's rate, forwarded past the cache")               \
	X(bypass_unknown_tenant, "tenant not known here, forwarded past the cache")                    \
	X(bypass_bad_tag, "auth tag wrong, forwarded past the cache")                                  \
	X(bypass_no_discipline, "tenant without a discipline here, forwarded")                         \
	X(bypass_part, "read of a part of a value, forwarded past the cache")                          \
	X(bypass_correction, "correction request, forwarded past the cache")                           \
	X(bypass_no_room, "hit, but the reply fits neither the packet nor its padding: forwarded")     \
	X(bypass_torn, "hit, but the item changed while it was copied: forwarded")                     \
	X(drop_rounds, "went round as often as its discipline allows")                                 \
	X(drop_refused, "refused by its discipline")                                                   \
	X(bypass_no_recirculation, "to be sent round, but there is no recirculation port: forwarded")  \
	X(bypass_no_group, "to be copied to ports, but there is no such group: forwarded")             \
	X(bypass_no_step, "next step of its discipline not there, forwarded")                          \
	X(recirculate, "sent round, to come back to its discipline")                                   \
	X(fan_out, "copied to the ports of a group")                                                   \
	X(wake, "answered from the cache, and the answer sent round as well")                          \
	X(wake_grant, "grant that reads waited for, sent round as well")                               \
	X(hit_round, "answered by a value that goes round")                                            \
	X(wait, "read that waits for its value to come round; taken in")                               \
	X(wait_full, "read of a value that goes round, with as many waiting as may: forwarded")        \
	X(wait_late, "waited for a value for too long, not answered")                                  \
	X(wait_no_room, "waited for a value that is longer than its request allows, not answered")     \
	X(round_stale, "value that goes round, invalid by now or replaced: dropped")                   \
	X(round_gone, "value that goes round and has no entry any more: dropped")                      \
	X(round_lapsed, "value that goes round, its lease or its time to live over: dropped")          \
	X(round_lost, "value that went round and was not seen any more: another was made")             \
	X(round_parked, "value that nobody waited for: no longer sent round, and kept in the cache")   \
	X(answer, "answered from what only the switch has")                                            \
	X(consume, "taken in by its discipline; nothing is sent on")                                   \
	X(forward, "sent on to the next hop by the data plane")                                        \
	X(hit, "answered from the cache")                                                              \
	X(miss, "read of a key that has no entry")                                                     \
	X(read_invalid, "read of an entry whose value is invalid; a grant was asked for")              \
	X(read_no_lease, "read of an entry without a lease from its store")                            \
	X(read_expired, "read of an entry whose time to live has passed")                              \
	X(read_part, "read of a part of a value that does not go round here; a grant was asked for")   \
	X(write, "write or delete seen")                                                               \
	X(write_invalidated, "write or delete that invalidated an entry")                              \
	X(write_contended, "write that found its entry busy and passed without an epoch")              \
	X(grant_installed, "grant whose value was installed")                                          \
	X(grant_stale, "grant for an epoch that is no longer current, not installed")                  \
	X(grant_spoiled, "grant whose checksum is wrong or missing, not installed")                    \
	X(grant_refused, "grant from a host that is not the entry's store")                            \
	X(grant_too_large, "grant whose value does not fit the item's cells")                          \
	X(grant_busy, "grant that found its item being written")                                       \
	X(grant_no_entry, "grant for a key that has no entry any more")                                \
	X(fetch_reply, "fetch reply, consumed")                                                        \
	X(invalidate, "invalidation by a store, acknowledged")                                         \
	X(invalidate_contended, "invalidation that found its entry busy; the store repeats it")        \
	X(redirect, "read of a key that has replicas, sent to one of them")                            \
	X(redirect_invalid, "read of a key no replica of which has confirmed its copy: sent home") \
	X(replica_update, "write of a key that has replicas, sent to one of them as well")             \
	X(replica_round, "write of a key that has replicas, sent round as well, to be sent to the next") \
	X(replica_confirm, "word of a store that its replica may be read, taken")                      \
	X(replica_drop, "word of a store that it has no replica any more, taken")                      \
	X(lent_read, "read of a key that is lent to this switch, answered")                            \
	X(lent_padding, "read of a lent key without room for the answer, told so")                     \
	X(lent_write, "write of a lent key, sent on to be kept by another switch")                     \
	X(lent_answer, "write of a lent key that another switch keeps, answered")                      \
	X(lent_other_life, "write of a lent key that names another life, told so")                     \
	X(lent_pass, "write of a lent key that is the store's affair, forwarded")                      \
	X(keep, "write of a key that is lent to another switch, kept")                                 \
	X(keep_again, "write that had been kept before, answered again")                               \
	X(keep_pass, "write to be kept here, but there is no such loan or no room: forwarded")         \
	X(drop_keep_old, "write so old that nobody can tell whether it was kept")                      \
	X(drop_lent_busy, "about a lent key, and its record was being changed; it comes again")        \
	X(drop_lent_over, "keeper's answer to a loan that is over")                                    \
	X(lend, "store's word to prepare or begin a loan, done")                                       \
	X(lend_refused, "store's word to prepare or begin a loan, refused")                            \
	X(take, "store's question what was kept, answered")                                            \
	X(order_apply, "write of a key that switches keep in order, applied here")                     \
	X(order_refuse, "write of such a key whose condition does not hold: that is remembered")       \
	X(order_pass, "write or refusal of such a key, sent on to the next switch")                    \
	X(order_commit, "write or refusal that every switch of the key has, at the last of them")      \
	X(order_known, "write that had been taken before, sent on or answered again")                  \
	X(order_ack, "word that a version is committed, taken")                                        \
	X(order_nack, "word that versions are missing, sent to the switch before")                     \
	X(order_stream, "version that is missing further on, sent again")                              \
	X(order_round, "sent on, and round as well, to be sent to another switch")                     \
	X(order_copy, "version or session of such a key, copied from another switch")                  \
	X(order_watch, "write of such a key, told to a client that watches it")                        \
	X(order_read_on, "read of a key whose newest version is not known to be committed: sent on")   \
	X(order_no_lease, "read while another switch of the key has not confirmed that this is one")   \
	X(order_unfilled, "read of a key that is still to be copied to the last switch: told to try again") \
	X(order_held, "asked while switches of an earlier arrangement may still answer: told to try again") \
	X(order_full, "write of a key with as many versions under way as it may have: told to try again") \
	X(order_moved, "request under another arrangement of the switches, told the present one")      \
	X(order_no_session, "write of a client whose session is not here, told so")                    \
	X(order_diverged, "two writes under one number: never")                                        \
	X(order_signal, "word that another switch is there, taken or answered")                        \
	X(drop_order_number, "of switches to each other, under another arrangement than the present one") \
	X(drop_order_stranger, "of switches to each other, from or for one that has no part in it")    \
	X(drop_order_held, "write of such a key, while switches of an earlier arrangement may still answer") \
	X(drop_order_again, "write of such a key that has been applied; nobody asked for it again")    \
	X(drop_order_early, "write of such a key before others that come first; those were asked for") \
	X(drop_order_missing, "about such a key or session that is not here; reported")                \
	X(drop_order_unfilled, "write of such a key that is still to be copied here")                  \
	X(drop_order_busy, "about such a key, and its record was being changed; it comes again")       \
	X(lease_offer, "lease offer, turned into a request")                                           \
	X(lease_renewed, "lease reply, taken")                                                         \
	X(lease_stale, "lease reply that came too late or from the wrong host")                        \
	X(probe, "probe of a neighbouring switch, answered")                                           \
	X(hot_report, "hot key reported")                                                              \
	X(hot_report_lost, "hot key not reported, the ring was full; it is reported again")            \
	X(hot_report_share, "hot key not reported, its tenant had its share; reported in the next window") \
	X(probation, "key read often enough for an item on probation") \
	X(probation_no_blank, "no item on probation: the tenant has no blank left, or another CPU took it") \
	X(probation_busy, "no item on probation: somebody else fills a slot of the bucket") \
	X(probation_full, "no item on probation: no slot is free, the fingerprint is taken, or the key too long")
/* clang-format on */

enum counter {
#define X(name, meaning) COUNT_##name,
	COUNTERS(X)
#undef X
		COUNT_MAX
};
