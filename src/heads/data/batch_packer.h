/* batch_packer.h - packs a subset of the texts of a data set into batches, the longest texts first. A batch has at most
 * `max` tokens, or consists of one longer text. Measures that process texts in groups use these functions; head_data.h
 * divides the whole data set into batches. */
#ifndef MHA_HEADS_DATA_BATCH_PACKER_H
#define MHA_HEADS_DATA_BATCH_PACKER_H

#include "heads/data/head_data.h"

typedef struct mha__packer {
    const mha_head_data *data;
    const int64_t *text; /* [count] the texts of the group, as indices into the data */
    int64_t count, max;  /* max: maximum number of tokens per batch */
    int64_t next;        /* index into `order` of the next text */
    int64_t *order;      /* [count] indices into `text`, the longest first, ties in the given order */
    int32_t *ids, *types;
    int64_t *starts;         /* [count + 1] */
    int32_t *source_ids;     /* sources of the pairs of a batch; NULL for texts */
    int64_t *source_starts;  /* [count + 1] */
    mha_model_input source;  /* input of the encoder, with these arrays */
    float *pixels;           /* of the images of a batch; NULL for texts */
    int32_t *labels;         /* labels of `ids`, or of images; written for pairs, and unless `labeled` is NULL */
    const int32_t *labeled;  /* labels of all tokens of the data, text after text, or of all images; or NULL */
    const int64_t *label_at; /* [texts of the data] index of each text's first label */
} mha__packer;

/* One batch of a group, as returned by mha__packer_next. */
typedef struct mha__packed {
    mha_model_input input;
    const int64_t *place; /* [input.batch] index of each sequence's text in the group */
    /* [tokens], or [input.batch] of images; or NULL. Of pairs, the token that each token of the decoder predicts
     * (mha_model_loss_args), MHA_IGNORE after the last one. */
    const int32_t *labels;
    int64_t tokens;
} mha__packed;

/* Allocates memory for groups of at most `texts` texts. Free with mha__packer_free, also after a failure. */
mha_status mha__packer_create(mha_ctx *ctx, const mha_head_data *data, int64_t texts, int64_t max, mha__packer *packer,
                              mha_error *err);
void mha__packer_free(mha_ctx *ctx, mha__packer *packer);
/* Returns the maximum number of tokens in a batch, without those of sources. */
int64_t mha__packer_room(const mha__packer *packer);

/* Starts a group of texts, or restarts it if passed the same texts. `text` must remain valid and unchanged until the
 * next group starts. */
void mha__packer_begin(mha__packer *packer, const int64_t *text, int64_t count);
/* Stores the next batch of the group in *batch; returns false after the last batch. The pointers in *batch are valid
 * until the next call. */
bool mha__packer_next(mha__packer *packer, mha__packed *batch);
/* Returns true if the next batch contains all texts of the group. */
bool mha__packer_is_whole(const mha__packer *packer);

#endif
