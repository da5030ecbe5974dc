/* golden_model.h - compares a model with golden results; shared by the two formats of `mha verify` that require a
 * model. */
#ifndef CONFORMANCE_MODELS_GOLDEN_MODEL_H
#define CONFORMANCE_MODELS_GOLDEN_MODEL_H

#include "conformance/golden_folder.h"

/* Names of the tensors that hold inputs and results of one forward pass; NULL = the format does not record the tensor.
 * Results that are missing in a file are not compared. */
typedef struct verify_names {
    const char *ids, *mask, *types, *positions; /* inputs, [L] or [B, L] */
    const char *hidden;                         /* [layers + 1, L, E]: embeddings, then each layer */
    const char *last, *pooled, *maps;           /* [(B,) L, E], [E], [layers, H, L, L] */
    const char *logits, *exact_logits;          /* [(B,) L, vocab]; if both exist, exact_logits are compared */
    /* [E] or [B, E] unit-norm mean over unmasked tokens; embedding_alt is compared if embedding is missing */
    const char *embedding, *embedding_alt;
    /* tolerances of tensors without an entry in "atol"; hidden_limit also applies to logits */
    double hidden_limit, map_limit, embedding_limit;
} verify_names;

/* Runs the model on the recorded ids and compares the results. With `text` (a string, or an array of two), also
 * compares the tokenizer's ids and, for a single text, the result of mha_model_embed. Errors in the file are stored in
 * e->error. */
void verify_forward(const verify_entry *e, const mha_file *file, const verify_names *names, const mha_model *model,
                    const json_t *text, verify_case *outcome);

/* Checks a "tokenizer" object of golden/models: one case per string and pair, grouped under the model. */
mha_status verify_tokens(const verify_entry *model, const json_t *record, const mha_tokenizer *tokenizer,
                         verify_log *log);

/* Continue the recorded prompt greedily, and compare the tokens. The long prompt exceeds the original length of a
 * rotation that depends on the sequence length. */
void verify_generate(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome);
void verify_generate_long(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome);

/* Compare a forward pass of an encoder-decoder: one sequence with hidden states and maps, and a padded batch. */
void verify_seq2seq(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome);
void verify_seq2seq_padded(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome);
/* Reads token ids [L], or [B, L]. */
int32_t *verify_ids_of(verify_memory *memory, const verify_entry *e, const mha_file *file, const char *name,
                       int64_t *batch, int64_t *length);

/* Compares a forward pass of a model of images, or of both towers of CLIP. */
void verify_vision(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome);
/* Reads pixels [B, channels, height, width], or of one image without the first dimension. */
const float *verify_pixels(verify_memory *memory, const verify_entry *e, const mha_file *file, const char *name,
                           const mha_model *vision, int64_t *batch);
/* Reads token ids [B, L] and their mask. */
mha_model_input verify_texts(verify_memory *memory, const verify_entry *e, const mha_file *file, const char *ids,
                             const char *mask);
/* Reads audio features [bins, frames], or [B, bins, frames], with the shape that the encoder of the model requires. */
void verify_features_of(verify_memory *memory, const verify_entry *e, const mha_file *file, const char *name,
                        const mha_model *model, mha_model_input *input);

/* Compares the loss of the recorded labels and the gradients of all parameters. */
void verify_train(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome);

/* Checks that `text`, truncated to `max` tokens, has these ids and types. */
void verify_ids(verify_case *c, const mha_tokenizer *tokenizer, int64_t max, const json_t *text, const int64_t *ids,
                const int64_t *types, int64_t count);

#endif
