/* golden_model.h - checking a model against recorded results, shared by both formats of `mha verify` that need one. */
#ifndef CONFORMANCE_MODELS_GOLDEN_MODEL_H
#define CONFORMANCE_MODELS_GOLDEN_MODEL_H

#include "conformance/golden_folder.h"

/* Where a file keeps what one forward pass took and gave; NULL = this format has no such tensor. Those of the results
 * may also be absent from a file: what is there is compared. */
typedef struct verify_names {
    const char *ids, *mask, *types, *positions; /* [L] or [B, L] */
    const char *hidden;                         /* [layers + 1, L, E]: embeddings, then each layer */
    const char *last, *pooled, *maps;           /* [(B,) L, E], [E], [layers, H, L, L] */
    const char *logits;                         /* [(B,) L, vocab] */
    const char *embedding, *embedding_alt; /* mean over the mask, length 1: [E] or [B, E]; the first that is there */
    double hidden_limit, map_limit, embedding_limit; /* logits have that of hidden */
} verify_names;

/* Runs the model on the recorded ids and compares. With `text` (a string, or an array of two), the tokenizer must give
 * those ids, and for a single text mha_model_embed the recorded embedding. A fault of the file is left in e->error. */
void verify_forward(const verify_entry *e, const mha_file *file, const verify_names *names, const mha_model *model,
                    const json_t *text, verify_case *outcome);

/* A "tokenizer" object of golden/models: one case for each string and pair, in the group of the model. */
mha_status verify_tokens(const verify_entry *model, const json_t *record, const mha_tokenizer *tokenizer,
                         verify_log *log);

/* Writes on after the recorded prompt, greedily: the recorded tokens. */
void verify_generate(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome);

/* The loss of the recorded labels, and the gradients of all parameters. */
void verify_train(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome);

/* `text` must give these ids and types when cut at `most` tokens. */
void verify_ids(verify_case *c, const mha_tokenizer *tokenizer, int64_t most, const json_t *text, const int64_t *ids,
                const int64_t *types, int64_t count);

#endif
