/* model_grads.h - inside of mha_model_grads: a list of gradients, and one pass that can be gone back through. */
#ifndef MHA_MODEL_BACKWARD_MODEL_GRADS_H
#define MHA_MODEL_BACKWARD_MODEL_GRADS_H

#include "layer/block/transformer_block_backward.h"
#include "mha/model_grads.h"
#include "model/forward/batch.h"
#include <stdbool.h>

/* Arrays of one forward call and of the way back; rows are [B L]. */
typedef struct mha__saved_activations {
    float *sum;              /* [rows, E] embeddings before their norm; NULL without one */
    float *x, *last;         /* [rows, E] what the last layer gave; what follows from it (x itself without a norm) */
    mha__block_trace *trace; /* [layers]; with recompute all in the same place, but for x */
    mha__block_scratch *scratch; /* [layers] one over the other: only one layer's is used at a time */
    float *dx;                   /* [rows, E] */
    float *again;                /* [rows, E] with recompute */
} mha__saved_activations;

/* Memory that is kept from call to call. */
typedef struct mha__room {
    void *memory;
    size_t bytes;
} mha__room;

struct mha_model_grads {
    mha_ctx *ctx;
    const mha_model *model;
    bool recompute, attention_only;
    bool resting;                            /* parameters have no gradient for now; see mha__grads_rest */
    mha_model_dropout dropout, next_dropout; /* of the last forward call, and of the next one */

    mha_named_tensor *list; /* [count] */
    int64_t count;
    /* [layers + 1, MHA__ROLES, 2] numbers in the list of weight and bias, or -1; first those of what is no layer */
    int64_t *slots;
    float *gradients;
    size_t bytes;        /* of gradients */
    mha_linear **packed; /* [layers, MHA__ROLES] matrices for the way back, or NULL */

    bool ready; /* a forward call came to its end */
    mha__batch batch;
    mha__saved_activations saved;
    mha__room pass;      /* of batch and saved */
    mha__room head;      /* of a chunk of logits */
    mha_attn_plan *plan; /* of the layer `planned` and all that are alike */
    const mha_attn_layer *planned;
};

/* Where the gradients of a role go; `layer` -1 for parts that exist once. NULL fields if there is none. */
mha__slot mha__grads_slot(const mha_model_grads *g, mha__role role, int64_t layer);

/* True if parameters have gradients. */
static inline bool mha__grads_parameters(const mha_model_grads *g)
{
    return g->list && !g->resting;
}

/* From the next forward call on, parameters get no gradients, as with no_parameters; or get them again. */
static inline void mha__grads_rest(mha_model_grads *g, bool rest)
{
    g->resting = rest;
}

/* At least so many bytes: those of the last call, if they are enough. What they held is lost where they are not. */
mha_status mha__grads_room(mha_model_grads *g, mha__room *room, size_t bytes, const char *what, mha_error *err);

/* Packs the dense weights of all layers for the way back. mha__grads_unpack frees them, also after a failure. */
mha_status mha__grads_pack(mha_model_grads *g, mha_error *err);
void mha__grads_unpack(mha_model_grads *g);

/* Sites of dropout, as model_grads.h numbers them. */
typedef enum mha__drop_site { MHA__DROP_EMBEDDINGS, MHA__DROP_PROBS, MHA__DROP_ATTN, MHA__DROP_MLP } mha__drop_site;
/* Share and key of one of them. */
mha__drop mha__grads_drop(const mha_model_grads *g, int64_t layer, mha__drop_site site);

/* The call of one layer: plan and trace. `dgates` [layers, B, H] or NULL. */
mha_status mha__grads_call(mha_model_grads *g, int64_t layer, float *dgates, mha__block_call *call, mha_error *err);

/* Refuses what mha__grads_down could not give. */
mha_status mha__grads_check(const mha_model_gradient *wanted, mha_error *err);
/* From the gradient of what the final norm gave, in kept.dx, to the embeddings. What is wanted is read of `wanted`, and
 * none of its gradients. */
mha_status mha__grads_down(mha_model_grads *g, const mha_model_gradient *wanted, mha_error *err);

/* True if the token of a row is real. */
bool mha__grads_real(const mha_model_grads *g, int64_t row);

/* ---- a teacher (teacher_loss.c) ---- */

/* What the means of a loss divide by. */
typedef struct mha__units {
    int64_t labels, tokens, texts; /* or rows of logits that count */
} mha__units;

/* Its states beside those of the pass, and what a row of logits, a row of states and a text weigh. */
typedef struct mha__teaching {
    const mha_model *teacher;
    const float *hidden; /* [B, L, E of the teacher] its last states */
    double of_logits, temperature, of_hidden, of_text;
    mha_pool pool;
} mha__teaching;

/* Fills in defaults and refuses what cannot be compared. Without a teacher: the labels alone. */
mha_status mha__distill_read(const mha_model *m, const mha_model *teacher, mha_model_distill *d, mha_error *err);
/* True if a term needs the model's logits. */
static inline bool mha__distill_logits(const mha_model_distill *d)
{
    return d->labels != 0 || d->logits != 0;
}

/* Its last states of the same tokens. */
mha_status mha__teacher_run(const mha_model *teacher, const mha_model_input *input, float *hidden, mha_error *err);
/* Its logits of chosen rows; x and room are [count, E of the teacher]. */
mha_status mha__teacher_logits(const mha__teaching *t, const int64_t *rows, int64_t count, float *x, float *room,
                               float *logits, mha_error *err);
/* The terms of states: adds to *loss, and with `learn` to kept.dx. */
mha_status mha__teach_states(mha_model_grads *g, const mha__teaching *t, bool learn, double *loss, mha_error *err);
/* Real tokens, and texts that have one. */
void mha__count_states(const mha_model_grads *g, mha__units *units);

/* What a batch has of each unit, before any pass; the next forward call reads it anew. */
mha_status mha__grads_units(mha_model_grads *g, const mha_model_input *input, const int32_t *labels, mha__units *units,
                            mha_error *err);

/* ---- the head of logits, for `count` chosen rows (pooler_logits_backward.c) ---- */

/* Labels and a scale, a teacher, or both; or the gradient of all logits. */
typedef struct mha__head_job {
    const int64_t *rows;   /* [count] */
    const int32_t *labels; /* [count], with: */
    double scale;
    const mha__teaching *teaching; /* whose distributions the rows are to have */
    const float *dlogits;          /* [B, L, vocab], or, with `chosen`, [count, vocab]; else */
    bool chosen;
    bool loss_only; /* with labels or a teacher: nothing is added */
    int64_t count;
} mha__head_job;

/* Adds to kept.dx at these rows, and the loss to *loss. */
mha_status mha__grads_head(mha_model_grads *g, const mha__head_job *job, double *loss, mha_error *err);
/* The same for the pooler: dpooled [B, E]. */
mha_status mha__grads_pooler(mha_model_grads *g, const float *dpooled, mha_error *err);

#endif
