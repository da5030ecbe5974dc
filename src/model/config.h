/* config.h - what config.json says, checked. Nothing after this file looks at JSON or doubts a dimension. */
#ifndef MHA_MODEL_CONFIG_H
#define MHA_MODEL_CONFIG_H

#include "mha/layer.h"
#include <stddef.h>

struct mha__family;

/* Every dimension is >= 1 and within its limit (io/limits.h); heads divide hidden unless head_dim was given; kv_heads
 * divide heads. */
typedef struct mha__config {
    const struct mha__family *family;
    int64_t vocab, max_positions, type_vocab;
    int64_t layers, hidden, heads, kv_heads, head_dim, intermediate;
    int64_t q_width, kv_width; /* heads * head_dim, kv_heads * head_dim */
    double eps;
    mha_activation activation;
} mha__config;

/* What a key of config.json must hold. null counts as absent, and absent takes the default. */
typedef enum mha__key_kind {
    MHA__KEY_DIM,        /* integer in 1..max, to an int64_t */
    MHA__KEY_POSITIVE,   /* finite number > 0, to a double */
    MHA__KEY_ACTIVATION, /* name of an activation, to an mha_activation; the default is `text` */
    MHA__KEY_ONLY_TEXT,  /* `text` is the only value that is built */
    MHA__KEY_ONLY_FALSE, /* false is */
    MHA__KEY_ONLY_EMPTY  /* an empty object is, or absence */
} mha__key_kind;

typedef struct mha__config_key {
    const char *key;
    mha__key_kind kind;
    size_t offset;    /* in mha__config */
    double initial;   /* default of a number */
    int64_t max;      /* of a dimension */
    const char *text; /* see mha__key_kind */
} mha__config_key;

/* Reads and checks `folder`/config.json. *text (mha__free) is its content, terminated, without a byte order mark.
 * Errors: MHA_ERR_FORMAT for a value that is wrong, MHA_ERR_UNSUPPORTED for one that is not built; both name key and
 * value. */
mha_status mha__config_read(mha_ctx *ctx, const char *folder, mha__config *config, char **text, mha_error *err);

#endif
