/* plan_print.h - the result of `mha plan`, and how it is printed. */
#ifndef CLI_PLAN_PLAN_PRINT_H
#define CLI_PLAN_PLAN_PRINT_H

#include "command.h"

typedef struct plan_result {
    mha_plan_options model; /* with its defaults */
    bool estimated;         /* model.parameters is */
    bool measured;
    mha_plan_row layouts[MHA_PLAN_LAYOUTS];
    int layout_count;
    mha_plan_row variants[MHA_PLAN_VARIANTS];
    mha_plan_advice advice;
} plan_result;

/* Writes it as --json, --csv or tables, and returns an exit code. */
int plan_print(cli_session *session, const plan_result *result);

#endif
