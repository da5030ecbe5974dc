/* model_backward.c - backpropagates from the gradient of the last hidden states to the embeddings. The weights of a
 * layer are read from the mapped file. Weights that are not float32 are converted while the layer is processed. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "layer/elementwise.h"
#include "model/backward/model_grads.h"
#include "model/forward/pooler_logits.h"
#include "model/forward/relative_bias.h"
#include <string.h>

/* ---- backward pass of one layer ---- */

/* Returns row_taylor of the cross-attention, which follows that of the self-attention; NULL = not requested. */
static float *cross_taylor(const mha_model_grads *g, float *row_taylor)
{
    return row_taylor ? row_taylor + g->model->config.heads * g->batch.in.batch * g->batch.in.length : NULL;
}

/* Calls on_context with the head outputs of this layer and their gradients. */
static mha_status show(const mha_model_grads *g, int64_t layer, const mha__block_call *call,
                       const mha_model_gradient *wanted, float *row_taylor, mha_error *err)
{
    const mha__config *c = &g->model->config;
    mha_model_context_gradient shown = {.layer = layer,
                                        .rows = g->batch.in.batch * g->batch.in.length,
                                        .heads = c->layer_heads[layer],
                                        .head_dim = c->head_dim,
                                        .context = call->trace.attn.context,
                                        .dcontext = call->scratch.attn.dcontext,
                                        .row_taylor = row_taylor};
    bool stopped = wanted->on_context && wanted->on_context(wanted->user, &shown);
    shown.kind = MHA_HEADS_CROSS;
    shown.heads = c->cross_heads[layer];
    shown.context = call->trace.cross.context;
    shown.dcontext = call->scratch.cross.dcontext;
    shown.row_taylor = cross_taylor(g, row_taylor);
    if (wanted->on_context && !stopped && g->encoder) stopped = wanted->on_context(wanted->user, &shown);
    if (!stopped) return MHA_OK;
    return mha__fail(err, MHA_ERR_CANCELED, "stopped by on_context at layer %lld", (long long)layer);
}

/* Backpropagates through one layer. `row_taylor` [heads, rows] is large enough for any layer, or NULL; that of the
 * cross-attention follows. With `ends`, the backward pass stops in the attention of this layer. */
static mha_status layer_back(mha_model_grads *g, int64_t layer, const mha_model_gradient *wanted, float *row_taylor,
                             bool ends, mha_error *err)
{
    mha__block_call call;
    mha__layer_slots slots = {0};
    mha__weights weights = g->model->outer; /* a copy with its own list of converted tensors */
    const int64_t length = g->batch.in.length, rows = g->batch.in.batch * length;
    const size_t bytes = (size_t)(rows * g->model->config.hidden) * sizeof(float);
    weights.converted = NULL;
    MHA__TRY(mha__grads_call(g, layer, wanted, &call, err));
    call.attn.also.row_taylor = (mha_view){row_taylor, {length, rows, 1}};
    if (g->encoder) call.cross.also.row_taylor = (mha_view){cross_taylor(g, row_taylor), {length, rows, 1}};
    call.ends = ends;
    mha_status status = MHA_OK;
    if (g->recompute) {
        call.again = true;
        memcpy(g->saved.again, call.trace.x, bytes);
        status = mha__block_keep(&call, g->saved.again, err);
    }
    if (status == MHA_OK) status = mha__layer_slots_find(g, layer, &weights, &slots, err);
    if (status == MHA_OK) status = mha__block_back(&call, &slots.block, g->saved.dx, err);
    if (status == MHA_OK && call.attn.also.dbias.data)
        status = mha__relative_back(g->model, layer, mha__batch_map_rows(&g->batch), g->saved.dbias,
                                    mha__grads_slot(g, MHA__RELATIVE, -1).dweight, err);
    mha__layer_slots_end(g, layer, &slots, status == MHA_OK);
    if (status == MHA_OK) status = show(g, layer, &call, wanted, row_taylor, err);
    mha__weights_release(&weights);
    return status;
}

/* ---- final norm and embeddings ---- */

static mha_status outer_norm_back(const mha_model_grads *g, mha__role role, const mha_norm *norm, int64_t width,
                                  const float *x, float *dx, mha_error *err)
{
    const mha__grad_slot slot = mha__grads_slot(g, role, -1);
    const mha_norm_gradient gradient = {.size = sizeof gradient,
                                        .rows = g->batch.in.batch * g->batch.in.length,
                                        .width = width,
                                        .x = x,
                                        .dy = dx,
                                        .dx = dx,
                                        .dweight = slot.dweight,
                                        .dbias = slot.dbias};
    return mha_norm_backward(g->ctx, norm, &gradient, err);
}

/* Backpropagates saved.dx through the linear map from embeddings to hidden states. */
static mha_status embed_map_back(const mha_model_grads *g, mha_error *err)
{
    const mha__config *c = &g->model->config;
    mha__weights weights = g->model->outer; /* a copy with its own list of converted tensors */
    mha__linear_grad grad = {.slot = mha__grads_slot(g, MHA__EMBED_MAP, -1),
                             .rows = g->batch.in.batch * g->batch.in.length,
                             .in = c->embed_width,
                             .out = c->hidden,
                             .x = g->saved.embedded,
                             .dy = g->saved.dx,
                             .dx = g->saved.dembedded};
    weights.converted = NULL;
    mha_status status = mha__grads_weight(&weights, MHA__EMBED_MAP, -1, &grad.slot, err);
    if (status == MHA_OK) status = mha__linear_backward(g->ctx, &grad, err);
    mha__weights_release(&weights);
    return status;
}

/* Sets the rows of padding tokens in dx to zero. Like padding_idx of nn.Embedding, the padding id gets no
 * gradient for its word embedding, nor for its position if positions start after the padding id. */
static void clear_padding(const mha_model_grads *g, int64_t rows, float *dx)
{
    const mha__config *c = &g->model->config;
    for (int64_t r = 0; r < rows; r++)
        if (g->batch.in.ids[r] == c->padding) memset(dx + r * c->embed_width, 0, (size_t)c->embed_width * sizeof *dx);
}

/* Adds dx to the gradient of the position table. */
static mha_status positions_back(const mha_model_grads *g, const float *dx, mha_error *err)
{
    const mha__config *c = &g->model->config;
    const mha__batch *b = &g->batch;
    float *const positions = mha__grads_slot(g, MHA__POSITIONS, -1).dweight;
    if (!positions) return MHA_OK;
    return mha_embedding_backward("positions", positions, c->position_rows, c->position_width, b->positions,
                                  b->in.batch * b->in.length, dx, err);
}

static mha_status embed_back(const mha_model_grads *g, float *dembeddings, mha_error *err)
{
    const mha_model *m = g->model;
    const mha__batch *b = &g->batch;
    const mha__config *c = &m->config;
    const int64_t rows = b->in.batch * b->in.length, width = c->embed_width;
    float *dx = m->embed_map ? g->saved.dembedded : g->saved.dx;
    float *const words = mha__grads_slot(g, MHA__WORDS, -1).dweight;
    float *const types = mha__grads_slot(g, MHA__TYPES, -1).dweight;
    const mha__drop drop = mha__grads_drop(g, 0, MHA__DROP_EMBEDDINGS);
    const float scale = c->embed_scale;
    if (c->positions_late) MHA__TRY(positions_back(g, g->saved.dx, err));
    if (m->embed_map) MHA__TRY(embed_map_back(g, err));
    mha__drop_rows(g->ctx, &drop, &b->layer, width, dx);
    if (g->saved.sum) MHA__TRY(outer_norm_back(g, MHA__EMBED_NORM, &m->embed_norm, width, g->saved.sum, dx, err));
    for (int64_t i = 0; dembeddings && i < rows * width; i++)
        dembeddings[i] = dx[i] * scale;
    if (types)
        MHA__TRY(mha_embedding_backward("type_ids", types, c->type_vocab, width,
                                        b->in.type_ids ? b->in.type_ids : b->zeros, rows, dx, err));
    if (c->family->position_rule == MHA__POSITIONS_AFTER_PAD) clear_padding(g, rows, dx);
    if (!c->positions_late) MHA__TRY(positions_back(g, dx, err));
    if (c->channels) return mha__grads_image(g, dx, err);
    if (m->convolution[0]) return mha__grads_parameters(g) && !g->attention_only ? mha__grads_stem(g, dx, err) : MHA_OK;
    if (!words) return MHA_OK;
    for (int64_t i = 0; scale != 1 && i < rows * width; i++)
        dx[i] *= scale;
    clear_padding(g, rows, dx);
    return mha_embedding_backward("ids", words, c->vocab, width, b->in.ids, rows, dx, err);
}

mha_status mha__grads_check(const mha_model *m, const mha_model_gradient *wanted, mha_error *err)
{
    const char *other = wanted->cross_gates ? "cross_gates" : wanted->encoder_gates ? "encoder_gates" : NULL;
    if (other && !m->encoder)
        return mha__fail(err, MHA_ERR_ARG, "gradients of %s must not be requested, since %s is not an encoder-decoder",
                         other, m->info.family);
    if (!wanted->taylor || wanted->on_context) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "on_context must not be NULL with taylor = %d", wanted->taylor);
}

static mha_status layers_back(mha_model_grads *g, const mha_model_gradient *wanted, float *row_taylor, bool ends,
                              mha_error *err)
{
    for (int64_t layer = g->model->config.layers - 1; layer >= 0; layer--)
        MHA__TRY(layer_back(g, layer, wanted, row_taylor, ends && layer == 0, err));
    return MHA_OK;
}

/* Backpropagates saved.dtable to the embeddings of relative positions and their norm. */
static mha_status distances_back(const mha_model_grads *g, mha_error *err)
{
    const mha_model *m = g->model;
    const mha__grad_slot table = mha__grads_slot(g, MHA__DISTANCES, -1),
                         norm = mha__grads_slot(g, MHA__DISTANCES_NORM, -1);
    const int64_t rows = m->config.distance_rows, width = m->config.hidden;
    const mha_norm_gradient gradient = {.size = sizeof gradient,
                                        .rows = rows,
                                        .width = width,
                                        .x = m->distances.weight,
                                        .dy = g->saved.dtable,
                                        .dx = g->saved.dtable,
                                        .dweight = norm.dweight,
                                        .dbias = norm.dbias};
    if (m->distances_norm.weight) MHA__TRY(mha_norm_backward(g->ctx, &m->distances_norm, &gradient, err));
    mha__join(g->ctx, MHA__ADD, rows * width, g->saved.dtable, table.dweight);
    return MHA_OK;
}

/* Calls the caller's on_context for a layer of the encoder. */
static int show_encoder(void *user, const mha_model_context_gradient *g)
{
    const mha_model_gradient *wanted = user;
    mha_model_context_gradient shown = *g;
    shown.kind = MHA_HEADS_ENCODER;
    return wanted->on_context(wanted->user, &shown);
}

/* Backpropagates the gradient of the source through the encoder of an encoder-decoder, if it is wanted. */
static mha_status encoder_back(mha_model_grads *g, const mha_model_gradient *wanted, mha_error *err)
{
    if (!mha__grads_source_wanted(g, wanted)) return MHA_OK;
    const mha_model_gradient gradient = {.size = sizeof gradient,
                                         .last_hidden = g->saved.dsource,
                                         .gates = wanted->encoder_gates,
                                         .on_context = wanted->on_context ? show_encoder : NULL,
                                         .user = (void *)wanted,
                                         .taylor = wanted->taylor};
    return mha_model_grads_backward(g->encoder, &gradient, err);
}

mha_status mha__grads_down(mha_model_grads *g, const mha_model_gradient *wanted, mha_error *err)
{
    const mha_model *m = g->model;
    const mha__config *c = &m->config;
    const size_t gates = (size_t)(c->layers * g->batch.sequences * c->heads) * sizeof *wanted->gates;
    const size_t kinds = g->encoder ? 2 : 1; /* row_taylor of self-attention and of cross-attention */
    const size_t taylor = kinds * (size_t)(c->heads * g->batch.in.batch * g->batch.in.length) * sizeof(float);
    const size_t table = (size_t)(c->distance_rows * c->hidden) * sizeof(float);
    const bool whole = mha__grads_parameters(g) && !g->attention_only;
    const bool ends =
        !whole && !wanted->embeddings && !g->sites; /* the backward pass stops in the attention of the first layer */
    MHA__TRY(mha__model_single_heads(m, wanted->gates ? "gradients" : wanted->on_context ? "contexts" : NULL, err));
    float *row_taylor = wanted->taylor ? mha__alloc(g->ctx, taylor) : NULL;
    if (wanted->taylor && !row_taylor) return mha__no_memory(err, taylor, "row_taylor");
    if (wanted->gates) memset(wanted->gates, 0, gates);
    if (wanted->cross_gates) memset(wanted->cross_gates, 0, gates);
    mha__grads_source_begin(g);
    mha_status status = MHA_OK;
    if (m->final_norm.weight)
        status = outer_norm_back(g, MHA__FINAL_NORM, &m->final_norm, c->hidden, g->saved.x, g->saved.dx, err);
    if (g->saved.dtable) memset(g->saved.dtable, 0, table);
    if (status == MHA_OK) status = layers_back(g, wanted, row_taylor, ends, err);
    if (status == MHA_OK && g->saved.dtable) status = distances_back(g, err);
    mha__free(g->ctx, row_taylor);
    if (status == MHA_OK) status = encoder_back(g, wanted, err);
    return status == MHA_OK && !ends && !g->start ? embed_back(g, wanted->embeddings, err) : status;
}

/* ---- gradients passed by the caller ---- */

/* Sets saved.dx to the caller's gradient of the last hidden states, or to zeros if there is none. Rows of masked tokens
 * are always zeros. */
static void start(mha_model_grads *g, const float *last_hidden)
{
    const int64_t rows = g->batch.in.batch * g->batch.in.length, width = g->model->config.hidden;
    for (int64_t r = 0; r < rows; r++) {
        float *row = g->saved.dx + r * width;
        if (last_hidden && mha__grads_real(g, r))
            memcpy(row, last_hidden + r * width, (size_t)width * sizeof *row);
        else
            memset(row, 0, (size_t)width * sizeof *row);
    }
}

/* Backpropagates dlogits of all real tokens or, with `last`, of the last real token of each sequence; in an image
 * classifier, of the class tokens. */
static mha_status logits_back(mha_model_grads *g, const float *dlogits, bool last, mha_error *err)
{
    const int64_t rows = g->batch.in.batch * g->batch.in.length;
    const size_t bytes = (size_t)rows * sizeof(int64_t);
    int64_t *chosen = mha__alloc(g->ctx, bytes);
    const bool classes = g->model->config.channels > 0;
    mha__head_job job = {.rows = chosen, .dlogits = dlogits, .chosen = last || classes};
    if (!chosen) return mha__no_memory(err, bytes, "the indices of rows of logits");
    for (int64_t b = 0; job.chosen && b < g->batch.sequences; b++)
        chosen[job.count++] = classes ? mha__batch_first(&g->batch, b) : mha__batch_last(&g->batch, b);
    for (int64_t r = 0; !job.chosen && r < rows; r++)
        if (mha__grads_real(g, r)) chosen[job.count++] = r;
    const mha_status status = mha__grads_head(g, &job, NULL, err);
    mha__free(g->ctx, chosen);
    return status;
}

mha_status mha_model_grads_backward(mha_model_grads *g, const mha_model_gradient *gradient, mha_error *err)
{
    mha_model_gradient given;
    if (!g || !g->ready)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_grads_backward: %s",
                         g ? "mha_model_grads_forward must be called first" : "grads must not be NULL");
    MHA__TRY(mha__options_read(&given, sizeof given, gradient, "mha_model_gradient", err));
    MHA__TRY(mha__grads_check(g->model, &given, err));
    MHA__TRY(mha__head_check(g->model, given.pooled != NULL, given.logits || given.last_logits, err));
    MHA__TRY(mha__head_check_vision(g->model, &g->batch, given.pooled != NULL, given.last_logits != NULL,
                                    given.embedding != NULL, err));
    start(g, given.last_hidden);
    if (given.embedding) MHA__TRY(mha__grads_pooled(g, NULL, given.embedding, err));
    if (given.pooled) MHA__TRY(mha__grads_pooler(g, given.pooled, err));
    if (given.logits) MHA__TRY(logits_back(g, given.logits, false, err));
    if (given.last_logits) MHA__TRY(logits_back(g, given.last_logits, true, err));
    return mha__grads_down(g, &given, err);
}
