/* train_data.h - training data: token sequences from texts or token files, their order, masked tokens, and a digest of
 * the data that a training run reads.
 *
 *     mha_train_data *data;
 *     mha_train_data_create(ctx, &options, &data, &err);
 *     mha_train_data_add_file(data, "tokens.npy", &err);                      or texts, with mha_train_data_add_text
 *     mha_train_data_finish(data, &err);
 *     const int64_t count = mha_train_data_describe(data)->sequences;
 *     for (int64_t n = 0; n < steps * batch; n++) {
 *         mha_train_data_sequence(data, mha_train_sequence_order(seed, n / count, n % count, count), ids);
 *         mha_train_mask_tokens(tokenizer, &mask_options, n, ids, labels, &err);  encoders only
 *     }
 *
 * Order and masks are functions of a seed and an index, so a resumed training run needs its step count, but no
 * generator state. `mha train` uses these functions. Results are the same on every machine and for any number of
 * threads.
 */
#ifndef MHA_TRAIN_DATA_H
#define MHA_TRAIN_DATA_H

#include "mha/layer.h"
#include "mha/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sequences ---- */

/* Tokens of texts or token files, divided into sequences of one length. A decoder's sequence is `length` consecutive
 * tokens, and its last token is the first of the next sequence, so every token except the first is predicted once. An
 * encoder's sequence is `length` - 2 tokens between `first` and `end`. A sequence never spans two token files. Tokens
 * that do not fill a sequence are omitted. */
typedef struct mha_train_data mha_train_data;

typedef struct mha_train_data_options {
    size_t size;
    int64_t length;                 /* tokens per sequence; at least 2 for decoders, 3 for encoders */
    int64_t vocab;                  /* number of token ids (0 .. vocab - 1), 1 .. 2^31 */
    const mha_tokenizer *tokenizer; /* tokenizer of the texts, for mha_train_data_add_text; NULL if only token files are
                                     * added */
    int causal;                     /* 1 = sequences for a decoder, 0 = for an encoder */
    int texts_apart;                /* 1 = each text is a sequence, truncated to `length`; encoders only */
    int shorten;                    /* 1 = if no sequence is full, use the longest run of tokens as a shorter one */
    int no_map;                     /* 1 = token files are copied into memory instead of being mapped */
    int32_t first;                  /* encoders: token id of [CLS] */
    int32_t end;                    /* encoders: token id of [SEP]; decoders: token id that follows each text */
} mha_train_data_options;

/* What the data contain. Only the library creates this struct; later versions may add fields at the end. */
typedef struct mha_train_data_info {
    int64_t tokens, sequences;
    int64_t length;    /* tokens per sequence: as in the options, or fewer with `shorten` */
    int64_t texts;     /* number of texts, with texts_apart */
    int64_t truncated; /* number of texts longer than a sequence, with texts_apart */
    char digest[17];   /* digest of all token ids and the ends of texts and files; detects changed data */
} mha_train_data_info;

/* Creates empty data. `ctx` must outlive the data. Errors: MHA_ERR_ARG naming an option out of range;
 * MHA_ERR_MEMORY. */
MHA_API mha_status mha_train_data_create(mha_ctx *ctx, const mha_train_data_options *options, mha_train_data **out,
                                         mha_error *err);
MHA_API void mha_train_data_free(mha_train_data *data);

/* Appends a UTF-8 text, or a part of one: `last` is 1 if the text ends here. Dividing a long text into parts at line
 * ends reduces memory; each part is tokenized separately. Tokens take 2 bytes each if `vocab` is at most 65536, else 4.
 * Errors: those of mha_tokenizer_encode; MHA_ERR_FORMAT ("tokenizer.json: ...") for a token id that is not below
 * `vocab`; MHA_ERR_ARG without a tokenizer; MHA_ERR_MEMORY. */
MHA_API mha_status mha_train_data_add_text(mha_train_data *data, const char *text, size_t bytes, int last,
                                           mha_error *err);

/* Appends a file of token ids and checks every id. The file name must end in .npy (uint16, int32 or int64 ids) or in
 * .bin (16-bit ids, as in nanoGPT, or a file with the header of llm.c). The file is mapped and must not change during
 * the life of the data (io.h). Errors: MHA_ERR_IO; MHA_ERR_FORMAT for another format, or for an id outside the
 * vocabulary, naming its position; MHA_ERR_CANCELED. */
MHA_API mha_status mha_train_data_add_file(mha_train_data *data, const char *path, mha_error *err);

/* Completes the data: nothing may be added afterwards, and sequences may be read by any number of threads. Errors:
 * MHA_ERR_FORMAT if the tokens do not fill one sequence (with `shorten`: fewer than 2 tokens for a decoder, or 1 for an
 * encoder), and for `end` outside the vocabulary; MHA_ERR_CANCELED. */
MHA_API mha_status mha_train_data_finish(mha_train_data *data, mha_error *err);

/* Returns the properties of the data; NULL before mha_train_data_finish. */
MHA_API const mha_train_data_info *mha_train_data_describe(const mha_train_data *data);

/* Writes sequence n, 0 .. sequences - 1, to `ids` [length]. Returns its number of tokens: `length`, or fewer with
 * texts_apart; 0 if out of range or before mha_train_data_finish. */
MHA_API int64_t mha_train_data_sequence(const mha_train_data *data, int64_t n, int32_t *ids);

/* ---- order of sequences ---- */

/* Returns the sequence, 0 .. count - 1, at position `index` of epoch `epoch`; each epoch is a permutation of all
 * sequences. Returns -1 unless 0 <= index < count <= 2^60. `epoch` may have any value, including negative ones. Takes
 * constant time and memory: applies a Feistel cipher of four rounds over the next power of 4 until the value is in
 * range (Black and Rogaway 2002). Like all functions below, allocates nothing. */
MHA_API int64_t mha_train_sequence_order(uint64_t seed, int64_t epoch, int64_t index, int64_t count);

/* ---- masked tokens (MLM) ---- */

typedef struct mha_train_mask_options {
    size_t size;
    int64_t length;  /* tokens of the sequence, >= 1 */
    int64_t vocab;   /* number of token ids (0 .. vocab - 1), 1 .. 2^31 */
    double fraction; /* fraction of the non-special tokens, (0, 1]; rounded to nearest, at least one token */
    int32_t mask;    /* token id of [MASK] */
    uint64_t seed;
} mha_train_mask_options;

/* Selects tokens to predict (Devlin et al. 2018). labels [length] is the original id of each selected token and
 * MHA_IGNORE elsewhere; of the selected ids, 80 % become `mask`, 10 % a random id, and 10 % are kept. Special tokens
 * are never selected; a sequence that contains only special tokens has no labels. `index` is the number of the sequence
 * since the start of the run: the same index gives the same selection. `ids` [length] is changed in place. Errors:
 * MHA_ERR_ARG for NULL or an option out of range, naming it. On error, ids and labels are unchanged. */
MHA_API mha_status mha_train_mask_tokens(const mha_tokenizer *tokenizer, const mha_train_mask_options *options,
                                         int64_t index, int32_t *ids, int32_t *labels, mha_error *err);

/* ---- digest of the data ---- */

/* A 64-bit hash (after Fowler, Noll and Vo) that shows whether two runs read the same data. It detects accidental, not
 * malicious, changes. Plain data: initialize the struct with {0}. */
typedef struct mha_train_digest {
    uint64_t lane[4]; /* internal; four independent lanes, hashed in parallel */
} mha_train_digest;

/* Adds bytes, in words of four bytes. Dividing the data among calls changes the digest, unless the size of every
 * part but the last is a multiple of 16 bytes. Does nothing if `digest` or `data` is NULL. */
MHA_API void mha_train_digest_add(mha_train_digest *digest, const void *data, size_t bytes);
/* Adds one integer, such as a length. `digest` may be NULL. */
MHA_API void mha_train_digest_add_number(mha_train_digest *digest, uint64_t number);
/* Writes the current digest as 16 hexadecimal digits and a NUL, or an empty string if `digest` is NULL. `text` may
 * be NULL. */
MHA_API void mha_train_digest_text(const mha_train_digest *digest, char text[17]);

#ifdef __cplusplus
}
#endif
#endif
