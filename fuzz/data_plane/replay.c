// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The same without libFuzzer: runs every file that is named, then as many noisy ones as asked for, always the
 * same ones, and says how often each counter of the data plane rose: replay [--noise COUNT] FILE...
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);
void report_coverage(FILE *to);

static uint64_t state = 1;

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

/* Some bytes changed. */
static void change(uint8_t *bytes, size_t len)
{
	for (uint32_t times = 1 + noise() % 8; len && times; times--)
		bytes[noise() % len] = noise();
}

int main(int argc, char **argv)
{
	static uint8_t bytes[INPUT_MAX];
	unsigned long rounds = 0, runs = 0;
	int first = 1;
	if (argc > 2 && !strcmp(argv[1], "--noise")) {
		rounds = strtoul(argv[2], NULL, 10);
		first = 3;
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
