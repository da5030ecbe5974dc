/* isas.c - see isas.h. */
#include "support/isas.h"

mha_ctx *isa_contexts[PROBLEM_ISAS];
int isa_count;

int isa_setup(void **state)
{
    (void)state;
    isa_count = problem_contexts(isa_contexts, 1);
    return 0;
}

int isa_teardown(void **state)
{
    (void)state;
    problem_contexts_free(isa_contexts, isa_count);
    return 0;
}
