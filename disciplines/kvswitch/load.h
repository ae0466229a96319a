/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known of a tenant's stores, and how many requests are sent to each. */
#pragma once

#include "discipline.h"

struct holder_key {
	__u32 tenant;
	__u32 holder; /* 0x8000 | place in the cluster file */
};

struct server {
	__u8 address[16]; /* IPv4 as ::ffff:a.b.c.d */
	__be16 port;
	__u16 place; /* among those whose load is counted */
	__u32 unused;
};
_Static_assert(sizeof(struct server) == 24, "src/servers.rs writes the same struct");

/* Where a store is. Rows of the configuration. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256); /* set when loading */
	__type(key, struct holder_key);
	__type(value, struct server);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} kvswitch_servers SEC(".maps");

struct address_key {
	__u32 tenant;
	__u8 address[16];
};
_Static_assert(sizeof(struct address_key) == 20, "src/servers.rs writes the same struct");

/* Its place among those whose load is counted. Rows of the configuration. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256); /* set when loading */
	__type(key, struct address_key);
	__type(value, __u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} kvswitch_addresses SEC(".maps");
