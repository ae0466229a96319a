/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The packet: docs/protocol.md is the specification, crates/wire the other implementation. */
#pragma once

#include "size.h"

#define KV_PORT 7117
#define KV_MAGIC_VERSION 0xA2
#define KV_MAX_KEY 250
#define KV_HEADER_LEN 80
/* Up to here a reply repeats its request, and so their tags share this and the key. */
#define KV_SHARED_LEN 40
/* What `part` counts in, in bytes. */
#define KV_PART 256
/* Length of every part but the last. */
#define KV_PART_BYTES (4 * KV_PART)

#define TENANT_SYSTEM 0xffffffffU

/*
 * Nodes in `epoch` and `node`: switches by their id; a store as NODE_STORE with its place in the
 * cluster file. From 0xc000 on stores number those who hold copies at the clients' side: that is
 * between the two, and switches pass it on.
 */
#define NODE_STORE 0x8000
/* In a write: it has been sent to the stores that hold copies, too. */
#define NODE_ALL 0xffff

enum kv_op {
	OP_READ_REQUEST = 0x01,
	OP_READ_REPLY = 0x02,
	OP_WRITE_REQUEST = 0x03,
	OP_WRITE_REPLY = 0x04,
	OP_DELETE_REQUEST = 0x05,
	OP_DELETE_REPLY = 0x06,
	OP_CORRECTION_REQUEST = 0x07,
	OP_FETCH_REQUEST = 0x10,
	OP_FETCH_REPLY = 0x11,
	OP_INVALIDATE = 0x12,
	OP_INVALIDATE_ACK = 0x13,
	OP_LEASE_REQUEST = 0x14,
	OP_LEASE_REPLY = 0x15,
	OP_LEASE_OFFER = 0x16,
	OP_PROBE_REQUEST = 0x17,
	OP_PROBE_REPLY = 0x18,
	OP_KEEP_REQUEST = 0x19,
	OP_KEEP_REPLY = 0x1a,
	OP_LEND_REQUEST = 0x1b,
	OP_LEND_REPLY = 0x1c,
	OP_TAKE_REQUEST = 0x1d,
	OP_TAKE_REPLY = 0x1e,
	OP_LEASE_RETURN = 0x1f,
	OP_LEASE_RETURNED = 0x20,
	OP_REPLICA_CONFIRM = 0x30,
	OP_REPLICA_PUSH = 0x31,
	OP_REPLICA_DROP = 0x32,
	OP_REPLICA_UPDATE = 0x33,
	OP_READ_COUNTS = 0x34,
	OP_HOLDER_LEASE_REQUEST = 0x35,
	OP_HOLDER_LEASE_REPLY = 0x36,
	OP_HOLDER_RETURN = 0x37,
	OP_HOLDER_FETCH = 0x38,
	OP_HOLDER_GRANT = 0x39,
	OP_HOLDER_INVALIDATE = 0x3a,
	OP_HOLDER_ACK = 0x3b,
	OP_CHAIN_READ = 0x40,
	OP_CHAIN_READ_REPLY = 0x41,
	OP_CHAIN_WRITE = 0x42,
	OP_CHAIN_WRITE_REPLY = 0x43,
	OP_CHAIN_ACK = 0x44,
	OP_DISCIPLINE_REQUEST = 0x50,
	OP_DISCIPLINE_REPLY = 0x51,
	OP_PEER_MESSAGE = 0x52,
	OP_PEER_SIGNAL = 0x53,
};

/* Low half of the flags byte; the high half is the status of a reply. */
#define FLAG_GRANT 0x1
#define FLAG_COMPARE 0x2
#define FLAG_CACHED 0x4
#define FLAG_ALL 0x8
#define STATUS_MASK 0xf0
#define STATUS_MAX 14
/* Of crates/wire/src/op.rs those that switches write. */
#define STATUS_NOT_FOUND (1 << 4)
#define STATUS_MISMATCH (2 << 4)
#define STATUS_NEED_PADDING (3 << 4)
#define STATUS_TRY_AGAIN (4 << 4)
#define STATUS_TOO_LARGE (5 << 4)
#define STATUS_OTHER_LIFE (9 << 4)
#define STATUS_MOVED (11 << 4)
#define STATUS_NO_ROOM (12 << 4)
#define STATUS_FORGOTTEN (13 << 4)
#define STATUS_NO_SESSION (14 << 4)

/* Every field in network order. */
struct kv_header {
	__u8 magic_version;
	__u8 key_len;
	__be16 life; /* of the store */
	__be32 tenant;
	__be64 client;
	__be64 request;
	__be64 key_hash[2];
	/* From here on replies and switches change what requests say. */
	__u8 op;
	__u8 flags;
	__be16 value_len;
	__be32 expiry_ms;
	__be16 node;
	__be16 part; /* where the bytes of this packet begin in the value, in steps of KV_PART */
	__be32 total; /* length of the whole value, where it is not all here */
	__be64 epoch; /* 16 bits of switch id, 48 bits of invalidation number */
	__be64 version;
	__be64 tag;
};

_Static_assert(sizeof(struct kv_header) == KV_HEADER_LEN, "the header is 80 bytes");
_Static_assert(offsetof(struct kv_header, client) == 8, "client");
_Static_assert(offsetof(struct kv_header, key_hash) == 24, "key_hash");
_Static_assert(offsetof(struct kv_header, op) == KV_SHARED_LEN, "op is the first that changes");
_Static_assert(offsetof(struct kv_header, node) == 48, "node");
_Static_assert(offsetof(struct kv_header, epoch) == 56, "epoch");
_Static_assert(offsetof(struct kv_header, version) == 64, "version");
_Static_assert(offsetof(struct kv_header, tag) == 72,
	       "the tag is last: it covers what stands before it");

#define EPOCH_NUMBER_BITS 48
#define EPOCH_NUMBER_MASK ((1ULL << EPOCH_NUMBER_BITS) - 1)
/* Whatever has it is invalid for good: there is no higher one, so nothing is granted under it. */
#define LAST_EPOCH EPOCH_NUMBER_MASK

INLINE __u64 epoch_pair(__u16 switch_id, __u64 number)
{
	return ((__u64)switch_id << EPOCH_NUMBER_BITS) | (number & EPOCH_NUMBER_MASK);
}

/* Whether the packet has to do with a part of a value only. */
INLINE bool is_part(const struct kv_header *header)
{
	return header->part || bpf_ntohl(header->total) > bpf_ntohs(header->value_len);
}

INLINE bool op_is_known(__u8 op)
{
	return (op >= OP_READ_REQUEST && op <= OP_CORRECTION_REQUEST) ||
	       (op >= OP_FETCH_REQUEST && op <= OP_LEASE_RETURNED) ||
	       (op >= OP_REPLICA_CONFIRM && op <= OP_HOLDER_ACK) ||
	       (op >= OP_CHAIN_READ && op <= OP_CHAIN_ACK) ||
	       (op >= OP_DISCIPLINE_REQUEST && op <= OP_PEER_SIGNAL);
}

/*
 * What switches and stores say to each other, about whosever key: signed with the system's secret.
 */
INLINE bool op_is_system(__u8 op)
{
	return (op >= OP_FETCH_REQUEST && op <= OP_LEASE_RETURNED) ||
	       (op >= OP_REPLICA_CONFIRM && op <= OP_REPLICA_DROP) || op == OP_READ_COUNTS ||
	       op == OP_CHAIN_ACK || op == OP_PEER_MESSAGE || op == OP_PEER_SIGNAL;
}

/*
 * Messages of leases and probes, counts of reads and switches' signals have no key; every other
 * packet has one.
 */
INLINE bool op_has_key(__u8 op)
{
	return !(op >= OP_LEASE_REQUEST && op <= OP_PROBE_REPLY) && op != OP_LEASE_RETURN &&
	       op != OP_LEASE_RETURNED && !(op >= OP_READ_COUNTS && op <= OP_HOLDER_RETURN) &&
	       op != OP_PEER_SIGNAL;
}

/* As crates/wire/src/op.rs says for each op. */
INLINE bool op_may_have_value(__u8 op)
{
	const __u64 low = 1ULL << OP_READ_REPLY | 1ULL << OP_WRITE_REQUEST |
			  1ULL << OP_WRITE_REPLY | 1ULL << OP_DELETE_REPLY |
			  1ULL << OP_FETCH_REPLY | 1ULL << OP_KEEP_REQUEST | 1ULL << OP_KEEP_REPLY |
			  1ULL << OP_LEND_REQUEST | 1ULL << OP_TAKE_REPLY |
			  1ULL << OP_REPLICA_PUSH | 1ULL << OP_REPLICA_UPDATE |
			  1ULL << OP_READ_COUNTS | 1ULL << OP_HOLDER_GRANT;
	if (op < 64)
		return low >> op & 1;
	return op >= OP_CHAIN_READ;
}

/* What a client asks of a store; these count against a tenant's rate. */
INLINE bool op_is_client_request(__u8 op)
{
	return op == OP_READ_REQUEST || op == OP_WRITE_REQUEST || op == OP_DELETE_REQUEST ||
	       op == OP_CORRECTION_REQUEST || op == OP_CHAIN_READ || op == OP_CHAIN_WRITE ||
	       op == OP_DISCIPLINE_REQUEST;
}
