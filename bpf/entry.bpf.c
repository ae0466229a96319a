// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The program on every interface of a switch: parse, admit, hand over to the tenant's discipline.
 * Everything that is not ours passes to the kernel as it came.
 */
#include "address.h"
#include "admit.h"
#include "discipline.h"
#include "source.h"
#include "writeback.h"

/*
 * A neighbour asks whether the link between us carries anything; no process has to be scheduled for
 * the answer.
 */
INLINE int answer_probe(struct xdp_md *ctx, struct work *work)
{
	if (!is_trusted(ctx, work))
		return ends(COUNT_drop_spoiled, XDP_DROP);
	work->header.op = OP_PROBE_REPLY;
	count(COUNT_probe);
	return send_back_bare(ctx, work);
}

/*
 * Leases belong to no tenant and no discipline: stores and switches agree on them here. So do
 * probes, whose answers are for the agent's socket.
 */
INLINE int system_message(struct xdp_md *ctx, struct work *work, struct config *config)
{
	if (work->header.tenant != bpf_htonl(TENANT_SYSTEM))
		return CONTINUE;
	if (work->op == OP_PROBE_REPLY)
		return forward(ctx, work);
	if (!names_this_switch(work, config))
		return CONTINUE;
	switch (work->op) {
	case OP_LEASE_OFFER:
		return ask_for_lease(ctx, work);
	case OP_LEASE_REPLY:
		return take_lease(ctx, work, config);
	case OP_PROBE_REQUEST:
		return answer_probe(ctx, work);
	default:
		return CONTINUE;
	}
}

/* Nobody else may hear of it: behind this switch's address there is no one to acknowledge it. */
INLINE int called_back(struct xdp_md *ctx, struct work *work, struct config *config)
{
	if (!admit_system(work, config))
		return ends(COUNT_drop_forged, XDP_DROP);
	return invalidate(ctx, work, config);
}

/*
 * Likewise what is said about a loan of which this switch has a part, whether or not the tenant is
 * known here.
 */
INLINE int about_loan(struct xdp_md *ctx, struct work *work, struct config *config)
{
	if (!admit_system(work, config))
		return ends(COUNT_drop_forged, XDP_DROP);
	tail_call_to(ctx, &programs, LOAN_MESSAGES);
	count(COUNT_bypass_no_step);
	return forward(ctx, work);
}

/*
 * To the tenant's discipline. Its number is in the tenant's entry, and yet each is a place known
 * when compiling.
 */
INLINE int to_discipline(struct xdp_md *ctx, struct work *work)
{
#pragma unroll
	for (__u32 number = 0; number < NO_DISCIPLINE; number++)
		if (work->base == number * PROGRAMS_PER_DISCIPLINE)
			tail_call_to(ctx, &programs, number * PROGRAMS_PER_DISCIPLINE);
	count(COUNT_bypass_no_discipline);
	return forward(ctx, work);
}

SEC("xdp.frags")
int entry(struct xdp_md *ctx)
{
	struct work *work;
	struct cursor cursor = cursor_at(ctx);
	int verdict = parse_headers(&cursor, &work);
	if (verdict != CONTINUE)
		return verdict;
	if (unlikely(!is_for_this_port(ctx)))
		return ends(COUNT_pass_other_mac, XDP_PASS);
	verdict = parse_message(ctx, &cursor, work);
	if (verdict != CONTINUE)
		return verdict;
	struct config *config = get_config();
	if (!config)
		return XDP_PASS;
	if (config->source_check) {
		verdict = check_source(ctx, work, config->source_check);
		if (verdict != CONTINUE)
			return verdict;
	}
	if (work->op == OP_INVALIDATE && names_this_switch(work, config))
		return called_back(ctx, work, config);
	if (is_about_loan(work, config))
		return about_loan(ctx, work, config);
	verdict = admit(ctx, work, config);
	if (verdict != CONTINUE)
		return verdict;
	verdict = system_message(ctx, work, config);
	if (verdict != CONTINUE)
		return verdict;
	if (work->flags & TENANT_WRITE_BACK)
		tail_call_to(ctx, &programs, LENT_PACKETS);
	return to_discipline(ctx, work);
}

/* What clients of a tenant say whose keys may be lent. */
SEC("xdp.frags")
int lent_packet(struct xdp_md *ctx)
{
	struct work *work = get_work();
	struct config *config = get_config();
	struct lent lent = {};
	if (!work || !config)
		return XDP_PASS;
	__u32 id = bpf_ntohl(work->header.tenant);
	if (work->op == OP_READ_REQUEST && !is_part(&work->header) && find_owned(work, &lent))
		return lent_read(ctx, work, config, &lent);
	if (work->op == OP_WRITE_REQUEST) {
		struct tenant *tenant = bpf_map_lookup_elem(&tenants, &id);
		if (tenant && find_owned(work, &lent))
			return lent_write(ctx, work, config, tenant, &lent);
		name_second(ctx, work, config);
	}
	return to_discipline(ctx, work);
}

/* What switches and stores say to this switch about loans. */
SEC("xdp.frags")
int loan_message(struct xdp_md *ctx)
{
	struct work *work = get_work();
	struct config *config = get_config();
	if (!work || !config)
		return XDP_PASS;
	switch (work->op) {
	case OP_KEEP_REQUEST:
		return keep_request(ctx, work);
	case OP_KEEP_REPLY:
		return kept_reply(ctx, work, config);
	case OP_LEND_REQUEST:
		return lend_request(ctx, work, config);
	default:
		return take_request(ctx, work, config);
	}
}

/* The program at the far end of the recirculation port. */
SEC("xdp.frags")
int comes_back(struct xdp_md *ctx)
{
	struct work *work;
	int verdict = parse(ctx, &work);
	if (verdict != CONTINUE)
		return verdict;
	struct config *config = get_config();
	if (!config)
		return XDP_PASS;
	verdict = admit_again(ctx, work, config);
	if (verdict != CONTINUE)
		return verdict;
	return next_step(ctx, work, RECIRCULATED_STEP);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
