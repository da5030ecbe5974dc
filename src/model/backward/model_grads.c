/* model_grads.c - the list of gradients: one gradient per tensor that the model uses, named as in the checkpoint. */
#include "model/backward/model_grads.h"

#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include <string.h>

/* ---- the list of parameters ---- */

static int64_t *numbers_of(const mha_model_grads *g, mha__role role, int64_t layer)
{
    return g->slots + ((layer + 1) * mha__config_roles(&g->model->config) + role) * 2;
}

static void add_tensor(mha_model_grads *g, const mha_tensor *tensor)
{
    if (g->list) {
        mha_named_tensor *entry = &g->list[g->count];
        *entry = (mha_named_tensor){.name = tensor->name, .dtype = MHA_F32, .rank = tensor->rank};
        memcpy(entry->shape, tensor->shape, (size_t)tensor->rank * sizeof *entry->shape);
        entry->data = (char *)g->gradients + g->bytes;
    }
    g->count++;
    g->bytes += (size_t)tensor->elements * sizeof *g->gradients;
}

static bool is_attention(mha__role role)
{
    return (role >= MHA__QUERY && role <= MHA__ATTN_OUT) || (role >= MHA__CROSS_QUERY && role <= MHA__CROSS_OUT);
}

/* Adds the parameters of `side`, which is g, its encoder or its image tower. An encoder may have the same word
 * embeddings. */
static void walk_side(mha_model_grads *g, const mha_model_grads *side)
{
    const mha_tensor *words = mha__weights_tensor(&g->model->outer, MHA__WORDS, -1, false);
    for (mha__tensor_step at = {0}; mha__tensor_each(&side->model->config, &at);) {
        const bool of_attention = is_attention(at.role);
        const bool learned = mha__grads_learned(&side->model->config, at.role);
        const bool wanted = (learned || g->constants) && (of_attention || !g->attention_only);
        const mha_tensor *tensor = wanted ? mha__model_tensor(side->model, &at) : NULL;
        const bool again = side != g && tensor && tensor == words;
        const int64_t number = again ? *numbers_of(g, MHA__WORDS, -1) : tensor ? g->count : -1;
        numbers_of(side, at.role, at.layer)[at.bias] = learned ? number : -1;
        if (tensor && !again) add_tensor(g, tensor);
    }
}

/* Counts the parameters and their bytes, and stores them in the list if it is allocated. */
static void walk(mha_model_grads *g)
{
    g->count = 0;
    g->bytes = 0;
    walk_side(g, g);
    if (g->encoder) walk_side(g, g->encoder);
    if (g->vision) walk_side(g, g->vision);
}

mha__grad_slot mha__grads_slot(const mha_model_grads *g, mha__role role, int64_t layer)
{
    const int64_t *number = numbers_of(g, role, mha__config_owner(&g->model->config, layer));
    mha__grad_slot slot = {.dtype = mha__grads_dtype(g, role),
                           .transposed = mha__part_transposed(mha__part_of(&g->model->config, role))};
    if (mha__grads_parameters(g) && number[0] >= 0) slot.dweight = g->list[number[0]].data;
    if (mha__grads_parameters(g) && number[1] >= 0) slot.dbias = g->list[number[1]].data;
    return slot;
}

mha_status mha__grads_weight(mha__weights *weights, mha__role role, int64_t layer, mha__grad_slot *slot, mha_error *err)
{
    const float *weight = NULL;
    MHA__TRY(mha__weights_again(weights, role, layer, &weight, err));
    slot->weight = weight;
    return MHA_OK;
}

/* ---- creation and release ---- */

static mha_status create_slots(mha_model_grads *g, mha_error *err)
{
    const size_t slots = (size_t)(g->model->config.layers + 1) * (size_t)mha__config_roles(&g->model->config) * 2;
    g->slots = mha__calloc(g->ctx, slots, sizeof *g->slots);
    if (!g->slots) return mha__no_memory(err, slots * sizeof *g->slots, "the list of gradients");
    for (size_t n = 0; n < slots; n++)
        g->slots[n] = -1; /* -1 = no gradient; entries without a tensor keep this value */
    return MHA_OK;
}

static mha_status create_list(mha_model_grads *g, bool parameters, mha_error *err)
{
    MHA__TRY(create_slots(g, err));
    if (g->encoder) MHA__TRY(create_slots(g->encoder, err));
    if (g->vision) MHA__TRY(create_slots(g->vision, err));
    walk(g);
    if (!parameters) {
        g->count = 0;
        return MHA_OK;
    }
    g->gradients = mha__calloc(g->ctx, 1, g->bytes);
    if (!g->gradients) return mha__no_memory(err, g->bytes, "the gradients of a model");
    g->list = mha__calloc(g->ctx, (size_t)g->count, sizeof *g->list);
    if (!g->list) return mha__no_memory(err, (size_t)g->count * sizeof *g->list, "the list of gradients");
    walk(g);
    if (g->encoder) g->encoder->list = g->list;
    if (g->vision) g->vision->list = g->list;
    return MHA_OK;
}

/* Allocates the struct, and that of the encoder or the image tower. */
static mha_status create_sides(const mha_model *model, const mha_model_grads_options *o, mha_model_grads **out,
                               mha_error *err)
{
    mha_model_grads *g = *out = mha__calloc(model->ctx, 1, sizeof *g);
    if (!g) return mha__no_memory(err, sizeof *g, "the gradients of a model");
    g->ctx = model->ctx;
    g->model = model;
    g->recompute = o->recompute != 0;
    g->attention_only = o->attention_only != 0;
    if (model->vision) MHA__TRY(create_sides(model->vision, o, &g->vision, err));
    return model->encoder ? create_sides(model->encoder, o, &g->encoder, err) : MHA_OK;
}

mha_status mha_model_grads_create(const mha_model *model, const mha_model_grads_options *options, mha_model_grads **out,
                                  mha_error *err)
{
    return mha__model_grads_create(model, options, false, out, err);
}

mha_status mha__model_grads_create(const mha_model *model, const mha_model_grads_options *options, bool constants,
                                   mha_model_grads **out, mha_error *err)
{
    mha_model_grads_options o;
    if (!model || !out)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_grads_create: %s must not be NULL", model ? "out" : "model");
    *out = NULL;
    MHA__TRY(mha__options_read(&o, sizeof o, options, "mha_model_grads_options", err));
    if (!model->packed)
        return mha__fail(err, MHA_ERR_ARG, "model must have weights (got a model opened with no_weights)");
    if (model->ranks.ranks)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "model must not be divided among ranks for gradients (got %d ranks)",
                         model->ranks.ranks);
    if (model->outer.packed != MHA_F32 && model->outer.packed != MHA_BF16)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "dtype of the model must be f32 or bf16 for gradients (got %s)",
                         mha_dtype_name(model->outer.packed));
    mha_model_grads *g = NULL;
    mha_status status = create_sides(model, &o, &g, err);
    if (status == MHA_OK) g->constants = constants;
    if (status == MHA_OK) status = create_list(g, !o.no_parameters, err);
    if (status == MHA_OK && o.pack) status = mha__grads_pack(g, err);
    if (status == MHA_OK && o.pack && g->encoder) status = mha__grads_pack(g->encoder, err);
    if (status == MHA_OK && o.pack && g->vision) status = mha__grads_pack(g->vision, err);
    if (status == MHA_OK)
        *out = g;
    else
        mha_model_grads_free(g);
    return status;
}

void mha_model_grads_free(mha_model_grads *grads)
{
    if (!grads) return;
    if (grads->encoder) grads->encoder->list = NULL; /* that of `grads` */
    if (grads->vision) grads->vision->list = NULL;
    mha_model_grads_free(grads->encoder);
    mha_model_grads_free(grads->vision);
    mha_attn_plan_free(grads->plan);
    mha_attn_plan_free(grads->cross.plan);
    mha__grads_unpack(grads);
    mha__free(grads->ctx, grads->pass.memory);
    mha__free(grads->ctx, grads->head.memory);
    mha__free(grads->ctx, grads->gradients);
    mha__free(grads->ctx, grads->list);
    mha__free(grads->ctx, grads->slots);
    mha__free(grads->ctx, grads);
}

/* Grows the buffer by at least half, because successive calls may each require a little more memory. Fresh pages are
 * slow, since the operating system clears them; untouched pages cost nothing. */
mha_status mha__grads_room(mha_model_grads *g, mha__room *room, size_t bytes, const char *what, mha_error *err)
{
    const size_t half_more = room->bytes + room->bytes / 2, all = bytes > half_more ? bytes : half_more;
    if (bytes <= room->bytes) return MHA_OK;
    mha__free(g->ctx, room->memory);
    room->memory = mha__alloc(g->ctx, all);
    room->bytes = room->memory ? all : 0;
    return room->memory ? MHA_OK : mha__no_memory(err, all, what);
}

mha_status mha_model_grads_dropout(mha_model_grads *grads, const mha_model_dropout *dropout, mha_error *err)
{
    static const mha_model_dropout none = {0};
    if (!grads) return mha__fail(err, MHA_ERR_ARG, "mha_model_grads_dropout: grads must not be NULL");
    const mha_model_dropout d = dropout ? *dropout : none;
    const double shares[] = {d.embedding, d.attention, d.residual};
    static const char *const names[] = {"embedding", "attention", "residual"};
    for (int n = 0; n < 3; n++)
        if (!(shares[n] >= 0 && shares[n] < 1)) /* also rejects NaN */
            return mha__fail(err, MHA_ERR_ARG, "mha_model_dropout: %s must be in [0, 1) (got %g)", names[n], shares[n]);
    for (int n = 0; n < 3; n++)
        if (shares[n] > 0) MHA__TRY(mha__model_not_seq2seq(grads->model, "mha_model_grads_dropout: model", err));
    grads->next_dropout = d;
    return MHA_OK;
}

const mha_named_tensor *mha_model_grads_list(const mha_model_grads *grads, int64_t *count)
{
    if (count) *count = grads ? grads->count : 0;
    return grads ? grads->list : NULL;
}

void mha_model_grads_zero(mha_model_grads *grads)
{
    if (grads && grads->gradients) memset(grads->gradients, 0, grads->bytes);
}
