/* token_list.h - collects the tokens of many texts in one array whose final length is not known in advance. */
#ifndef MHA_HEADS_DATA_TOKENS_TOKEN_LIST_H
#define MHA_HEADS_DATA_TOKENS_TOKEN_LIST_H

#include "mha/head_data.h"

typedef struct mha__gather {
    mha_ctx *ctx;
    int64_t count;        /* total number of texts */
    int64_t room;         /* capacity of the arrays [tokens] */
    int32_t *ids, *types; /* [room] */
    int32_t *segments;    /* [room] or NULL */
    int64_t *starts;      /* [count + 1] */
} mha__gather;

/* Collect the tokens of `texts`, or the tokens `ids`, in `g`. Only ctx and count of `g` must be set. The caller frees
 * `g`, also after a failure. */
mha_status mha__gather_texts(mha__gather *g, const mha_model *model, const char *const *texts, int64_t max_tokens,
                             mha_error *err);
mha_status mha__gather_ids(mha__gather *g, const mha_model *model, const int32_t *ids, const int64_t *starts,
                           const mha_head_data_options *options, mha_error *err);
/* Collects the same `length` ids for every text. */
mha_status mha__gather_same(mha__gather *g, const mha_model *model, const int32_t *ids, int64_t length, mha_error *err);
void mha__gather_free(mha__gather *g);

static inline int64_t mha__gather_length(const mha__gather *g, int64_t text)
{
    return g->starts[text + 1] - g->starts[text];
}

#endif
