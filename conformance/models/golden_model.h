/* golden_model.h - compares a model with golden results; shared by both formats of `mha verify` that need a model. */
#ifndef CONFORMANCE_MODELS_GOLDEN_MODEL_H
#define CONFORMANCE_MODELS_GOLDEN_MODEL_H

#include "conformance/golden_folder.h"

/* Names of the tensors that hold inputs and results of one forward pass; NULL = this format does not record the tensor.
 * Result tensors may be missing from a file: those that exist are compared. */
typedef struct verify_names {
    const char *ids, *mask, *types, *positions; /* [L] or [B, L] */
    const char *hidden;                         /* [layers + 1, L, E]: embeddings, then each layer */
    const char *last, *pooled, *maps;           /* [(B,) L, E], [E], [layers, H, L, L] */
    const char *logits, *exact_logits;          /* [(B,) L, vocab]; exact_logits are compared where both exist */
    /* mean over the mask, unit-norm: [E] or [B, E]; the first name that exists */
    const char *embedding, *embedding_alt;
    /* for tensors without an entry in "atol"; logits use the tolerance of hidden */
    double hidden_limit, map_limit, embedding_limit;
} verify_names;

/* Runs the model on the recorded ids and compares. With `text` (a string, or an array of two), the tokenizer must give
 * the recorded ids and, for a single text, mha_model_embed the recorded embedding. Errors of the file are returned in
 * e->error. */
void verify_forward(const verify_entry *e, const mha_file *file, const verify_names *names, const mha_model *model,
                    const json_t *text, verify_case *outcome);

/* A "tokenizer" object of golden/models: one case per string and pair, grouped under the model. */
mha_status verify_tokens(const verify_entry *model, const json_t *record, const mha_tokenizer *tokenizer,
                         verify_log *log);

/* Continues the recorded prompt greedily; must give the recorded tokens. The second: a prompt beyond the original
 * length of a rotation that depends on the length. */
void verify_generate(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome);
void verify_generate_long(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome);

/* Compares the loss of the recorded labels and the gradients of all parameters. */
void verify_train(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome);

/* `text`, truncated to `most` tokens, must give these ids and types. */
void verify_ids(verify_case *c, const mha_tokenizer *tokenizer, int64_t most, const json_t *text, const int64_t *ids,
                const int64_t *types, int64_t count);

#endif
