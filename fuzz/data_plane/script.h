/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bytes as a script. Every byte string is one: what is missing reads as zero, and the script ends
 * with it.
 */
#pragma once

#define STEPS_MAX 64

struct script {
	const __u8 *at;
	size_t left;
};

static struct script script;

/* The key that most of a script is about, so that its packets have to do with one another. */
struct focus {
	__u32 tenant, key, store;
};
static struct focus focus;
/* Whether the script is about what the discipline adds. */
static bool is_own;
/* Whether keys may get items by themselves. */
static bool is_on_probation;

static __u8 next(void)
{
	if (!script.left)
		return 0;
	script.left--;
	return *script.at++;
}

static __u32 next_below(__u32 n)
{
	return next() % n;
}

static __u64 next_word(int bytes)
{
	__u64 word = 0;
	while (bytes--)
		word = word << 8 | next();
	return word;
}

static const __u8 usual_ops[] = {
	OP_READ_REQUEST, OP_READ_REQUEST,       OP_READ_REPLY,   OP_WRITE_REQUEST,
	OP_WRITE_REPLY,  OP_DELETE_REQUEST,     OP_FETCH_REPLY,  OP_FETCH_REPLY,
	OP_INVALIDATE,   OP_CORRECTION_REQUEST, OP_LEASE_REPLY,  OP_LEASE_REPLY,
	OP_LEASE_OFFER,  OP_INVALIDATE_ACK,     OP_DELETE_REPLY, OP_CHAIN_READ,
};
static const __u16 usual_value_lens[] = {0, 1, 7, 8, 128, 130, 1000, 1100, 1144, 1392, 1408, 1500};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* The epoch that a packet about this entry would most likely carry. */
static __u64 usual_epoch(__u32 tenant, __u32 key)
{
	__u64 number = the_config()->epoch;
	for (int i = 0; i < PLACES; i++)
		if (entries[i].is_there && entries[i].tenant == tenant && entries[i].key == key)
			number = entries[i].item->word >> 1;
	switch (next_below(8)) {
	case 0:
		return 0;
	case 1:
		return epoch_pair(SWITCH + 1, number);
	case 2:
		return epoch_pair(SWITCH, number + next_below(4) - 2);
	default:
		return epoch_pair(SWITCH, number);
	}
}

/* Header, key and value at `kv`; returns the payload's length. */
static __u32 make_message(__u8 *kv, __u32 *store)
{
	__u8 choice = next();
	__u8 op = choice < 0xf0 ? usual_ops[choice % COUNT_OF(usual_ops)] : next();
	if (is_own && choice < OWN_OPS_OF_256)
		op = own_ops[choice % COUNT_OF(own_ops)];
	__u8 which = next();
	if (choice == 0xff)
		op = OP_PROBE_REQUEST;
	bool is_lease = !op_has_key(op) && op != OP_PEER_SIGNAL;
	__u32 tenant = which & 1 ? tenant_ids[(which >> 1) % TENANTS] : focus.tenant;
	__u32 key = which & 1 ? (which >> 1) / TENANTS % KEYS : focus.key;
	__u8 how = next();
	__u64 own = is_own ? own_epoch(op, next) : 0;
	tenant = is_lease ? TENANT_SYSTEM : tenant;
	__u64 hash[2];
	__u32 value_len = 0;
	*store = focus.store ^ (how & 1);
	key_hash(key, hash);
	kv[0] = KV_MAGIC_VERSION;
	kv[1] = op_has_key(op) ? key_lens[key] : 0;
	kv[40] = op;
	kv[41] = how & 2 ? next() : FLAG_GRANT;
	if (op_may_have_value(op))
		value_len = usual_value_lens[next_below(COUNT_OF(usual_value_lens))];
	put_big_endian(kv + 2, 2, 0);
	put_big_endian(kv + 42, 2, value_len);
	put_big_endian(kv + 4, 4, tenant);
	put_big_endian(kv + 44, 4, is_lease ? 1000 + next() * 100 : how & 4 ? next_word(2) : 0);
	put_big_endian(kv + 8, 8, next());
	put_big_endian(kv + 16, 8, is_lease ? *store : next());
	put_big_endian(kv + 24, 8, hash[0]);
	put_big_endian(kv + 32, 8, hash[1]);
	put_big_endian(kv + 48, 8, 0);
	put_big_endian(kv + 56, 8, is_lease ? epoch_pair(SWITCH, 0) : own ?: usual_epoch(tenant, key));
	put_big_endian(kv + 64, 8, is_lease ? kernel.now_ns - next() * 10 * NS_PER_MS : next());
	if (kv[1])
		key_bytes(key, kv + 80);
	memset(kv + 80 + kv[1], how ^ kv[71], value_len);
	__u32 len = 80 + kv[1] + value_len;
	if ((how & 0xe0) == 0xe0) { /* a part of a value; now and then more than there is */
		put_big_endian(kv + 50, 2, next_below(4));
		put_big_endian(kv + 52, 4, next() * 16);
	}
	if (how & 8) { /* padding */
		__u32 more = next() * 8;
		memset(kv + len, how & 16 ? next() : 0, more);
		len += more;
	}
	if (!(how & 32) || next())
		put_big_endian(kv + 72, 8, right_tag(kv));
	return len;
}

/* Ethernet, IP and UDP around a message, between a client and a store. */
static void make_frame(struct frame *frame)
{
	__u8 how = next();
	bool is_ipv6 = (how & 1) ^ focus.store, is_vlan = (how & 6) == 6;
	__u8 *at = frame->bytes + 12;
	memset(frame->bytes, 0x22, 12);
	if (is_vlan) {
		put_big_endian(at, 4, 0x81000005);
		at += 4;
	}
	put_big_endian(at, 2, is_ipv6 ? 0x86dd : 0x0800);
	__u8 *ip = at + 2, *udp = ip + (is_ipv6 ? 40 : 20);
	__u32 store, udp_len = 8 + make_message(udp + 8, &store);
	is_ipv6 ? memset(ip, 0, 40) : memset(ip, 0, 20);
	__u8 hops = how & 8 ? next_below(3) : 64;
	/* As the addresses end: 2 is the stores'. */
	__u8 host_byte = how & 16 ? 1 : 2;
	__u8 receiver_byte = is_on_probation ? 2 : 1;
	if (is_ipv6) {
		put_big_endian(ip, 4, 0x60000000);
		put_big_endian(ip + 4, 2, udp_len);
		ip[6] = IPPROTO_UDP;
		ip[7] = hops;
		memcpy(ip + 8, stores[1].address, 16);
		memcpy(ip + 24, stores[1].address, 16);
		ip[23] = host_byte;
		ip[39] = receiver_byte;
	} else {
		ip[0] = 0x45;
		put_big_endian(ip + 2, 2, 20 + udp_len);
		ip[8] = hops;
		ip[9] = IPPROTO_UDP;
		memcpy(ip + 12, stores[0].address + 12, 4);
		memcpy(ip + 16, stores[0].address + 12, 4);
		ip[15] = host_byte;
		ip[19] = receiver_byte;
		ipv4_checksum((struct iphdr *)ip);
	}
	put_big_endian(udp, 2, KV_PORT);
	put_big_endian(udp + 2, 2, 40000);
	put_big_endian(udp + 4, 2, udp_len);
	put_big_endian(udp + 6, 2, 0);
	frame->len = udp + udp_len - frame->bytes;
	struct view view = view_of(frame);
	if (is_ipv6 || !(how & 32)) {
		__u32 sum = udp_sum(frame, &view);
		while (sum >> 16)
			sum = (sum & 0xffff) + (sum >> 16);
		put_big_endian(udp + 6, 2, (__u16)~sum ?: 0xffff);
	}
	if (how & 64) /* behind the datagram */
		for (__u32 more = next() & 63; more; more--)
			frame->bytes[frame->len++] = 0xcc;
}

/* Bytes written over others, or the frame cut off. */
static void damage(struct frame *frame)
{
	for (__u32 times = next() & 7; times; times--)
		frame->bytes[next_word(2) % frame->len] = next();
	__u32 cut = next_word(2);
	if (cut && cut < frame->len)
		frame->len = cut;
}

static void raw_frame(struct frame *frame)
{
	frame->len = 14 + next();
	for (__u32 i = 0; i < frame->len; i++)
		frame->bytes[i] = next();
}

static struct passage passages[2];
/* A packet that comes round. */
static struct passage round_passage;
#define ROUNDS_MAX 100
/* Helper calls until the other CPU gets its packets, or the agent works beside; 0: neither. */
static __u32 interrupt_in, packets_beside;
static bool agent_interrupts;

static void run_packet(bool is_nested);
static void agent_step(void);

static void interrupt(void)
{
	if (user_cpu->number != 0 || !interrupt_in || --interrupt_in)
		return;
	struct kernel saved = kernel;
	see_blanks(passages[0].epoch_before);
	if (agent_interrupts)
		agent_step();
	for (__u32 i = 0; i < packets_beside && !agent_interrupts; i++) {
		user_cpu = the_switch->cpu[1];
		run_packet(true);
		user_cpu = the_switch->cpu[0];
		note_moment(&passages[0]);
	}
	kernel = saved;
	user_ring_is_full = kernel.ring_is_full;
	passages[0].was_interrupted = true;
	note_moment(&passages[0]);
}

static void script_helpers(void)
{
	__u8 how = next();
	static const signed char codes[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -22};
	kernel.fib_code = how & 1 ? codes[next_below(COUNT_OF(codes))] : 0;
	kernel.fib_ifindex = how & 2 ? PORT_IFINDEX + 1 : PORT_IFINDEX;
	kernel.ring_is_full = how & 4;
	/* What a work area holds from the packet before must not matter. */
	memset(put(&work_area, 0), how & 8 ? 0xff : 0x5a, sizeof(struct work));
}

static void come_round(struct passage *p)
{
	struct xdp_md ctx = user_packet(p->in.bytes, p->in.len, p->in.len);
	ctx.ingress_ifindex = 1;
	ctx.head_room = 216;
	ctx.tail_room = 0;
	p->before = view_of(&p->in);
	p->was = read_counts();
	memset(put(&work_area, 0), 0x5a, sizeof(struct work));
	p->verdict = switch_run(0, &ctx, comes_back);
	p->out.len = user_packet_read(&ctx, p->out.bytes, sizeof(p->out.bytes));
	user_packet_free(&ctx);
	see_what_came(p);
}

static void run_packet(bool is_nested)
{
	struct passage *p = &passages[is_nested];
	__u8 how = next();
	memset(p, 0, offsetof(struct passage, in.bytes));
	memset(p->in.bytes, 0, sizeof(p->in.bytes));
	p->count_of_moments = 0;
	p->was_interrupted = false;
	if ((how & 15) == 15)
		raw_frame(&p->in);
	else
		make_frame(&p->in);
	if ((how & 15) >= 13)
		damage(&p->in);
	__u32 linear = how & 16 ? next_word(2) % (p->in.len + 1) : p->in.len;
	struct xdp_md ctx = user_packet(p->in.bytes, p->in.len, linear < 14 ? 14 : linear);
	ctx.ingress_ifindex = 1;
	ctx.head_room = how & 32 ? next() : 216;
	ctx.tail_room = how & 64 ? next_word(2) % 4000 : 0;
	script_helpers();
	if (!is_nested) {
		__u8 when = how & 128 ? next() : 0;
		interrupt_in = when & 15;
		packets_beside = 1 + (when >> 4 & 1);
		agent_interrupts = when >= 0xc0;
	}

	p->before = view_of(&p->in);
	p->epoch_before = the_config()->epoch;
	p->was = read_counts();
	if (p->before.is_ours)
		note_grant(&p->in, &p->before);
	note_moment(p);
	bool renews = !is_nested && renews_lease(&p->in, &p->before);
	if (renews)
		pending_until_ns[p->before.request] =
			p->before.version + p->before.expiry_ms * NS_PER_MS;
	if (!is_nested)
		own_before(p);
	p->verdict = switch_run(is_nested, &ctx, entry);
	see_blanks(p->epoch_before);
	if (renews)
		pending_until_ns[p->before.request] = 0;
	p->out.len = user_packet_read(&ctx, p->out.bytes, sizeof(p->out.bytes));
	p->first_len = ctx.linear_len;
	demand(p->out.len == user_packet_len(&ctx), "a packet stays below 4096 bytes");
	user_packet_free(&ctx);
	check_passage(p, is_nested);
	if (is_nested)
		return;
	if (!p->was_interrupted)
		own_check(p);
	interrupt_in = 0;
	bool goes_round = own_goes_round(p);
	for (__u32 rounds = 0; goes_round; rounds++) {
		demand(rounds < ROUNDS_MAX, "nothing goes round for ever");
		round_passage.in = rounds ? round_passage.out : p->out;
		come_round(&round_passage);
		own_check_round(&round_passage);
		goes_round = own_goes_round(&round_passage);
	}
}

static void agent_step(void)
{
	__u8 what = next();
	__u32 place = next_below(PLACES);
	__u8 who = next();
	if (what & 1) {
		if (is_on_probation)
			give_blank(place, 1 + (what >> 2) % ITEM_MAX_CELLS);
		evict_entry(place);
		return;
	}
	__u32 tenant = who & 1 ? tenant_ids[(who >> 1) % TENANTS] : focus.tenant;
	__u32 key = who & 1 ? (who >> 1) / TENANTS % KEYS : focus.key;
	__u32 lease = focus.store ^ (what >> 1 & 1);
	static __u8 record[VALUE_MAX_BYTES];
	__u32 len = is_own && what & 0x80 ? own_record(record, next) : 0;
	if (len ? give_entry(place, tenant, key, record, len)
		: insert_entry(place, tenant, key, lease,
			       ITEM_MAX_CELLS - (what >> 2) % ITEM_MAX_CELLS))
		oracle_inserted(place);
}

/* Reads of some keys miss, where leases hold: two of the places are too small for the longest. */
static void begin_with_blanks(__u32 threshold)
{
	((struct blanks *)put(&probation, 0))->threshold = threshold;
	for (__u32 place = 0; place < PLACES; place += 2)
		give_blank(place, 1 + 4 * place);
	for (int i = 0; i < STORES; i++) {
		struct lease *lease = put(&leases, i);
		lease->until_ns = kernel.now_ns + 10000 * NS_PER_MS;
		lease->floor = the_config()->epoch;
		lease->term = 1;
		leases_known[i] =
			(struct lease_knowledge){lease->until_ns, lease->floor, lease->term};
	}
}

static void run_script(const __u8 *bytes, size_t len)
{
	script = (struct script){bytes, len};
	memset(entries, 0, sizeof(entries));
	memset(blank_in, 0, sizeof(blank_in));
	kernel.now_ns = 1000000 * NS_PER_MS;
	for (__u32 cpu = 0; cpu < CPUS; cpu++)
		the_switch->cpu[cpu]->random = 1;
	user_interrupt = interrupt;
	oracle_reset();
	__u8 how = next();
	__u8 about = next();
	is_own = OWN_OPS_OF_256 && about & 0x80;
	is_on_probation = !OWN_OPS_OF_256 && about & 0x80;
	focus = (struct focus){tenant_ids[about % 4], about / 4 % KEYS, how >> 4 & 1};
	make_tenants(how & 1, how >> 5 & 1, 1 + (how >> 1 & 3));
	make_switch();
	own_make();
	if (is_on_probation)
		begin_with_blanks(1 + (how >> 1 & 1));
	the_config()->sample_mask = how >> 3 & 1;
	if (how >> 6 == 3)
		the_config()->source_check = SOURCE_LOOSE;
	if (how >> 6 == 2) /* the first window's reports are used up */
		for (int cpu = 0; cpu < CPUS; cpu++)
			((struct sketch *)put(&sketches, cpu))->reports_of_all = REPORTS_OF_ALL;
	for (int step = 0; step < STEPS_MAX && script.left; step++) {
		__u8 kind = next();
		if (kind < 0xc0)
			run_packet(false);
		else if (kind < 0xe0)
			agent_step();
		else if (kind < 0xf8)
			kernel.now_ns += next_word(kind & 1 ? 1 : 2) * NS_PER_MS;
		else
			the_config()->window++;
	}
}
