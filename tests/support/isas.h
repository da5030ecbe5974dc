/* isas.h - setup functions that create one context per tested ISA, shared by a group of tests. */
#ifndef TEST_ISAS_H
#define TEST_ISAS_H

#include "support/attn/problem.h"

extern mha_ctx *isa_contexts[PROBLEM_ISAS];
extern int isa_count;

/* Setup functions for cmocka, which create contexts with one, two and three threads. */
int isa_setup(void **state);
int isa_setup_two(void **state);
int isa_setup_three(void **state);
int isa_teardown(void **state);

#endif
