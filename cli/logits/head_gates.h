/* head_gates.h - the head gates of `mha logits --gates`, with the numbers that a page of `mha live` shows. */
#ifndef CLI_LOGITS_HEAD_GATES_H
#define CLI_LOGITS_HEAD_GATES_H

#include "command.h"
#include "input/sequence.h"

typedef struct head_gates {
    float *gates; /* [layers, heads] as in mha_model_input; NULL = ones */
    float *means; /* [layers, heads, head_dim] mean outputs of the heads over the sequence; NULL without `mean` */
    float *fills; /* [layers, heads, head_dim] (1 - gate) means, or NULL */
} head_gates;

/* Parses LAYER.HEAD=GATE,... into gates, with 1 for other heads. With `mean`, a head gets the fill (1 - gate) times its
 * mean output over the sequence, so that a gate of 0 is mean ablation. If `text` is NULL, all gates are 1, and are
 * allocated only if `settable`. Returns an exit code; call head_gates_free even after an error. */
int head_gates_read(const cli_session *session, const mha_model *model, const char *text, bool mean, bool settable,
                    const cli_sequence *sequence, head_gates *g);
/* Sets the gate of a head, layer * heads + index, and its fill. */
void head_gates_set(head_gates *g, const mha_model_info *info, int64_t head, float gate);
void head_gates_free(head_gates *g);

#endif
