/* batch_packer.h - some texts of a data set, in batches: packed, the longest first, at most so many
 * tokens at a time or one longer text. For measures that take texts in groups; batches of the whole are those of
 * head_data.h. */
#ifndef MHA_HEADS_DATA_BATCH_PACKER_H
#define MHA_HEADS_DATA_BATCH_PACKER_H

#include "heads/data/head_data.h"

typedef struct mha__packer {
    const mha_head_data *data;
    const int64_t *text; /* [count] the group, as the data counts them */
    int64_t count, most; /* tokens of a batch */
    int64_t next;        /* of order */
    int64_t *order;      /* [count] places in `text`, the longest first, equals as they come */
    int32_t *ids, *types;
    int64_t *starts;         /* [count + 1] */
    int32_t *labels;         /* beside ids; written where all_labels is there */
    const int32_t *labelled; /* labels of all tokens of the data, text after text; or NULL */
    const int64_t *label_at; /* [texts of the data] where those of a text begin */
} mha__packer;

/* One batch. */
typedef struct mha__packed {
    mha_model_input input;
    const int64_t *place;  /* [input.batch] of each sequence's text in the group */
    const int32_t *labels; /* [tokens], or NULL */
    int64_t tokens;
} mha__packed;

/* Room for groups of at most `texts` texts. Freed with mha__packer_free, also after a failure. */
mha_status mha__packer_create(mha_ctx *ctx, const mha_head_data *data, int64_t texts, int64_t most, mha__packer *packer,
                              mha_error *err);
void mha__packer_free(mha_ctx *ctx, mha__packer *packer);
/* Tokens of the largest batch that there can be. */
int64_t mha__packer_room(const mha__packer *packer);

/* Begins a group, or begins it again with the same texts. `text` must stay as it is. */
void mha__packer_begin(mha__packer *packer, const int64_t *text, int64_t count);
/* The next batch; false after the last one. What it points to is valid until the next call. */
bool mha__packer_next(mha__packer *packer, mha__packed *batch);
/* True if the next batch holds all texts of the group. */
bool mha__packer_is_whole(const mha__packer *packer);

#endif
