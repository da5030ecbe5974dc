/* observers.h - outputs from inside the attention layers: maps of selected heads, statistics of rows and keys,
 * activations (model.h). */
#ifndef MHA_MODEL_FORWARD_OBSERVERS_H
#define MHA_MODEL_FORWARD_OBSERVERS_H

#include "layer/activation_edit.h"
#include "model/forward/batch.h"

typedef struct mha__taps {
    const mha_model_output *out;
    int64_t rows, keys;                /* dimensions of one map */
    int64_t max;                       /* maximum number of observed heads in a layer */
    int64_t first, count;              /* range of the current layer in map_heads; without map_heads, all heads of the
                                        * layer */
    float *probs;                      /* [sequences, heads, rows, keys] */
    int32_t *heads;                    /* [map_count] heads of map_heads, as int32 for the operator */
    mha_attn_stats stats;              /* contiguous views, which are valid for any head count of a layer */
    mha_layer_activations activations; /* contiguous arrays, with the widths of the current layer */
    mha_attn_visitor visitor;          /* forwards rows to out->on_rows, with the layer number */
    int64_t layer;
    float some_probs; /* placeholders for arrays that are not allocated yet; not accessed */
    int32_t some_heads;
} mha__taps;

/* Checks the requested heads and rows. `out` must outlive the taps. */
mha_status mha__taps_read(const mha_model *m, const mha__batch *batch, const mha_model_output *out, mha__taps *taps,
                          mha_error *err);
void mha__taps_lay_out(mha__arena *arena, const mha_model *m, const mha__batch *batch, mha__taps *taps);
/* Sets the requested outputs of batch->layer for this layer. Before memory is allocated, only marks which outputs are
 * requested. */
void mha__taps_turn(mha__taps *taps, const mha_model *m, mha__batch *batch, int64_t layer);
/* Calls the callbacks with the arrays that the layer has written. */
mha_status mha__taps_show(const mha__taps *taps, const mha_model *m, const mha__batch *batch, int64_t layer,
                          mha_error *err);

/* Returns MHA_ERR_CANCELED with a message that names the callback that stopped the pass. */
mha_status mha__taps_stopped(mha_error *err, const char *callback, int64_t entry);

/* Returns how many entries of a list of heads, with layers ascending, belong to a layer, and the index of the first. */
int64_t mha__heads_of_layer(const mha_model_head *list, int64_t count, int64_t layer, int64_t *first);

/* A list of heads in mha_model_output: map_heads, or cross_map_heads with the prefix "cross_". */
typedef struct mha__head_list {
    const char *prefix, *callbacks; /* callbacks: the fields that receive their maps */
    const mha_model_head *heads;    /* [count] */
    int64_t count;
    bool shown;            /* one of the callbacks is set */
    const int32_t *counts; /* [layers] heads of each layer */
} mha__head_list;
mha_status mha__head_list_check(const mha_model *m, const mha__head_list *list, mha_error *err);

/* ---- activations that a function may change ---- */

/* Like mha_model_forward, and passes the activations of every layer to `edit` (NULL = none). Only for models in f32
 * without cross-attention. The edit's begin function is also called before the layers run, to measure their
 * workspace. */
mha_status mha__model_forward_edited(const mha_model *model, const mha_model_input *input,
                                     const mha_model_output *output, mha__site_edit *edit, mha_error *err);

#endif
