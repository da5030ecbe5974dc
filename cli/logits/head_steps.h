/* head_steps.h - the steps of attention of one head for one token, with the numbers that a page of `mha live` shows. */
#ifndef CLI_LOGITS_HEAD_STEPS_H
#define CLI_LOGITS_HEAD_STEPS_H

#include "input/sequence.h"
#include "logits/forward_tensors.h"
#include <jansson.h>

typedef struct head_steps {
    const mha_model *model;
    mha_model_head head; /* layer and index */
    int64_t at;          /* the query token */
    int64_t count, D;    /* tokens, head_dim */
    float *q, *out;      /* [D] query; output of the head, with its gate and fill */
    float *k, *v;        /* [count, D] */
    float *weights;      /* [count] */
    double *scores;      /* [count] before softcap, masks and position terms */
    mha_status status;   /* of reading the activations of the layer */
    mha_error error;
} head_steps;

/* Finds the head with the name LAYER.HEAD. Returns an exit code. */
int head_steps_find(const cli_session *session, const mha_model *model, const char *name, mha_model_head *head);
/* Runs the sequence, and copies the steps of steps->head for token `at`. Returns an exit code; call head_steps_free
 * even after an error. */
int head_steps_read(const cli_session *session, const mha_model *model, const cli_sequence *sequence, int64_t at,
                    const capture_request *request, head_steps *steps);
void head_steps_free(head_steps *steps);

/* Returns {head, at, q, keys: [{token, score, weight, k, v}], output}. */
json_t *head_steps_json(const head_steps *steps, const cli_sequence *sequence);
/* Prints a line per key: score, weight, length of the value, and their product. */
void head_steps_print(const cli_session *session, const head_steps *steps, const cli_sequence *sequence);

#endif
