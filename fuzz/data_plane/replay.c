// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The same without libFuzzer: runs every file that is named, then as many noisy ones as asked for,
 * always the same ones, and says how often each counter of the data plane rose: replay [--mutant
 * NAME] [--noise COUNT] FILE... With a mutant of bpf/mutants.h the oracle has to object.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);
void report_coverage(FILE *to);
bool choose_mutant(const char *name);

static uint64_t state = 1;
/* Inputs that ran, the one under way not among them. */
static unsigned long runs;

static uint32_t noise(void)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return state >> 33;
}

/* Exactly as large as the input, so that reads behind it are seen. */
static void run(const uint8_t *bytes, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	if (!copy)
		abort();
	memcpy(copy, bytes, len);
	LLVMFuzzerTestOneInput(copy, len);
	free(copy);
}

static size_t read_file(const char *path, uint8_t *to)
{
	FILE *file = fopen(path, "rb");
	if (!file) {
		perror(path);
		exit(2);
	}
	size_t len = fread(to, 1, INPUT_MAX, file);
	fclose(file);
	return len;
}

/* The oracle aborts at the first violation. */
static void say_how_far(int signal_number)
{
	(void)signal_number;
	fprintf(stderr, "in input %lu\n", runs + 1);
}

/* Some bytes changed. */
static void change(uint8_t *bytes, size_t len)
{
	for (uint32_t times = 1 + noise() % 8; len && times; times--)
		bytes[noise() % len] = noise();
}

int main(int argc, char **argv)
{
	static uint8_t bytes[INPUT_MAX];
	unsigned long rounds = 0;
	int first = 1;
	signal(SIGABRT, say_how_far);
	if (argc > first + 1 && !strcmp(argv[first], "--mutant")) {
		if (!choose_mutant(argv[first + 1])) {
			fprintf(stderr, "replay: no mutant has the name %s\n", argv[first + 1]);
			return 2;
		}
		first += 2;
	}
	if (argc > first + 1 && !strcmp(argv[first], "--noise")) {
		rounds = strtoul(argv[first + 1], NULL, 10);
		first += 2;
	}
	for (int i = first; i < argc; i++, runs++)
		run(bytes, read_file(argv[i], bytes));
	for (unsigned long round = 0; round < rounds; round++, runs++) {
		size_t len = noise() % 512;
		if (first < argc && round % 4) {
			len = read_file(argv[first + noise() % (argc - first)], bytes);
			change(bytes, len);
		} else {
			for (size_t i = 0; i < len; i++)
				bytes[i] = noise();
		}
		run(bytes, len);
	}
	report_coverage(stdout);
	printf("%lu inputs, no violation\n", runs);
	return 0;
}
