/* tour_model.h - a layer of a checkpoint for the tours: its weights, and its activations on a text. */
#ifndef CLI_TOUR_TOUR_MODEL_H
#define CLI_TOUR_TOUR_MODEL_H

#include "tour/tour.h"

enum { TOUR_TOKENS_MAX = 64 };

/* One layer of a model on one text. Arrays are in f32 and are freed with the tour. */
typedef struct tour_model {
    mha_model *model;
    const mha_model_info *info;
    const mha_model_attention *attention; /* options of the layer */
    int64_t layer, tokens, hidden, heads, kv_heads, head_dim;
    const char *text;
    const char *const *words; /* [tokens] */
    float *input;             /* [tokens, hidden] input of the projections, after the norm */
    float *q, *k, *v; /* [tokens, heads or kv_heads, head_dim] as attention reads them: normalized and rotated */
    float *context;   /* [tokens, heads, head_dim] */
    float *out;       /* [tokens, hidden] output of the attention */
    float *maps;      /* [heads, tokens, tokens] */
} tour_model;

/* Opens tour.model and runs it on the chosen text, or `usual`; reads the activations of tour.choice.layer. Fails for
 * models and layers whose attention the tours cannot show: of images, encoder-decoders, with options other than
 * grouped heads, rotary positions and norms of q and k, or longer texts than TOUR_TOKENS_MAX. Free it even after a
 * failure. */
mha_status tour_model_open(tour *t, const char *usual, tour_model *m);
void tour_model_free(tour_model *m);

/* Writes the rows [count, head_dim, hidden] of a projection for all of its heads, and the bias [count, head_dim]. For
 * MHA_HEAD_O, writes [heads, head_dim, hidden], the transpose of the weight, and the bias [hidden]. */
mha_status tour_model_weights(tour *t, const tour_model *m, mha_head_projection which, float *weight, float *bias);

/* Fails if a result differs from that of the model: the layer then has an option that the tours do not show, such as
 * sinks or relative positions. */
mha_status tour_model_compare(tour *t, const float *computed, const float *of_model, int64_t count);

/* Returns the texts of tokens without spaces at the start; freed with the tour. NULL after a failure. */
const char *const *tour_model_words(tour *t, const mha_model *model, const int32_t *ids, int64_t count);

/* Returns "layer 3 of gpt2-tiny", freed with the tour. */
const char *tour_model_name(tour *t);

#endif
