/* train_data.h - training data: the order of sequences, masked tokens, and a digest of what a training run reads.
 *
 *     for (int64_t n = 0; n < steps * batch; n++) {
 *         const int64_t sequence = mha_train_sequence_order(seed, n / count, n % count, count);
 *         read_sequence(sequence, ids);                                      of length tokens, by the caller
 *         mha_train_mask_tokens(tokenizer, &options, n, ids, labels, &err);  encoders only: options.length is length
 *     }
 *
 * Order and masks are functions of a seed and an index: a resumed training run needs its step count, and no generator
 * state. `mha train` uses these functions. Results are the same on every machine and for any number of threads. All
 * functions may be called from any thread and allocate nothing.
 */
#ifndef MHA_TRAIN_DATA_H
#define MHA_TRAIN_DATA_H

#include "mha/layer.h"
#include "mha/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- order ---- */

/* The sequence, 0 .. count - 1, at position `index` of epoch `epoch`: a permutation of all sequences per epoch, each
 * once. Returns -1 unless 0 <= index < count <= 2^60. Any epoch is valid, negative ones too. Constant time and memory:
 * a Feistel cipher of four rounds over the next power of 4, iterated until its value is in range (Black and Rogaway
 * 2002). */
MHA_API int64_t mha_train_sequence_order(uint64_t seed, int64_t epoch, int64_t index, int64_t count);

/* ---- masked tokens (MLM) ---- */

typedef struct mha_train_mask_options {
    size_t size;
    int64_t length;  /* tokens of the sequence, >= 1 */
    int64_t vocab;   /* token ids are 0 .. vocab - 1; 1 .. 2^31 */
    double fraction; /* of the tokens that are not special, (0, 1]; rounded to nearest, at least one token */
    int32_t mask;    /* token id of [MASK] */
    uint64_t seed;
} mha_train_mask_options;

/* Selects tokens to predict (Devlin et al. 2018). labels [length] is the original id of each selected token and
 * MHA_IGNORE elsewhere; of the selected ids, 80 % become `mask`, 10 % a random id, and 10 % are kept. Special tokens
 * are never selected; a sequence of special tokens only has no labels. `index` is the number of the sequence since the
 * start of the run: the same index gives the same selection. `ids` [length] is changed in place.
 * Errors: MHA_ERR_ARG for NULL or an option out of its range, naming it; ids and labels are unchanged then. */
MHA_API mha_status mha_train_mask_tokens(const mha_tokenizer *tokenizer, const mha_train_mask_options *options,
                                         int64_t index, int32_t *ids, int32_t *labels, mha_error *err);

/* ---- digest ---- */

/* A 64-bit hash (after Fowler, Noll and Vo) that tells whether two runs read the same data. It detects accidents, not
 * attacks. Plain memory, {0} at first. */
typedef struct mha_train_digest {
    uint64_t lane[4]; /* internal: independent, so that words are hashed in parallel */
} mha_train_digest;

/* Adds bytes, in words of four; how data are split between calls changes the digest unless each part but the last has a
 * multiple of 16 bytes. `digest` NULL, or `data` NULL: nothing is added. */
MHA_API void mha_train_digest_add(mha_train_digest *digest, const void *data, size_t bytes);
/* Adds one number, such as a length. `digest` may be NULL. */
MHA_API void mha_train_digest_add_number(mha_train_digest *digest, uint64_t number);
/* Writes the digest so far as 16 hexadecimal digits and a NUL; of NULL, an empty string. `text` may be NULL. */
MHA_API void mha_train_digest_text(const mha_train_digest *digest, char text[17]);

#ifdef __cplusplus
}
#endif
#endif
