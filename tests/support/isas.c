/* isas.c - implements the setup functions of isas.h. */
#include "support/isas.h"

mha_ctx *isa_contexts[PROBLEM_ISAS];
int isa_count;

static int make(int threads)
{
    isa_count = problem_contexts(isa_contexts, threads);
    return 0;
}

int isa_setup(void **state)
{
    (void)state;
    return make(1);
}

int isa_setup_two(void **state)
{
    (void)state;
    return make(2);
}

int isa_setup_three(void **state)
{
    (void)state;
    return make(3);
}

int isa_teardown(void **state)
{
    (void)state;
    problem_contexts_free(isa_contexts, isa_count);
    return 0;
}
