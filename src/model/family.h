/* family.h - what distinguishes one family of checkpoints from another: config keys and tensor names. A table, no
 * code. */
#ifndef MHA_MODEL_FAMILY_H
#define MHA_MODEL_FAMILY_H

#include "model/config.h"
#include <stdbool.h>

/* The parts of a model. The first group exists once, the second once in each layer. */
typedef enum mha__role {
    MHA__WORDS,
    MHA__POSITIONS,
    MHA__TYPES,
    MHA__EMBED_NORM,
    MHA__POOLER,
    MHA__QUERY,
    MHA__KEY,
    MHA__VALUE,
    MHA__ATTN_OUT,
    MHA__ATTN_NORM,
    MHA__UP,
    MHA__DOWN,
    MHA__MLP_NORM,
    MHA__ROLES,
    MHA__FIRST_OF_LAYER = MHA__QUERY
} mha__role;

typedef enum mha__part_kind {
    MHA__PART_ABSENT = 0, /* this family has no such part */
    MHA__PART_TABLE,      /* NAME.weight [rows, columns] */
    MHA__PART_LINEAR,     /* NAME.weight [rows, columns], NAME.bias [rows] */
    MHA__PART_NORM        /* NAME.weight [rows], NAME.bias [rows]; or NAME.gamma, NAME.beta */
} mha__part_kind;

typedef struct mha__part {
    const char *name; /* without prefix, layer and suffix */
    mha__part_kind kind;
    size_t rows, columns; /* offsets of int64_t in mha__config */
    bool optional;
} mha__part;

typedef struct mha__family {
    const char *name; /* model_type */
    const mha__config_key *keys;
    int key_count;
    const char *const *prefixes; /* of all tensor names, tried in this order; ends with NULL */
    const char *layer;           /* layer n is PREFIX LAYER n "." NAME */
    const mha__part *parts;      /* [MHA__ROLES] */
    bool pre_norm, causal;
} mha__family;

/* NULL if `model_type` is not built. */
const mha__family *mha__family_find(const char *model_type);
/* The names of those that are, separated by ", ", cut to `capacity` > 0 bytes. */
void mha__family_names(char *text, size_t capacity);

#endif
