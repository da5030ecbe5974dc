/* plan_print.h - the result of `mha plan`, and how it is printed. */
#ifndef CLI_PLAN_PRINT_H
#define CLI_PLAN_PRINT_H

#include "command.h"

/* A row, and why it could not be measured; empty when it was, or need not be. */
typedef struct plan_line {
    mha_plan_row row;
    char refused[1024];
} plan_line;

typedef struct plan_result {
    mha_plan_options model; /* with its defaults */
    bool estimated;         /* model.parameters is */
    bool measured;
    plan_line layouts[MHA_PLAN_LAYOUTS];
    int layout_count;
    plan_line variants[MHA_PLAN_VARIANTS];
    mha_plan_advice advice;
} plan_result;

/* Writes it as --json, --csv or tables, and returns an exit code. */
int plan_print(cli_session *session, const plan_result *result);

#endif
