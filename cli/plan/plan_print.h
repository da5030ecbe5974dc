/* plan_print.h - prints the result of `mha plan`. */
#ifndef CLI_PLAN_PLAN_PRINT_H
#define CLI_PLAN_PLAN_PRINT_H

#include "command.h"

typedef struct plan_result {
    mha_plan_options model; /* the options, with defaults filled in */
    bool estimated;         /* true if model.parameters was estimated */
    bool measured;
    mha_plan_row layouts[MHA_PLAN_LAYOUTS];
    int layout_count;
    mha_plan_row variants[MHA_PLAN_VARIANTS];
    mha_plan_advice advice;
} plan_result;

/* Writes the result as --json, --csv or tables. Returns an exit code. */
int plan_print(cli_session *session, const plan_result *result);

#endif
