/* forward_tensors.h - the intermediate tensors of a model on one sequence, by name: logits, hidden states, attention
 * maps. */
#ifndef CLI_RUN_FORWARD_TENSORS_H
#define CLI_RUN_FORWARD_TENSORS_H

#include "command.h"

typedef struct tap {
    const mha_model *model;
    int64_t length, vocab;
    float *logits; /* [rows, vocab] for all tokens, or for the last token; NULL if the checkpoint has no output head */
    int64_t rows;  /* sequence length, or 1 */
    mha_named_tensor *list;
    /* "logits" [L, vocab]; "hidden.N" [L, E], where 0 is the embeddings; "attn.N" [heads, L, L] of layer N, or
     * "attn.N.H" [L, L] of a selected head by its original number; "row_entropy.N" and other row statistics [heads, L]
     * */
    int64_t count;
    char (*names)[32];
    const mha_model_head *heads; /* the selected tensors */
    int64_t hidden;              /* hidden size E */
    bool out_of_memory;
} tap;

/* Which tensors to copy. */
enum { TAP_ALL_LOGITS = 1, TAP_HIDDEN = 2, TAP_ATTENTIONS = 4, TAP_STATS = 8 };
typedef struct tap_wish {
    unsigned keep;
    const mha_model_head *heads; /* [head_count] ascending: heads whose maps are copied; NULL = all */
    int64_t head_count;
} tap_wish;

/* Runs ids [length] through the model. A checkpoint without logits is an error unless other tensors are requested;
 * then a log line reports the missing logits. Returns an exit code; call tap_free even after an error. */
int tap_run(cli_session *session, const mha_model *model, const int32_t *ids, int64_t length, const tap_wish *wish,
            tap *t);
void tap_free(tap *t);

#endif
