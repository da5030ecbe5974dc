/* token_list.h - the tokens of many texts, concatenated, while their number is not yet known. */
#ifndef MHA_HEADS_DATA_TOKEN_LIST_H
#define MHA_HEADS_DATA_TOKEN_LIST_H

#include "mha/head_data.h"

typedef struct mha__gather {
    mha_ctx *ctx;
    int64_t count;        /* texts that there will be */
    int64_t room;         /* tokens that fit into the arrays */
    int32_t *ids, *types; /* [room] */
    int32_t *segments;    /* [room] or NULL */
    int64_t *starts;      /* [count + 1] */
} mha__gather;

/* From a struct with ctx and count alone. Freed by the caller, also after a failure. */
mha_status mha__gather_texts(mha__gather *g, const mha_model *model, const char *const *texts, int64_t max_tokens,
                             mha_error *err);
mha_status mha__gather_ids(mha__gather *g, const mha_model *model, const int32_t *ids, const int64_t *starts,
                           const mha_head_data_options *options, mha_error *err);
void mha__gather_free(mha__gather *g);

static inline int64_t mha__gather_length(const mha__gather *g, int64_t text)
{
    return g->starts[text + 1] - g->starts[text];
}

#endif
