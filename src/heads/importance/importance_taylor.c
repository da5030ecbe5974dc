/* importance_taylor.c - computes the first-order effect of single tokens and single attention weights, and checks that
 * all forms of the gradient of a gate agree:
 *
 *     dL/dxi = sum over rows of <c, dL/dc> = <Wo_h, dL/dWo_h> = <Wv_h, dL/dWv_h> + <bv_h, dL/dbv_h>
 *
 * (c: context of the head; L: loss.) The forms agree because the output is linear in c, and c is linear in v. The last
 * form requires that no other head reads the values v. The forms are computed by different parts of the backward pass,
 * so the check covers all these parts. */
#include "base/ctx.h"
#include "base/error.h"
#include "heads/importance/importance_run.h"
#include "heads/weights/head_weights.h"
#include "math/linalg.h"
#include "model/backward/model_grads.h"
#include <math.h>
#include <string.h>

/* ---- Taylor scores of tokens and weights ---- */

/* Adds the terms <c, dL/dc> of one head and text to the value of the text and to the context form of the gradient. */
static void add_text(mha__importance_job *s, const mha_model_context_gradient *g, int64_t b, int64_t head)
{
    const mha__head_set *set = &s->sets.set[g->kind];
    const mha_model_input *in = g->kind == MHA_HEADS_ENCODER ? s->batch->input.source : &s->batch->input;
    const int64_t *starts = in->starts, D = g->head_dim, n = set->first + g->layer * set->heads + head;
    double *part = mha__importance_part(s, s->batch, b) + n, *form = s->forms[MHA__FORM_CONTEXT] + n;
    for (int64_t r = starts[b]; r < starts[b + 1]; r++) {
        const int64_t at = (r * g->heads + head) * D;
        const double worth = mha__dot_f32(D, g->context + at, g->dcontext + at);
        *form += worth;
        if (s->options.by == MHA_IMPORTANCE_TAYLOR_TOKEN) *part += (double)s->group_units * fabs(worth);
        if (g->row_taylor) *part += (double)s->group_units * (double)g->row_taylor[head * g->rows + r];
    }
}

int mha__importance_context(void *user, const mha_model_context_gradient *g)
{
    mha__importance_job *s = user;
    for (int64_t b = 0; b < s->batch->input.batch; b++)
        for (int64_t h = 0; h < g->heads; h++)
            add_text(s, g, b, h);
    return 0;
}

/* ---- forms of the gradient ---- */

void mha__identity_begin(mha__importance_job *s)
{
    for (int form = 0; form < MHA__FORMS; form++)
        memset(s->forms[form], 0, (size_t)s->total * sizeof *s->forms[form]);
}

void mha__identity_gates(mha__importance_job *s)
{
    for (int64_t b = 0; b < s->batch->input.batch; b++)
        for (int64_t n = 0; n < s->total; n++)
            s->forms[MHA__FORM_GATE][n] += mha__importance_gate(s, s->batch, b, n);
}

mha_model_grads *mha__importance_grads(const mha__importance_job *s, const mha__head_set *set)
{
    return set->kind == MHA_HEADS_ENCODER ? s->grads->encoder : s->grads;
}

/* Adds <b, db> of a head's part of the bias to *sum. The elements of the bias are in the order of the matrix rows. */
static mha_status of_bias(const mha__importance_job *s, const mha__head_set *set, const mha__head_part *p,
                          int64_t layer, double *sum, mha_error *err)
{
    const float *dbias = mha__grads_slot(mha__importance_grads(s, set), p->role, layer).dbias;
    const mha_tensor *tensor = mha__weights_tensor(&set->model->outer, p->role, layer, true);
    const int64_t first = p->column == 1 ? p->first / p->row : p->first;
    if (!tensor || !dbias) return MHA_OK;
    const size_t bytes = (size_t)tensor->elements * sizeof(float);
    float *bias = mha__alloc(s->ctx, bytes);
    if (!bias) return mha__no_memory(err, bytes, "a bias");
    const mha_status status = mha_tensor_read(tensor, MHA_F32, bias, err);
    if (status == MHA_OK) *sum += mha__dot_f32(p->rows, bias + first, dbias + first);
    mha__free(s->ctx, bias);
    return status;
}

static mha_status add_forms(mha__importance_job *s, const mha__head_set *set, int64_t layer, int64_t head,
                            mha__weights *weights, mha_error *err)
{
    const mha__config *c = &set->model->config;
    const mha_model_grads *grads = mha__importance_grads(s, set);
    const int64_t n = set->first + layer * set->heads + head;
    const mha__head_part o = mha__head_set_part(set, layer, MHA__OF_O, head),
                         v = mha__head_set_part(set, layer, MHA__OF_V, head);
    const bool shared = set->kind != MHA_HEADS_CROSS && c->layer_v_heads[layer] != c->layer_heads[layer];
    const float *weight = NULL;
    MHA__TRY(mha__weights_again(weights, o.role, layer, &weight, err));
    s->forms[MHA__FORM_OUT][n] = mha__head_part_dot(&o, weight, mha__grads_slot(grads, o.role, layer).dweight);
    s->forms[MHA__FORM_VALUE][n] = s->forms[MHA__FORM_GATE][n];
    if (shared) return MHA_OK;
    MHA__TRY(mha__weights_again(weights, v.role, layer, &weight, err));
    weight += mha__head_set_loaded(set, layer, MHA__OF_V, head).first - v.first;
    s->forms[MHA__FORM_VALUE][n] = mha__head_part_dot(&v, weight, mha__grads_slot(grads, v.role, layer).dweight);
    return of_bias(s, set, &v, layer, &s->forms[MHA__FORM_VALUE][n], err);
}

/* Computes the forms that use the weights for all heads of a layer, then releases the file pages read for the layer. */
static mha_status add_layer(mha__importance_job *s, const mha__head_set *set, int64_t layer, mha_error *err)
{
    mha_status status = MHA_OK;
    mha__weights weights = set->model->outer; /* a copy with its own list of converted tensors */
    for (int64_t h = 0; status == MHA_OK && h < set->heads_per_layer[layer]; h++) {
        weights.converted = NULL;
        status = add_forms(s, set, layer, h, &weights, err);
        mha__weights_release(&weights);
    }
    for (mha__projection which = MHA__OF_V; which <= MHA__OF_O; which++)
        mha__weights_rest(&weights, mha__head_set_part(set, layer, which, 0).role, layer);
    return status;
}

bool mha__identity_shared(const mha__importance_job *s)
{
    return mha__config_shares(&s->model->config) || s->model->config.family->latent;
}

mha_status mha__identity_weights(mha__importance_job *s, mha_error *err)
{
    for (int k = 0; k < s->sets.count; k++)
        for (int64_t layer = 0; layer < s->sets.set[k].layers; layer++)
            MHA__TRY(add_layer(s, &s->sets.set[k], layer, err));
    return MHA_OK;
}

void mha__identity_end(mha__importance_job *s, int forms)
{
    for (int64_t n = 0; n < s->total; n++) {
        const double gate = s->forms[MHA__FORM_GATE][n];
        double apart = 0;
        for (int form = 1; form < forms; form++) {
            const double difference = fabs(s->forms[form][n] - gate);
            if (!(difference <= apart)) apart = difference; /* propagates NAN */
        }
        mha__fixed_add(&s->forms_gate[n], fabs(gate));
        mha__fixed_add(&s->forms_apart[n], apart);
    }
}

double mha__identity(const mha__importance_job *s)
{
    double largest = 0, apart = 0;
    for (int64_t n = 0; n < s->total; n++) {
        const double difference = mha__fixed_value(s->forms_apart[n]);
        largest = fmax(largest, mha__fixed_value(s->forms_gate[n]));
        if (!(difference <= apart)) apart = difference; /* propagates NAN */
    }
    return largest > 0 ? apart / largest : 0;
}
