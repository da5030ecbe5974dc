/* family.h - what distinguishes one family of checkpoints from another: config keys and tensor names. A table, no
 * code. */
#ifndef MHA_MODEL_CONFIG_FAMILY_H
#define MHA_MODEL_CONFIG_FAMILY_H

#include "model/config/config.h"
#include <stdbool.h>

/* The parts of a model. The first group exists once, the second once in each layer. */
typedef enum mha__role {
    MHA__WORDS,
    MHA__POSITIONS,
    MHA__TYPES,
    MHA__EMBED_NORM,
    MHA__POOLER,
    MHA__FINAL_NORM,
    MHA__LM_DENSE, /* BERT: dense and norm before the logits */
    MHA__LM_NORM,
    MHA__LM_BIAS,
    MHA__LM_TIED_BIAS, /* what stands for it where the two are one parameter */
    MHA__LM_HEAD,
    MHA__QUERY,
    MHA__KEY,
    MHA__VALUE,
    MHA__QKV, /* or the three in one */
    MHA__QUERY_NORM,
    MHA__KEY_NORM,
    MHA__HEAD_CHOICE, /* scores of heads, in layers that choose; of options, what is scored */
    MHA__HEAD_CHOICE_HIDDEN,
    MHA__ATTN_OUT,
    MHA__ATTN_NORM,
    MHA__ATTN_OUT_NORM,
    MHA__GATE,
    MHA__UP,
    MHA__DOWN,
    MHA__MLP_NORM,
    MHA__MLP_OUT_NORM,
    MHA__ROLES,
    MHA__FIRST_OF_LAYER = MHA__QUERY,
    MHA__FIRST_OF_FEED = MHA__GATE
} mha__role;

typedef enum mha__part_kind {
    MHA__PART_ABSENT = 0, /* this family has no such part */
    MHA__PART_TABLE,      /* NAME.weight [rows, columns] */
    MHA__PART_LINEAR,     /* NAME.weight [rows, columns], NAME.bias [rows] */
    MHA__PART_CONV1D,     /* NAME.weight [columns, rows], NAME.bias [rows] */
    MHA__PART_NORM,       /* NAME.weight [rows], NAME.bias [rows]; or NAME.gamma, NAME.beta */
    MHA__PART_RMS,        /* NAME.weight [rows] */
    MHA__PART_RMS_1,      /* the same, stored as the difference from 1 */
    MHA__PART_VECTOR      /* NAME [rows] */
} mha__part_kind;

/* A field of mha__layer_widths where offsets in mha__config stand too: those begin after its end. */
#define MHA__PART_WIDTH(name) (sizeof(mha__config) + offsetof(mha__layer_widths, name))

typedef struct mha__part {
    const char *name; /* without prefix, layer and suffix; behind a "/" stands one that takes no prefix */
    mha__part_kind kind;
    size_t rows, columns; /* offsets of int64_t in mha__config, or MHA__PART_WIDTH of the layer */
    bool optional;
    size_t bias; /* of PART_LINEAR: offset of a bool in mha__config that says whether there is one; 0 = there is */
} mha__part;

/* Which layers have the window where layer_types does not say. */
typedef enum mha__window_rule {
    MHA__WINDOW_NONE = 0,
    MHA__WINDOW_ALL,
    MHA__WINDOW_EVEN, /* 0, 2, 4 ... */
    MHA__WINDOW_LATER /* from max_window_layers on, if use_sliding_window */
} mha__window_rule;

typedef struct mha__family {
    const char *name;                     /* model_type */
    const mha__config_key *common, *keys; /* read in this order: a family's own default wins */
    int common_count, key_count;
    const char *const (*aliases)[2]; /* a key's name in `keys`, and another that it may have; ends with NULL. Or NULL */
    const char *const *prefixes;     /* of all tensor names, tried in this order; ends with NULL */
    const char *layer;               /* layer n is PREFIX LAYER n "." NAME */
    const mha__part *parts;          /* [MHA__ROLES] */
    bool pre_norm, causal, rotary;
    bool normed;       /* q and k of each head are normed, unless "mha.attention" says otherwise */
    bool embed_scaled; /* embeddings are multiplied by sqrt(hidden) */
    mha__window_rule window_rule;
    int32_t eos; /* where no file says so; 0 = none */
} mha__family;

/* NULL if `model_type` is not built. */
const mha__family *mha__family_find(const char *model_type);
/* The names of those that are, separated by ", ", cut to `capacity` > 0 bytes. */
void mha__family_names(char *text, size_t capacity);

#endif
