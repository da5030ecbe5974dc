/* forward_tensors.h - copies the tensors of one forward pass by name: logits, hidden states, attention maps. */
#ifndef CLI_RUN_FORWARD_TENSORS_H
#define CLI_RUN_FORWARD_TENSORS_H

#include "command.h"

typedef struct tap {
    const mha_model *model;
    int64_t length, vocab;
    float *logits; /* [rows, vocab] for all tokens, or for the last token; NULL if the checkpoint has no output head */
    int64_t rows;  /* sequence length L, or 1 */
    /* [count] tensors: "logits" [L, vocab]; "hidden.N" [L, E], where hidden.0 contains the embeddings; "attn.N"
     * [heads, L, L] of layer N, or "attn.N.H" [L, L] of selected head H by its original number; "row_entropy.N" and
     * other row statistics [heads, L] */
    mha_named_tensor *list;
    int64_t count;
    char (*names)[32];
    const mha_model_head *heads; /* the next selected head to copy; NULL = all heads */
    int64_t hidden;              /* hidden size E */
    bool out_of_memory;
} tap;

/* The tensors to copy. */
enum { TAP_ALL_LOGITS = 1, TAP_HIDDEN = 2, TAP_ATTENTIONS = 4, TAP_STATS = 8 };
typedef struct tap_wish {
    unsigned keep;
    const mha_model_head *heads; /* [head_count] ascending: heads whose maps are copied; NULL = all */
    int64_t head_count;
} tap_wish;

/* Runs a forward pass on ids [length] and copies the tensors of `wish`. A checkpoint without logits is an error unless
 * other tensors are requested; then only a log line reports the missing logits. Returns an exit code; call tap_free
 * even after an error. */
int tap_run(cli_session *session, const mha_model *model, const int32_t *ids, int64_t length, const tap_wish *wish,
            tap *t);
void tap_free(tap *t);

#endif
