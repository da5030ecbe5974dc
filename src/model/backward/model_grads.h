/* model_grads.h - internals of mha_model_grads: the list of gradients, and one recorded forward pass. */
#ifndef MHA_MODEL_BACKWARD_MODEL_GRADS_H
#define MHA_MODEL_BACKWARD_MODEL_GRADS_H

#include "layer/block/transformer_block_backward.h"
#include "mha/model_grads.h"
#include "model/forward/encoder_source.h"
#include "model/forward/observers.h"
#include <stdbool.h>

/* Arrays of one forward call and its backward pass; rows are [B L]. */
typedef struct mha__saved_activations {
    float *sum;              /* [rows, W] embeddings before their norm; NULL if the model has no such norm */
    float *embedded;         /* [rows, W] input of the linear map from embeddings to hidden states; NULL without it */
    float *dembedded;        /* [rows, W] gradient of `embedded`; NULL without that map. W is the embeddings' width */
    float *x, *last;         /* [rows, E] x: output of the last layer; last: output of the final norm, or x without a
                              * final norm */
    mha__block_trace *trace; /* [layers]; with recompute, all traces overlap, except x */
    mha__block_scratch *scratch; /* [layers] overlapping: only one layer is processed at a time */
    float *dx;                   /* [rows, E] gradient of x */
    float *dbias;                /* [H, 2 M - 1] gradient of a layer's biases by distance; NULL without such biases */
    float *dtable;  /* [rows of the table, E] gradient of the embeddings of relative positions; NULL = not computed */
    float *dsource; /* [B S, E] gradient of the encoder's last hidden states; NULL without an encoder */
    float *again;   /* [rows, E] with recompute: input from which a layer is recomputed */
} mha__saved_activations;

/* A buffer that is reused from call to call. */
typedef struct mha__room {
    void *memory;
    size_t bytes;
} mha__room;

struct mha_model_grads {
    mha_ctx *ctx;
    const mha_model *model;
    bool recompute, attention_only;
    bool constants;                          /* the list contains all tensors; see mha__model_grads_create */
    bool resting;                            /* parameters currently get no gradients; see mha__grads_rest */
    mha_model_dropout dropout, next_dropout; /* dropout of the last and of the next forward call */

    mha_named_tensor *list; /* [count] */
    int64_t count;
    /* [layers + 1, roles, 2] list indices of weight and bias, or -1; entry 0 is for tensors outside the layers */
    int64_t *slots;
    float *gradients;
    size_t bytes;        /* [bytes] size of all gradients */
    mha_linear **packed; /* [layers, roles] matrices for the backward pass, or NULL */

    /* For circuit measures: the input of layer 0 [B, L, E] in place of the embeddings, and the function that receives
     * the gradients of the sites in each layer; NULL = none */
    const float *start;
    mha__site_edit *sites;

    bool ready; /* a forward call has completed */
    mha__batch batch;
    mha__saved_activations saved;
    mha__room pass;      /* memory for `batch` and `saved` */
    mha__room head;      /* memory for a chunk of logits */
    mha_attn_plan *plan; /* plan of the layer `planned` and of all layers with the same shape */
    const mha_attn_layer *planned;
    mha_model_output out; /* the outputs of a forward call */
    mha__taps taps;       /* pass rows of probabilities to out.on_rows in a forward call, not in a backward call */

    /* Encoder-decoders: gradients of the encoder, whose tensors are in the list of the decoder; and the source of the
     * pass. `encoder` is NULL for other models. */
    struct mha_model_grads *encoder;
    mha__cross_pass cross;
    mha_layer_input cross_in;
    struct mha_model_grads *vision; /* CLIP: gradients of the image tower, whose tensors are in the same list */
};

/* Returns true if tensors of a role have gradients; the others are constants, as buffers in PyTorch. */
static inline bool mha__grads_learned(const mha__config *c, mha__role role)
{
    const mha__part *part = mha__part_of(c, role);
    return part->kind != MHA__PART_BUFFER && !part->frozen && role != MHA__ROUTER_BIAS;
}

/* Does what mha_model_grads_create does. With `constants`, the list also contains the tensors without a gradient, with
 * zeros: it has an entry for each tensor that the model uses, in the order of mha__tensor_each. */
mha_status mha__model_grads_create(const mha_model *model, const mha_model_grads_options *options, bool constants,
                                   mha_model_grads **out, mha_error *err);

/* Returns the type in which the matrix of a role is multiplied: routers and convolutions always in f32, as in the
 * forward pass. */
static inline mha_dtype mha__grads_dtype(const mha_model_grads *g, mha__role role)
{
    const bool exact = role == MHA__ROUTER || role == MHA__SHARED_SHARE || role == MHA__FIRST_CONVOLUTION ||
                       role == MHA__SECOND_CONVOLUTION || role == MHA__LAYER_CONVOLUTION;
    return exact ? MHA_F32 : g->model->outer.packed;
}

/* Returns where the gradients of a role are accumulated; `layer` is -1 for parts outside the layers. The fields are
 * NULL if the role has no gradient. */
mha__grad_slot mha__grads_slot(const mha_model_grads *g, mha__role role, int64_t layer);
/* Fetches the weight of a matrix for the backward pass (mha__weights_again). */
mha_status mha__grads_weight(mha__weights *weights, mha__role role, int64_t layer, mha__grad_slot *slot,
                             mha_error *err);

/* Returns the matrix of a role that was packed for the backward pass; `packed` must not be NULL. */
static inline mha_linear *mha__grads_packed(const mha_model_grads *g, mha__role role, int64_t layer)
{
    const mha__config *c = &g->model->config;
    return g->packed[mha__config_owner(c, layer) * mha__config_roles(c) + role];
}

/* Returns true if parameters get gradients. */
static inline bool mha__grads_parameters(const mha_model_grads *g)
{
    return g->list && !g->resting;
}

/* Turns gradients of parameters off, as with no_parameters, or on again; takes effect at the next forward call. */
static inline void mha__grads_rest(mha_model_grads *g, bool rest)
{
    g->resting = rest;
    if (g->encoder) g->encoder->resting = rest;
    if (g->vision) g->vision->resting = rest;
}

/* ---- the slots of a layer (layer_slots.c) ---- */

/* The gradient of a tensor that is stored in another order (tensor_order.h), while a layer is processed. */
typedef struct mha__ordered {
    mha__role role;
    float *memory;
    mha__grad_slot stored, ours;
} mha__ordered;

enum { MHA__ORDERED = 4 }; /* maximum number of such tensors in a layer */

typedef struct mha__layer_slots {
    mha__block_slots block;
    mha__ordered ordered[MHA__ORDERED];
    int ordered_count;
} mha__layer_slots;

/* Fetches the weights of a layer for the backward pass, and finds where their gradients are accumulated. `slots` must
 * be zero; mha__layer_slots_end frees its memory, also after a failure. */
mha_status mha__layer_slots_find(const mha_model_grads *g, int64_t layer, mha__weights *weights,
                                 mha__layer_slots *slots, mha_error *err);
/* Frees the memory; first stores the gradients in the order of the checkpoint if `done` is set. */
void mha__layer_slots_end(const mha_model_grads *g, int64_t layer, mha__layer_slots *slots, bool done);

/* Grows the buffer to at least `bytes`. A buffer that is large enough is kept; otherwise its content is lost. */
mha_status mha__grads_room(mha_model_grads *g, mha__room *room, size_t bytes, const char *what, mha_error *err);

/* Packs the dense weights of all layers for the backward pass. mha__grads_unpack frees them, also after a failure. */
mha_status mha__grads_pack(mha_model_grads *g, mha_error *err);
void mha__grads_unpack(mha_model_grads *g);

/* Dropout sites, numbered as in mha/model_grads.h. */
typedef enum mha__drop_site {
    MHA__DROP_EMBEDDINGS,
    MHA__DROP_PROBS,
    MHA__DROP_ATTN,
    MHA__DROP_MLP,
    MHA__DROP_CONVOLUTION /* of layer 0; its key is that of the embeddings in layer 1, which has none */
} mha__drop_site;
/* Returns the dropout probability and the key of a site. */
mha__drop mha__grads_drop(const mha_model_grads *g, int64_t layer, mha__drop_site site);

/* Sets up the call of one layer with its plan and trace. `wanted` are the gradients of a backward pass, or NULL. */
mha_status mha__grads_call(mha_model_grads *g, int64_t layer, const mha_model_gradient *wanted, mha__block_call *call,
                           mha_error *err);

/* ---- encoder-decoders (encoder_backward.c); these functions do nothing for other models ---- */

/* Sets the source of batch.layer. */
void mha__grads_source_describe(mha_model_grads *g);
/* Sets cross.plan to the plan of a layer's cross-attention; reuses the previous plan if the shapes are the same. */
mha_status mha__grads_source_plan(mha_model_grads *g, int64_t layer, mha_error *err);
void mha__grads_source_lay_out(mha__arena *arena, mha_model_grads *g);
/* Sets the cross-attention of the call of a layer, whose plan must be set. */
void mha__grads_source_call(mha_model_grads *g, int64_t layer, const mha_model_gradient *wanted, mha__block_call *call);
/* Returns true if the source gets a gradient: for the parameters, or for the gates of the encoder. */
bool mha__grads_source_wanted(const mha_model_grads *g, const mha_model_gradient *wanted);
/* Clears saved.dsource, to which the backward pass of every layer adds. */
void mha__grads_source_begin(const mha_model_grads *g);

/* Accumulates the gradients of the convolutions of an encoder that reads audio features, from that of their output
 * dx [B L, E] (audio_stem_backward.c). */
mha_status mha__grads_stem(const mha_model_grads *g, const float *dx, mha_error *err);

/* Rejects requests that mha__grads_down does not support. */
mha_status mha__grads_check(const mha_model *model, const mha_model_gradient *wanted, mha_error *err);
/* Backpropagates from the gradient of the final norm's output, in saved.dx, to the embeddings. Only the output fields
 * of `wanted` are read, not the gradients. */
mha_status mha__grads_down(mha_model_grads *g, const mha_model_gradient *wanted, mha_error *err);

/* Returns true if the token of the row is not masked. */
static inline bool mha__grads_real(const mha_model_grads *g, int64_t row)
{
    return !g->batch.in.mask || g->batch.in.mask[row];
}

/* ---- distillation from a teacher (teacher_loss.c) ---- */

/* Denominators of the means in a loss. */
typedef struct mha__units {
    int64_t labels, tokens, texts; /* labels is also the number of rows of logits in the loss */
} mha__units;

/* The teacher's states for the current pass, and the weights of one row of logits, one row of states and one text in
 * the loss. */
typedef struct mha__teaching {
    const mha_model *teacher;
    const float *hidden; /* [B, L, E of the teacher] last hidden states */
    double of_logits, temperature, of_hidden, of_text;
    mha_pool pool;
} mha__teaching;

/* Fills in defaults and rejects models that cannot be compared. Without a teacher, only the labels term remains. */
mha_status mha__distill_read(const mha_model *m, const mha_model *teacher, mha_model_distill *d, mha_error *err);
/* Returns true if a term requires the model's logits. */
static inline bool mha__distill_logits(const mha_model_distill *d)
{
    return d->labels != 0 || d->logits != 0;
}

/* Runs the teacher on the same tokens and stores its last hidden states. */
mha_status mha__teacher_run(const mha_model *teacher, const mha_model_input *input, float *hidden, mha_error *err);
/* Computes the teacher's logits of the given rows; x and room are scratch [count, E of the teacher]. */
mha_status mha__teacher_logits(const mha__teaching *t, const int64_t *rows, int64_t count, float *x, float *room,
                               float *logits, mha_error *err);
/* Computes the loss terms on hidden states and texts; adds them to *loss and, with `learn`, their gradient to
 * saved.dx. */
mha_status mha__teach_states(mha_model_grads *g, const mha__teaching *t, bool learn, double *loss, mha_error *err);
/* Counts the real tokens, and the texts that contain a real token. */
void mha__count_states(const mha_model_grads *g, mha__units *units);

/* Counts the units in a batch without running a pass; the next forward call reads the batch again. */
mha_status mha__grads_units(mha_model_grads *g, const mha_model_input *input, const int32_t *labels, mha__units *units,
                            mha_error *err);

/* ---- the output head, for `count` selected rows (pooler_logits_backward.c) ---- */

/* Inputs of the output head: labels with a scale, a teacher, or both; or the gradient of all logits. */
typedef struct mha__head_job {
    const int64_t *rows;   /* [count] */
    const int32_t *labels; /* [count] */
    double scale;
    const mha__teaching *teaching; /* the teacher whose distributions are the targets */
    const float *dlogits;          /* [B, L, vocab] or, with `chosen`, [count, vocab]; only without labels and
                                    * teacher */
    bool chosen;
    bool loss_only; /* compute only the loss of labels or teacher; accumulate no gradients */
    int64_t count;
} mha__head_job;

/* Adds the gradient of the selected rows to saved.dx, and the loss to *loss. */
mha_status mha__grads_head(mha_model_grads *g, const mha__head_job *job, double *loss, mha_error *err);
/* Backpropagates dpooled [B, E] through the pooler. */
mha_status mha__grads_pooler(mha_model_grads *g, const float *dpooled, mha_error *err);

/* ---- models of images, and CLIP (image_backward.c) ---- */

/* Adds the gradients of the patches' projection and of the class token, from dx [B L, E]; does nothing if parameters
 * get no gradients. */
mha_status mha__grads_image(const mha_model_grads *g, const float *dx, mha_error *err);
/* Backpropagates the gradient of CLIP's embeddings [B, P] or, if it is NULL, of its pooled vectors [B, E]. */
mha_status mha__grads_pooled(mha_model_grads *g, const float *dpooled, const float *dembedding, mha_error *err);

#endif
