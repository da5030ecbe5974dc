/* batch_packer.h - packs some texts of a data set into batches, the longest first: at most `most` tokens per batch, or
 * one longer text. For measures that process texts in groups; head_data.h has the batches of the whole data set. */
#ifndef MHA_HEADS_DATA_BATCH_PACKER_H
#define MHA_HEADS_DATA_BATCH_PACKER_H

#include "heads/data/head_data.h"

typedef struct mha__packer {
    const mha_head_data *data;
    const int64_t *text; /* [count] the group, as indices into the data */
    int64_t count, most; /* most: maximum tokens per batch */
    int64_t next;        /* index into `order` of the next text */
    int64_t *order;      /* [count] indices into `text`, the longest first, ties in the given order */
    int32_t *ids, *types;
    int64_t *starts;         /* [count + 1] */
    int32_t *labels;         /* labels of ids; written if `labelled` is set */
    const int32_t *labelled; /* labels of all tokens of the data, text after text; or NULL */
    const int64_t *label_at; /* [texts of the data] index of each text's first label */
} mha__packer;

/* One batch. */
typedef struct mha__packed {
    mha_model_input input;
    const int64_t *place;  /* [input.batch] index in the group of each sequence's text */
    const int32_t *labels; /* [tokens], or NULL */
    int64_t tokens;
} mha__packed;

/* Allocates memory for groups of at most `texts` texts. Free with mha__packer_free, also after a failure. */
mha_status mha__packer_create(mha_ctx *ctx, const mha_head_data *data, int64_t texts, int64_t most, mha__packer *packer,
                              mha_error *err);
void mha__packer_free(mha_ctx *ctx, mha__packer *packer);
/* Returns the maximum number of tokens in a batch. */
int64_t mha__packer_room(const mha__packer *packer);

/* Begins a group, or restarts it with the same texts. `text` must remain valid and unchanged. */
void mha__packer_begin(mha__packer *packer, const int64_t *text, int64_t count);
/* Returns the next batch; false after the last one. Its pointers are valid until the next call. */
bool mha__packer_next(mha__packer *packer, mha__packed *batch);
/* Returns true if the next batch contains all texts of the group. */
bool mha__packer_is_whole(const mha__packer *packer);

#endif
