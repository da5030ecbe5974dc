/* config.h - what config.json says, checked. Nothing after this file looks at JSON or doubts a dimension. */
#ifndef MHA_MODEL_CONFIG_CONFIG_H
#define MHA_MODEL_CONFIG_CONFIG_H

#include "io/input_limits.h"
#include "mha/layer.h"
#include <stdbool.h>
#include <stddef.h>

struct mha__family;

enum { MHA__EOS = 64 }; /* tokens that may end a text; a longer list is refused */

/* Which heads of a layer each text gets. */
typedef struct mha__layer_choice {
    mha_choice of;
    mha_selection selection;
    int64_t top_k;                     /* of MHA_CHOICE_EXPERTS */
    double prune_ratio;                /* of MHA_CHOICE_HEADS */
    int64_t options[MHA_HEAD_OPTIONS]; /* of MHA_CHOICE_OPTIONS: [option_count], and the width of what is scored */
    int64_t option_count, width;
} mha__layer_choice;

/* What attention may do differently in each layer. */
typedef struct mha__layer_attention {
    int64_t window; /* keys that a row sees on either side, itself included; 0 = all */
    double scale;   /* of scores; 0 = 1 / sqrt(head_dim) */
    double softcap; /* of scores; 0 = off */
    bool turned;    /* q and k are rotated */
    bool normed;    /* q and k of each head are normed */
    bool alibi;
    mha__layer_choice choice;
} mha__layer_attention;

/* Every dimension is >= 1 and within its limit (io/input_limits.h); heads divide hidden unless head_dim was given;
 * kv_heads divide heads. */
typedef struct mha__config {
    const struct mha__family *family;
    int64_t vocab, max_positions, type_vocab;
    int64_t padding; /* row of words that does not learn as one that was read (nn.Embedding's padding_idx); outside the
                      * table, or -1: none */
    int64_t layers, hidden, heads, kv_heads, head_dim, intermediate;
    int64_t original_heads; /* of the unpruned model, >= heads: the numbers in "mha.heads" are less */
    int32_t layer_heads[MHA__LAYERS], layer_kv_heads[MHA__LAYERS]; /* fewer where heads were pruned */
    /* What the tensors of a layer have; the operator and a cache read layer_kv_heads, their least common multiple. */
    int32_t layer_k_heads[MHA__LAYERS], layer_v_heads[MHA__LAYERS];
    bool attention_only[MHA__LAYERS]; /* has no feed-forward part, nor norms around one */
    double eps;
    mha_activation activation;
    bool attn_bias, mlp_bias;         /* of the projections, where a family may have them or not */
    bool tied;                        /* logits come from the table of words */
    bool scaled, inverse_layer_scale; /* GPT-2: scores are divided by sqrt(head_dim); and by layer + 1 */
    double query_scalar;              /* Gemma-2: scores are divided by its root instead; 0 = head_dim */
    double softcap, logit_cap;        /* of scores, where a layer has no other, and of logits; 0 = off */
    mha_rope_options rope;            /* head_dim 0: no rotation; points to the lists below */
    double short_by[MHA_HEAD_DIM_MAX / 2], long_by[MHA_HEAD_DIM_MAX / 2]; /* [rotary_dim / 2] */
    int64_t window;                                                       /* of sliding layers that have no other */
    bool windowed;                                                        /* the window is used at all */
    int64_t full_layers;                                                  /* Qwen: the first layers see all keys */
    mha__layer_attention attention[MHA__LAYERS];
    const char *own_key;   /* one that no other program knows, and that changes what layers compute; NULL: none */
    int32_t eos[MHA__EOS]; /* tokens that end a text */
    int64_t eos_count;
} mha__config;

/* What a key of config.json must hold. null counts as absent, and absent takes the default. */
typedef enum mha__key_kind {
    MHA__KEY_DIM,             /* integer in 1..max, to an int64_t; without a default the key must be there */
    MHA__KEY_MAYBE_DIM,       /* the same, but absence may be 0 */
    MHA__KEY_DIM_OR_OFF,      /* the same, and null is 0, not the default */
    MHA__KEY_COUNT,           /* integer in 0..max, to an int64_t */
    MHA__KEY_ROW,             /* integer, to an int64_t: row of words, negative from their end; null is -1, none */
    MHA__KEY_POSITIVE,        /* finite number > 0, to a double */
    MHA__KEY_POSITIVE_OR_OFF, /* the same, and null is 0 */
    MHA__KEY_BOOL,            /* to a bool; the default is `initial` */
    MHA__KEY_ACTIVATION,      /* name of an activation, to an mha_activation; the default is `text` */
    MHA__KEY_ONLY_TEXT,       /* `text` is the only value that is built */
    MHA__KEY_ONLY_FALSE,      /* false is */
    MHA__KEY_ONLY_TRUE,       /* true is, or absence, but not null */
    MHA__KEY_ONLY_EMPTY       /* an empty object is, or absence */
} mha__key_kind;

typedef struct mha__config_key {
    const char *key;
    mha__key_kind kind;
    size_t offset;    /* in mha__config */
    double initial;   /* default of a number */
    int64_t max;      /* of a dimension */
    const char *text; /* see mha__key_kind */
} mha__config_key;

/* Dimensions of the tensors of one layer that differ from layer to layer. */
typedef struct mha__layer_widths {
    int64_t q, k, v, qkv;   /* of the projections: query, key and value heads, and all of these */
    int64_t scores, scored; /* of a layer that chooses heads: how many scores, of a vector how wide */
} mha__layer_widths;

mha__layer_widths mha__config_widths(const mha__config *config, int64_t layer);
/* The first layer that chooses heads for each text; -1 if none does. */
int64_t mha__config_choosing(const mha__config *config);
/* Heads of a layer that each text gets: all, where it does not choose. */
int64_t mha__config_kept(const mha__config *config, int64_t layer);

/* Reads and checks `folder`/config.json, or `given` in its place (NULL = none). *text (mha__free) is its content,
 * terminated, without a byte order mark.
 * Errors: MHA_ERR_FORMAT for a value that is wrong, MHA_ERR_UNSUPPORTED for one that is not built; both name key and
 * value, and the folder of what lies in one. */
mha_status mha__config_read(mha_ctx *ctx, const char *folder, const char *given, mha__config *config, char **text,
                            mha_error *err);

#endif
