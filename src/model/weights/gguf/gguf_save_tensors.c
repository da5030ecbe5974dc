/* gguf_save_tensors.c - the tensors of a GGUF file that is saved: their names, shapes and types, and their elements. */
#include "base/ctx.h"
#include "base/error.h"
#include "io/derived_tensor.h"
#include "model/gguf/gguf_layout.h"
#include "model/weights/gguf/gguf_save.h"
#include <string.h>

enum { NAME = 96 };

/* A tensor, and its form in the file. */
struct mha__gguf_item {
    const mha_tensor *from; /* of the first expert, with MHA__GGUF_EXPERTS */
    const float *elements;  /* instead of `from`, or NULL */
    mha__gguf_change change;
    int64_t heads; /* for MHA__GGUF_ROWS_Q and MHA__GGUF_ROWS_K */
    mha__tensor_step at;
    int64_t shape[MHA__GGUF_RANK];
    char name[NAME];
};

/* Returns the type in which a tensor is stored. */
static const char *type_of(const mha__gguf_tensors *s, const mha_tensor *t, const char *name)
{
    const int64_t row = t->rank ? t->shape[t->rank - 1] : 1;
    const mha_dtype dtype = s->dtype ? s->dtype : t->dtype;
    if (t->rank < 2 || strncmp(name, "position_embd", 13) == 0 || strncmp(name, "token_types", 11) == 0 ||
        strstr(name, ".ffn_gate_inp.") || strstr(name, ".bias"))
        return "F32";
    if (!s->dtype && t->dtype_name && strcmp(t->dtype_name, "MXFP4") == 0 && row % 32 == 0) return "MXFP4";
    if (dtype == MHA_BF16) return "BF16";
    if (s->dtype == MHA_Q8_0) return row % 32 ? "F16" : "Q8_0";
    return dtype == MHA_F16 ? "F16" : "F32";
}

/* Sets the shape of the last item, and adds it to the list. */
static void add_item(mha__gguf_tensors *s, const mha_tensor *t)
{
    mha__gguf_item *to = &s->items[s->count];
    const int experts = to->change == MHA__GGUF_EXPERTS, rank = t->rank + experts;
    int64_t *last = &to->shape[rank - 1];
    if (experts) to->shape[0] = s->m->config.experts;
    memcpy(to->shape + experts, t->shape, (size_t)t->rank * sizeof *t->shape);
    if (mha__gguf_is_half(to->change)) *last /= 2;
    if (to->change == MHA__GGUF_TRANSPOSED || (rank == 3 && mha__gguf_is_stack(to->change))) {
        const int64_t rows = *last;
        *last = last[-1];
        last[-1] = rows;
    }
    const mha_tensor stored = {
        .rank = rank, .shape = to->shape, .dtype = mha__tensor_dtype(t), .dtype_name = t->dtype_name};
    s->list[s->count++] =
        (mha__gguf_outgoing){.name = to->name, .rank = rank, .shape = to->shape, .type = type_of(s, &stored, to->name)};
}

/* Adds the part that has the odd columns of the tensor whose even columns were added last. */
static mha_status add_up(mha__gguf_tensors *s, const char *own, const mha_tensor *t, mha_error *err)
{
    mha__gguf_item *to = &s->items[s->count];
    *to = to[-1];
    to->change = MHA__GGUF_UP;
    char *gate = strstr(to->name, "gate_exps");
    if (!gate) return mha__fail(err, MHA_ERR_UNSUPPORTED, "tensor \"%s\" must have a gate (got \"%s\")", own, to->name);
    memmove(gate + 2, gate + 4, strlen(gate + 4) + 1);
    memcpy(gate, "up", 2);
    add_item(s, t);
    return MHA_OK;
}

static mha_status add_tensor(mha__gguf_tensors *s, const mha__config *c, const mha__tensor_step *at,
                             const mha_tensor *t, mha_error *err)
{
    char own[MHA__TENSOR_NAME];
    mha_named_tensor named;
    mha__gguf_item *to = &s->items[s->count];
    mha__weights_expected(c, at->role, at->layer, at->bias, own, &named);
    const mha__gguf_part *part = mha__gguf_part_named(s->arch, own, false, to->name, sizeof to->name);
    if (!part || t->rank > MHA__GGUF_RANK || (at->bias && s->arch->unbiased))
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "tensor \"%s\" must be absent in a GGUF file of architecture %s",
                         t->name, s->arch->name);
    to->from = t;
    to->at = *at;
    const bool matrix = part->change == MHA__GGUF_TRANSPOSED || part->change == MHA__GGUF_STACK;
    to->change = at->bias && matrix ? MHA__GGUF_SAME : part->change;
    to->heads = part->change == MHA__GGUF_ROWS_Q ? c->layer_heads[0] : c->layer_k_heads[0];
    add_item(s, t);
    return to->change == MHA__GGUF_GATE ? add_up(s, own, t, err) : MHA_OK;
}

/* Returns true for tensors that the file omits: the pooler of BERT, and a tied output matrix. */
static bool is_omitted(const mha__gguf_tensors *s, mha__role role)
{
    return role == MHA__POOLER ||
           (role == MHA__LM_HEAD && mha__model_is_tied(s->m, (mha_model_range){0, s->m->config.vocab}));
}

static void add_factors(mha__gguf_tensors *s, const char *name, const float *factors, int64_t count)
{
    mha__gguf_item *to = &s->items[s->count];
    *to = (mha__gguf_item){.elements = factors, .shape = {count}};
    s->list[s->count++] = (mha__gguf_outgoing){.name = name, .rank = 1, .shape = to->shape, .type = "F32"};
}

/* Adds the factors by which Phi-3 divides the frequencies of short and of long texts. */
static void add_long_factors(mha__gguf_tensors *s)
{
    const mha_rope_options *o = &s->m->config.rope;
    for (int n = 0; n < 2; n++) {
        for (int64_t i = 0; i < o->rotary_dim / 2; i++)
            s->rope_factors[n][i] = (float)(n ? o->long_by : o->short_by)[i];
        add_factors(s, mha__gguf_rope_factors[n + 1], s->rope_factors[n], o->rotary_dim / 2);
    }
}

/* Adds the factors by which LLaMA 3 scales its rotation. */
static mha_status add_rope_factors(mha__gguf_tensors *s, mha_error *err)
{
    const mha__config *c = &s->m->config;
    mha_rope_options plain = c->rope;
    double f[2][MHA_HEAD_DIM_MAX / 2], gain;
    if (c->rope.kind != MHA_ROPE_LLAMA3 && c->rope.kind != MHA_ROPE_LONGROPE) return MHA_OK;
    if (s->arch->phi) {
        add_long_factors(s);
        return MHA_OK;
    }
    plain.kind = MHA_ROPE_DEFAULT;
    MHA__TRY(mha_rope_frequencies(&plain, 1, f[0], &gain, err));
    MHA__TRY(mha_rope_frequencies(&c->rope, 1, f[1], &gain, err));
    for (int64_t i = 0; i < c->head_dim / 2; i++)
        s->rope_factors[0][i] = (float)(f[0][i] / f[1][i]);
    add_factors(s, mha__gguf_rope_factors[0], s->rope_factors[0], c->head_dim / 2);
    return MHA_OK;
}

/* Adds the tensors of a model, or of one side of an encoder-decoder. Words that the sides share are those of the
 * decoder. *largest receives the elements of the largest tensor. */
static mha_status list_side(mha__gguf_tensors *s, const mha_model *m, int64_t *largest, mha_error *err)
{
    for (mha__tensor_step at = {0}; mha__tensor_each(&m->config, &at);) {
        const mha_tensor *t = mha__weights_tensor(&m->outer, at.role, at.layer, at.bias);
        if (!t || is_omitted(s, at.role) || (m != s->m && at.role == MHA__WORDS)) continue;
        if (mha__of_experts(at.role) && at.role >= MHA__ROLES) continue; /* belongs to the tensor of expert 0 */
        MHA__TRY(add_tensor(s, &m->config, &at, t, err));
        const int64_t elements = mha__of_experts(at.role) ? t->elements * m->config.experts : t->elements;
        if (elements > *largest) *largest = elements;
    }
    return MHA_OK;
}

mha_status mha__gguf_list_tensors(mha__gguf_tensors *s, mha_error *err)
{
    const mha_model *m = s->m;
    /* gate and up may be one tensor of the model */
    const size_t max = 2 * ((size_t)mha_file_count(m->shards.file) + (size_t)m->shards.instead_count) + 2;
    int64_t largest = 1;
    s->list = mha__calloc(m->ctx, max, sizeof *s->list);
    s->items = mha__calloc(m->ctx, max, sizeof *s->items);
    if (!s->list || !s->items)
        return mha__no_memory(err, max * (sizeof *s->list + sizeof *s->items), "the list of tensors");
    MHA__TRY(list_side(s, m, &largest, err));
    if (m->encoder) MHA__TRY(list_side(s, m->encoder, &largest, err));
    MHA__TRY(add_rope_factors(s, err));
    s->read = mha__alloc(m->ctx, (size_t)largest * sizeof *s->read);
    s->changed = mha__alloc(m->ctx, (size_t)largest * sizeof *s->changed);
    return s->read && s->changed ? MHA_OK : mha__no_memory(err, (size_t)largest * 8, "a tensor");
}

/* Reads the matrices of all experts, one after another. */
static mha_status read_experts(mha__gguf_tensors *s, const mha__gguf_item *it, mha_error *err)
{
    const mha_model *m = s->m;
    for (int64_t n = 0; n < m->config.experts; n++) {
        const mha__role role = mha__expert_role(it->at.role, n);
        const mha_tensor *t = mha__weights_tensor(&m->outer, role, it->at.layer, it->at.bias);
        if (!t || t->rank != it->from->rank ||
            memcmp(t->shape, it->from->shape, (size_t)t->rank * sizeof *t->shape) != 0)
            return mha__fail(err, MHA_ERR_FORMAT, "tensor \"%s\" must have the same shape in every expert",
                             it->from->name);
        MHA__TRY(mha_tensor_read(t, MHA_F32, s->read + n * t->elements, err));
    }
    return MHA_OK;
}

mha_status mha__gguf_read_tensor(void *user, int64_t index, const float **elements, mha_error *err)
{
    mha__gguf_tensors *s = user;
    const mha__gguf_item *it = &s->items[index];
    const mha_tensor *t = it->from;
    *elements = it->elements ? it->elements : s->read;
    if (it->elements) return MHA_OK;
    if (it->change == MHA__GGUF_EXPERTS) return read_experts(s, it, err);
    MHA__TRY(mha_tensor_read(t, MHA_F32, s->read, err));
    if (mha__gguf_lay_out(t, it->change, it->heads, s->read, s->changed)) *elements = s->changed;
    return MHA_OK;
}

void mha__gguf_tensors_free(mha__gguf_tensors *s)
{
    mha__free(s->m->ctx, s->list);
    mha__free(s->m->ctx, s->items);
    mha__free(s->m->ctx, s->read);
    mha__free(s->m->ctx, s->changed);
}
