// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The data plane as an ordinary program: bytes in are a script of packets, clock steps and the agent's work
 * (script.h); after each packet an oracle (oracle.h) that knows the rules but not the code says whether what
 * came out may be. libFuzzer calls it, or replay.c. fuzz/build names the discipline's file (DISCIPLINE) and its
 * programs in the order of the steps (STEPS).
 */
#include "entry.bpf.c"
#define LICENSE license_of_the_discipline
#include DISCIPLINE
#undef LICENSE

#include "view.h"
#include "world.h"
#include "oracle.h"
#include "script.h"

static int (*const steps[])(struct xdp_md *ctx) = {STEPS};

int LLVMFuzzerTestOneInput(const __u8 *bytes, size_t len);
void report_coverage(FILE *to);
bool choose_mutant(const char *name);

int LLVMFuzzerTestOneInput(const __u8 *bytes, size_t len)
{
	host.steps = steps;
	host.step_count = sizeof(steps) / sizeof(steps[0]);
	run_script(bytes, len);
	host_tables_clear();
	return 0;
}

/* Breaks a rule from now on; false if no mutant has that name, or the build has none. */
bool choose_mutant(const char *name)
{
#ifdef MUTANTS
#define X(mutant, rule, breaks)                                                                    \
	if (!strcmp(name, #mutant))                                                                \
		chosen_mutant = MUTANT_##mutant;
	MUTANT_LIST(X)
#undef X
#endif
	(void)name;
	return chosen_mutant;
}

/* One line for each counter: how often the inputs so far made it rise. */
void report_coverage(FILE *to)
{
	for (int i = 0; i < COUNT_MAX; i++)
		fprintf(to, "%s %llu\n", names[i], totals[i]);
}
