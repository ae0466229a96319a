// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The data plane as an ordinary program: bytes in are a script of packets, clock steps and the
 * agent's work (script.h); after each packet an oracle (oracle.h) that knows the rules but not the
 * code says whether what came out may be. libFuzzer calls it, or replay.c. fuzz/build names the
 * discipline's file (DISCIPLINE), its programs in the order of the steps (STEPS), and what its
 * folder adds to script and oracle, if anything (OWN).
 */
#include <stdio.h>

#include "entry.bpf.c"
#define LICENSE license_of_the_discipline
#include DISCIPLINE
#undef LICENSE

/* The list of tables is made from this file. */
#ifndef USER_LIST
#include "switch.h"
#include "view.h"
#include "world.h"
#ifndef OWN
#define OWN "own.h"
#endif
#include "oracle.h"
#include OWN
#include "script.h"

#ifdef OWN_STEPS
#undef STEPS
#define STEPS OWN_STEPS
#endif
static int (*const steps[])(struct xdp_md *ctx) = {STEPS};

static void make_switch_once(void)
{
	if (!the_switch)
		switch_new(steps, sizeof(steps) / sizeof(steps[0]));
}

int LLVMFuzzerTestOneInput(const __u8 *bytes, size_t len);
void report_coverage(FILE *to);
bool choose_mutant(const char *name);

int LLVMFuzzerTestOneInput(const __u8 *bytes, size_t len)
{
	make_switch_once();
	run_script(bytes, len);
	user_switch_clear(the_switch);
	return 0;
}

/* Breaks a rule from now on; false if no mutant has that name, or the build has none. */
bool choose_mutant(const char *name)
{
	make_switch_once();
#ifdef MUTANTS
#define X(number, other, rule, breaks)                                                             \
	if (!strcmp(name, #other))                                                                 \
		the_switch->mutant = MUTANT_##other;
	MUTANT_LIST(X)
	OWN_MUTANTS(X)
#undef X
#endif
	(void)name;
	return the_switch->mutant;
}

/* One line for each counter: how often the inputs so far made it rise. */
void report_coverage(FILE *to)
{
	for (int i = 0; i < COUNT_MAX; i++)
		if (names[i])
			fprintf(to, "%s %llu\n", names[i], totals[i]);
}
#endif
