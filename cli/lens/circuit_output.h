/* circuit_output.h - the output of `mha circuit`. */
#ifndef CLI_LENS_CIRCUIT_OUTPUT_H
#define CLI_LENS_CIRCUIT_OUTPUT_H

#include "commands.h"

/* The measured circuits of a model. */
typedef struct circuits {
    const mha_model *model;
    const mha_model_info *info;
    mha_weight_circuits *c;
    mha_circuit_kind compose;
    mha_model_head singular; /* head whose values are listed; layer -1 = none */
    bool raw;                /* the weights are measured as stored, without folded norms */
} circuits;

/* Writes the page of --out, if it is given, and the circuits as JSON, CSV or tables. Returns an exit code. */
int circuits_put(cli_session *s, const circuits *x);

#endif
