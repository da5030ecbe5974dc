/* plan_print.h - prints the result of `mha plan`. */
#ifndef CLI_PLAN_PLAN_PRINT_H
#define CLI_PLAN_PLAN_PRINT_H

#include "command.h"

typedef struct plan_result {
    mha_head_layout_options model; /* the options, with defaults set */
    bool estimated;                /* true if model.parameters was estimated */
    bool measured;
    mha_head_layout layouts[MHA_HEAD_LAYOUTS];
    int layout_count;
    mha_head_layout variants[MHA_HEAD_LAYOUT_VARIANTS];
    mha_head_layout_advice advice;
} plan_result;

/* Writes the result as --json, --csv or tables. Returns an exit code. */
int plan_print(cli_session *session, const plan_result *result);

#endif
