/* head_effects.h - the effect of every head on the prediction, with the numbers that a page of `mha live` shows. */
#ifndef CLI_LOGITS_HEAD_EFFECTS_H
#define CLI_LOGITS_HEAD_EFFECTS_H

#include "logits/forward_tensors.h"
#include "logits/head_gates.h"
#include <jansson.h>

typedef struct head_effects {
    const mha_model *model;
    double *values; /* [layers, heads]; a pruned layer uses only the first entries */
} head_effects;

/* Runs the sequence once per head, with the head switched: off, or on if its gate is 0. The effect of the head is the
 * divergence KL(request || switched) in bits of the predictions after token `at`; for a model without logits, 1 - the
 * cosine of the mean hidden states. `gates` are the gates and fills of `request`, which are the same after the call.
 * Returns an exit code; call head_effects_free even after an error. */
int head_effects_measure(const cli_session *session, const mha_model *model, const cli_sequence *sequence, int64_t at,
                         const capture_request *request, head_gates *gates, head_effects *effects);
void head_effects_free(head_effects *effects);

/* Returns [{head, effect}]. */
json_t *head_effects_json(const head_effects *effects);
/* Prints a line per head. */
void head_effects_print(const cli_session *session, const head_effects *effects);

#endif
