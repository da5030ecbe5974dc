/* head_data_fields.h - the arrays of tokenized texts: head_data.c fills them, head_data_read.c reads them. */
#ifndef MHA_HEADS_DATA_HEAD_DATA_FIELDS_H
#define MHA_HEADS_DATA_HEAD_DATA_FIELDS_H

#include "heads/data/head_data.h"
#include "heads/data/pair_sources.h"

struct mha_head_data {
    mha_ctx *ctx;
    mha_work work; /* zeros if the data are measured by a single process */
    mha__frame frame;
    uint64_t texts_hash; /* of all tokens as texts (mha__head_data_texts_hash) */
    int64_t count, tokens, batches;
    int64_t max_tokens, max_texts; /* maximum number of tokens, and of texts, per batch */
    int32_t *ids, *types;          /* [tokens] in processing order */
    int32_t *segments;             /* [tokens] or NULL */
    uint8_t *kinds;                /* [tokens] */
    int64_t *order;                /* [count] index of the text at each position */
    int64_t *place;                /* [count] the position of each text */
    int64_t *starts;               /* [count + 1] index of the first token of the text at each position */
    int64_t *first;                /* [count + 1] position of the first text of each batch */
    float *pixels;                 /* [count, pixels of an image] in processing order; NULL for texts */
    int64_t image;                 /* pixels of an image */
    mha__pair_sources sources;     /* of the targets of pairs; empty for texts */
    int64_t *batch_starts;         /* [2 count] for each batch, the starts of its texts from 0, then its token count */
};

#endif
