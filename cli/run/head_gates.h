/* head_gates.h - the head gates of `mha logits --gates`, with the numbers that a page of `mha live` shows. */
#ifndef CLI_RUN_HEAD_GATES_H
#define CLI_RUN_HEAD_GATES_H

#include "command.h"
#include "input/sequence.h"

typedef struct head_gates {
    float *gates; /* [layers, heads] as in mha_model_input; NULL without --gates */
    float *fills; /* [layers, heads, head_dim], or NULL */
} head_gates;

/* Parses LAYER.HEAD=GATE,... into gates, with 1 for other heads. With `mean`, a head gets the fill (1 - gate) times its
 * mean output over the sequence, so that a gate of 0 is mean ablation. Returns an exit code; call head_gates_free even
 * after an error. */
int head_gates_read(const cli_session *session, const mha_model *model, const char *text, bool mean,
                    const cli_sequence *sequence, head_gates *g);
void head_gates_free(head_gates *g);

#endif
