/* layer_slots.c - finds the weights that the backward pass of a layer reads, and where it accumulates their
 * gradients. */
#include "base/ctx.h"
#include "base/error.h"
#include "model/backward/model_grads.h"
#include "model/weights/tensor_order.h"

typedef struct place {
    mha__role role;
    mha__grad_slot *slot;
    bool dense; /* true if the backward pass reads the weight */
} place;

/* ---- tensors in another order ---- */

static void copy_ordered(const mha_model_grads *g, int64_t layer, const mha__ordered *o, bool back)
{
    const mha__config *c = &g->model->config;
    const mha__grad_slot *from = back ? &o->ours : &o->stored, *to = back ? &o->stored : &o->ours;
    mha__order_copy(c, o->role, layer, false, from->dweight, to->dweight, back);
    if (from->dbias != to->dbias) mha__order_copy(c, o->role, layer, true, from->dbias, to->dbias, back);
}

/* If the gradient of the role is stored in another order than the model's, points the slot to a copy of the gradient
 * accumulated so far in the order of the model. */
static mha_status order(const mha_model_grads *g, int64_t layer, mha__role role, mha__grad_slot *slot,
                        mha__layer_slots *s, mha_error *err)
{
    const mha__config *c = &g->model->config;
    const int64_t count = mha__order_elements(c, role, layer, false),
                  biases = mha__order_elements(c, role, layer, true);
    const size_t bytes = (size_t)(count + biases) * sizeof(float);
    if (!count || !slot->dweight) return MHA_OK;
    mha__ordered *o = &s->ordered[s->ordered_count];
    *o = (mha__ordered){.role = role, .memory = mha__alloc(g->ctx, bytes), .stored = *slot};
    if (!o->memory) return mha__no_memory(err, bytes, "the gradient of a tensor");
    s->ordered_count++;
    slot->dweight = o->memory;
    if (slot->dbias && biases) slot->dbias = o->memory + count; /* biases = 0: stored in the model's order */
    o->ours = *slot;
    copy_ordered(g, layer, o, false);
    return MHA_OK;
}

/* ---- slots ---- */

static mha_status find_places(const mha_model_grads *g, int64_t layer, mha__weights *weights, const place *places,
                              size_t count, mha_error *err)
{
    for (size_t i = 0; i < count; i++) {
        *places[i].slot = mha__grads_slot(g, places[i].role, layer);
        if (g->packed) places[i].slot->packed = mha__grads_packed(g, places[i].role, layer);
        if (places[i].dense && !g->packed)
            MHA__TRY(mha__grads_weight(weights, places[i].role, layer, places[i].slot, err));
    }
    return MHA_OK;
}

/* Returns the part of a slot that begins at these elements of its weight and bias. */
static mha__grad_slot slot_at(const mha__grad_slot *whole, int64_t weight, int64_t bias, const mha_linear *packed)
{
    mha__grad_slot part = *whole;
    part.packed = packed;
    if (part.weight) part.weight = (const float *)part.weight + weight;
    if (part.dweight) part.dweight = (float *)part.dweight + weight;
    if (part.dbias) part.dbias = (float *)part.dbias + bias;
    return part;
}

/* Sets the slots of gate and up if both are stored as rows of one tensor. */
static mha_status split_gate_up(const mha_model_grads *g, int64_t layer, mha__weights *weights, mha__block_slots *s,
                                mha_error *err)
{
    const int64_t rows = g->model->config.intermediate, count = rows * g->model->config.hidden;
    mha__grad_slot both = mha__grads_slot(g, MHA__GATE_UP, layer);
    mha__feed_slots *f = &s->feed.feed;
    if (!g->packed) MHA__TRY(mha__grads_weight(weights, MHA__GATE_UP, layer, &both, err));
    if (!mha__weights_tensor(weights, MHA__GATE_UP, layer, false)) return MHA_OK;
    f->gate = slot_at(&both, 0, 0, f->gate.packed);
    f->up = slot_at(&both, count, rows, f->up.packed);
    return MHA_OK;
}

/* Sets the slots of all experts if their weights are in two tensors. */
static mha_status find_stacks(const mha_model_grads *g, int64_t layer, mha__weights *weights, mha__layer_slots *s,
                              mha_error *err)
{
    const mha__config *c = &g->model->config;
    const int64_t I = c->intermediate, count = c->hidden * I;
    mha__grad_slot both, down;
    const place places[] = {{MHA__EXPERTS_GATE_UP, &both, true}, {MHA__EXPERTS_DOWN, &down, true}};
    MHA__TRY(find_places(g, layer, weights, places, 2, err));
    MHA__TRY(order(g, layer, MHA__EXPERTS_GATE_UP, &both, s, err));
    for (int64_t e = 0; e < c->experts; e++) {
        const mha_linear *packed[3] = {NULL};
        for (int n = 0; n < 3 && g->packed; n++)
            packed[n] = mha__grads_packed(g, mha__expert_role((mha__role)(MHA__EXPERT_GATE + n), e), layer);
        s->block.feed.expert[e] =
            (mha__feed_slots){.gate = slot_at(&both, 2 * e * count, 2 * e * I, packed[0]),
                              .up = slot_at(&both, (2 * e + 1) * count, (2 * e + 1) * I, packed[1]),
                              .down = slot_at(&down, e * count, e * c->hidden, packed[2])};
    }
    return MHA_OK;
}

/* Sets the slots of all experts; the list must be freed. */
static mha_status find_experts(const mha_model_grads *g, int64_t layer, mha__weights *weights, mha__layer_slots *s,
                               mha_error *err)
{
    const mha__config *c = &g->model->config;
    mha__feed_part_slots *feed = &s->block.feed;
    const size_t bytes = (size_t)c->experts * sizeof *feed->expert;
    if (!g->model->block[layer]->experts) return MHA_OK;
    feed->expert = mha__calloc(g->ctx, 1, bytes);
    if (!feed->expert) return mha__no_memory(err, bytes, "the gradients of experts");
    if (mha__part_of(c, MHA__EXPERTS_DOWN)->kind) return find_stacks(g, layer, weights, s, err);
    for (int64_t e = 0; e < c->experts; e++) {
        mha__feed_slots *f = &feed->expert[e];
        const place places[] = {{mha__expert_role(MHA__EXPERT_GATE, e), &f->gate, true},
                                {mha__expert_role(MHA__EXPERT_UP, e), &f->up, true},
                                {mha__expert_role(MHA__EXPERT_DOWN, e), &f->down, true}};
        MHA__TRY(find_places(g, layer, weights, places, sizeof places / sizeof *places, err));
    }
    return MHA_OK;
}

/* Sets the slots of the convolution parallel to the block, whose tensors are outside the layers. */
static mha_status find_convolution(const mha_model_grads *g, mha__weights *weights, mha__block_slots *s, mha_error *err)
{
    s->convolution = mha__grads_slot(g, MHA__LAYER_CONVOLUTION, -1);
    s->convolution_norm = mha__grads_slot(g, MHA__LAYER_CONVOLUTION_NORM, -1);
    return mha__grads_weight(weights, MHA__LAYER_CONVOLUTION, -1, &s->convolution, err);
}

mha_status mha__layer_slots_find(const mha_model_grads *g, int64_t layer, mha__weights *weights,
                                 mha__layer_slots *slots, mha_error *err)
{
    mha__block_slots *s = &slots->block;
    const bool sparse = g->model->config.sparse[layer];
    const place places[] = {{MHA__QUERY, &s->attn.q, true},
                            {MHA__KEY, &s->attn.k, true},
                            {MHA__VALUE, &s->attn.v, true},
                            {MHA__QKV, &s->attn.qkv, true},
                            {MHA__ATTN_OUT, &s->attn.o, true},
                            {MHA__SINKS, &s->attn.sinks, false},
                            {MHA__Q_LATENT, &s->attn.q_a, true},
                            {MHA__Q_LATENT_NORM, &s->attn.q_a_norm, false},
                            {MHA__KV_LATENT, &s->attn.kv_a, true},
                            {MHA__KV_LATENT_NORM, &s->attn.kv_a_norm, false},
                            {MHA__KV_EXPAND, &s->attn.kv_b, true},
                            {MHA__POS_KEY, &s->attn.pos_key, true},
                            {MHA__POS_QUERY, &s->attn.pos_query, true},
                            {MHA__QUERY_NORM, &s->attn.q_norm, false},
                            {MHA__KEY_NORM, &s->attn.k_norm, false},
                            {MHA__HEAD_CHOICE, &s->attn.choice, false},
                            {MHA__HEAD_CHOICE_HIDDEN, &s->attn.choice_hidden, false},
                            {MHA__ATTN_NORM, &s->norm[MHA__BLOCK_ATTN_NORM], false},
                            {MHA__ATTN_OUT_NORM, &s->norm[MHA__BLOCK_ATTN_OUT_NORM], false},
                            {MHA__MLP_NORM, &s->norm[MHA__BLOCK_MLP_NORM], false},
                            {MHA__MLP_OUT_NORM, &s->norm[MHA__BLOCK_MLP_OUT_NORM], false},
                            {sparse ? MHA__SHARED_UP : MHA__UP, &s->feed.feed.up, true},
                            {sparse ? MHA__SHARED_GATE : MHA__GATE, &s->feed.feed.gate, true},
                            {sparse ? MHA__SHARED_DOWN : MHA__DOWN, &s->feed.feed.down, true},
                            {MHA__CROSS_QUERY, &s->cross.q, true},
                            {MHA__CROSS_KEY, &s->cross.k, true},
                            {MHA__CROSS_VALUE, &s->cross.v, true},
                            {MHA__CROSS_OUT, &s->cross.o, true},
                            {MHA__CROSS_NORM, &s->norm[MHA__BLOCK_CROSS_NORM], false},
                            {MHA__SHARED_SHARE, &s->feed.shared_gate, true},
                            {MHA__ROUTER, &s->feed.router, true}};
    MHA__TRY(find_places(g, layer, weights, places, sizeof places / sizeof *places, err));
    MHA__TRY(order(g, layer, MHA__QKV, &s->attn.qkv, slots, err));
    MHA__TRY(order(g, layer, MHA__ATTN_OUT, &s->attn.o, slots, err));
    MHA__TRY(find_experts(g, layer, weights, slots, err));
    if (g->model->block[layer]->convolution) MHA__TRY(find_convolution(g, weights, s, err));
    return split_gate_up(g, layer, weights, s, err);
}

void mha__layer_slots_end(const mha_model_grads *g, int64_t layer, mha__layer_slots *s, bool done)
{
    for (int n = 0; n < s->ordered_count; n++) {
        if (done) copy_ordered(g, layer, &s->ordered[n], true);
        mha__free(g->ctx, s->ordered[n].memory);
    }
    mha__free(g->ctx, s->block.feed.expert);
}
