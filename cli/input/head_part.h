/* head_part.h - the kinds of heads in a model, under the names that commands print and read. */
#ifndef CLI_INPUT_HEAD_PART_H
#define CLI_INPUT_HEAD_PART_H

#include "mha/mha.h"
#include <stdbool.h>
#include <stddef.h>

/* One kind of heads: the heads of a model, or the cross-attention of a decoder. */
typedef struct head_part {
    const char *name;       /* "decoder", "cross" or "encoder"; "" if the model has only one kind of heads */
    const mha_model *model; /* the model of these heads: for "encoder", the encoder */
    bool cross;
} head_part;

/* Finds the parts of a model in the order of mha_head_kind, and returns their number: 3 for an encoder-decoder, 1 for
 * any other model. */
int head_parts_of(const mha_model *model, head_part parts[MHA_HEAD_KINDS]);

/* Returns the number of elements of an array [layers, H] of the part. */
size_t head_part_cells(const head_part *part);
/* Returns the number of heads in a layer. */
int64_t head_part_heads(const head_part *part, int64_t layer);
/* Converts between the place of a head and its number in the unpruned model; -1 if the head does not exist. */
int64_t head_part_number(const head_part *part, int64_t layer, int64_t place);
int64_t head_part_place(const head_part *part, int64_t layer, int64_t number);

#endif
