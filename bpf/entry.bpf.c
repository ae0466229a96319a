// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The program on every interface of a switch: parse, admit, hand over to the tenant's discipline. Everything
 * that is not ours passes to the kernel as it came.
 */
#include "admit.h"
#include "discipline.h"
#include "source.h"

/* A neighbour asks whether the link between us carries anything; no process has to be scheduled for the answer. */
INLINE int answer_probe(struct xdp_md *ctx, struct work *work)
{
	work->header.op = OP_PROBE_REPLY;
	count(COUNT_probe);
	return send_back_bare(ctx, work);
}

/*
 * Leases belong to no tenant and no discipline: stores and switches agree on them here. So do probes, whose
 * answers are for the agent's socket.
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
	if (!admit_system(work))
		return ends(COUNT_drop_forged, XDP_DROP);
	return invalidate(ctx, work, config);
}

SEC("xdp.frags")
int entry(struct xdp_md *ctx)
{
	struct work *work = get_work();
	if (!work)
		return XDP_PASS;
	int verdict = parse(ctx, work);
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
	verdict = admit(ctx, work);
	if (verdict != CONTINUE)
		return verdict;
	verdict = system_message(ctx, work, config);
	if (verdict != CONTINUE)
		return verdict;
	bpf_tail_call(ctx, &programs, work->base);
	count(COUNT_bypass_no_discipline);
	return forward(ctx, work);
}

/* The program at the far end of the recirculation port. */
SEC("xdp.frags")
int comes_back(struct xdp_md *ctx)
{
	struct work *work = get_work();
	if (!work)
		return XDP_PASS;
	int verdict = parse(ctx, work);
	if (verdict != CONTINUE)
		return verdict;
	verdict = admit_again(ctx, work);
	if (verdict != CONTINUE)
		return verdict;
	return next_step(ctx, work, RECIRCULATED_STEP);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
