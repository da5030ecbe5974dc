/* isas.h - contexts of every tested ISA. */
#ifndef TEST_ISAS_H
#define TEST_ISAS_H

#include "support/attn/problem.h"

/* Creates a context for every ISA of this machine, oldest first, or only for the ISA in $MHA_ISA. Omits ISAs whose
 * attention calls the same functions as an older one: avx512vnni differs from avx512 only in layers. Returns the number
 * of contexts; fails the running test if a context cannot be created. */
int isas_create(mha_ctx *ctx[PROBLEM_ISAS], int threads);
void isas_free(mha_ctx *ctx[PROBLEM_ISAS], int count);

/* Contexts shared by a group of tests. */
extern mha_ctx *isa_contexts[PROBLEM_ISAS];
extern int isa_count;

/* Returns how many of isa_contexts differ for attention on this type: the first ones, since the newest ISAs add only
 * products of bf16, and f64 has the same functions on every ISA. */
int isa_count_of(mha_dtype dtype);

/* Setup functions for cmocka, which create isa_contexts with one, two and three threads. */
int isa_setup(void **state);
int isa_setup_two(void **state);
int isa_setup_three(void **state);
int isa_teardown(void **state);

#endif
