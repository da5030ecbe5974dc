/* forward_tensors.h - what runs through a model on one sequence, kept as named tensors: logits, hidden states,
 * attention maps. */
#ifndef CLI_RUN_FORWARD_TENSORS_H
#define CLI_RUN_FORWARD_TENSORS_H

#include "command.h"

typedef struct tap {
    const mha_model *model;
    int64_t length, vocab;
    float *logits; /* [rows, vocab]: of every token, or of the last one; NULL if the checkpoint has none */
    int64_t rows;  /* length or 1 */
    mha_named_tensor *list;
    int64_t count; /* "logits" [L, vocab]; "hidden.N" [L, E], 0 the embeddings; "attn.N" [heads, L, L] of layer N, or
                    * "attn.N.H" [L, L] of a chosen head by its original number; "row_entropy.N" and the like
                    * [heads, L] */
    char (*names)[32];
    const mha_model_head *heads; /* those that were chosen */
    int64_t hidden;              /* E */
    bool out_of_memory;
} tap;

/* What to keep. */
enum { TAP_ALL_LOGITS = 1, TAP_HIDDEN = 2, TAP_ATTENTIONS = 4, TAP_STATS = 8 };
typedef struct tap_wish {
    unsigned keep;
    const mha_model_head *heads; /* [head_count] ascending: the maps of these alone; NULL = all */
    int64_t head_count;
} tap_wish;

/* Runs ids [length] through the model. A checkpoint without logits is refused unless something else is wanted too; that
 * they are missing is said then. Returns an exit code; tap_free in any case. */
int tap_run(cli_session *session, const mha_model *model, const int32_t *ids, int64_t length, const tap_wish *wish,
            tap *t);
void tap_free(tap *t);

#endif
