/* inner_case.c - implements inner_case.h. Opens models, creates inputs, and computes the formulas. */
#include "support/passes/inner_case.h"

#include "support/check.h"
#include "support/rng.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = INNER_B, L = INNER_L, TOKENS = B * L, VOCAB = 64, GATES = INNER_LAYERS * B * INNER_H };

const inner_family inner_families[INNER_FAMILIES] = {
    {"models/bert-tiny", "encoder.layer.%d.attention.output.dense.weight",
     "encoder.layer.%d.attention.output.dense.bias", false, false, 0, 0, 0, 0},
    {"models/gpt2-tiny", "transformer.h.%d.attn.c_proj.weight", "transformer.h.%d.attn.c_proj.bias", true, true, 0, 0,
     0, 0},
    {"models/gemma2-tiny", "model.layers.%d.self_attn.o_proj.weight", NULL, false, true, 20, 4, 8, 2},
    {"families/qwen3", "model.layers.%d.self_attn.o_proj.weight", NULL, false, true, 0, 0, 0, 0},
};

mha_model *inner_open(mha_ctx *ctx, int family, mha_dtype dtype)
{
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .dtype = dtype};
    return case_model(ctx, inner_families[family].folder, &o);
}

/* ---- inputs ---- */

static int32_t ids[TOKENS];
static uint8_t mask[TOKENS];
static float gates[GATES], fills[INNER_LAYERS * INNER_H * INNER_WIDEST];
static const int64_t starts[B + 1] = {0, 11, 12, 12 + L};

mha_model_input inner_input(int kind)
{
    mha_model_input in = {.size = sizeof in, .batch = B, .length = L, .ids = ids};
    const int64_t lengths[B] = {L, 9, 1};
    rng r = rng_make(7, 1);
    for (int64_t n = 0; n < TOKENS; n++) {
        const int64_t b = n / L, i = n % L;
        ids[n] = (int32_t)rng_range(&r, 0, VOCAB - 1);
        mask[n] = kind == INNER_LEFT ? i >= L - lengths[b] : kind == INNER_HOLES ? i % 7 != b : i < lengths[b];
    }
    for (int n = 0; n < GATES; n++)
        gates[n] = (float)(n % 5) / 4;
    for (size_t n = 0; n < sizeof fills / sizeof *fills; n++)
        fills[n] = (float)(n % 11) / 8 - 0.5f; /* exact in 16-bit types */
    if (kind == INNER_PADDED || kind == INNER_HOLES || kind == INNER_LEFT) in.mask = mask;
    if (kind == INNER_PACKED) in.starts = starts;
    if (kind == INNER_GATED || kind == INNER_FILLED) in.gates = gates;
    if (kind == INNER_FILLED) in.fills = fills;
    return in;
}

int64_t inner_rows(const mha_model_input *in)
{
    return in->starts ? in->starts[in->batch] : in->batch * in->length;
}

bool inner_is_real(const mha_model_input *in, int64_t row)
{
    return in->starts || !in->mask || in->mask[row];
}

void inner_sequence(const mha_model_input *in, int64_t row, int64_t *b, int64_t *first, int64_t *end)
{
    if (!in->starts) {
        *b = row / in->length, *first = *b * in->length, *end = *first + in->length;
        return;
    }
    for (*b = 0; row >= in->starts[*b + 1];)
        ++*b;
    *first = in->starts[*b], *end = in->starts[*b + 1];
}

double inner_gate(const mha_model_input *in, int64_t layer, int64_t row, int64_t h)
{
    int64_t b, first, end;
    inner_sequence(in, row, &b, &first, &end);
    return in->gates ? (double)in->gates[(layer * in->batch + b) * INNER_H + h] : 1;
}

/* ---- reference formula ---- */

static bool may_see(const inner_family *f, const mha_model_input *in, int64_t layer, int64_t row, int64_t key)
{
    const bool windowed = f->window && layer % f->windowed_every == 0;
    if (f->causal && key > row) return false;
    if (windowed && row - key >= f->window) return false;
    return inner_is_real(in, key);
}

void inner_probs(const inner_family *f, const mha_model_input *in, const mha_model_activations *a, int64_t row,
                 int64_t h, double *p)
{
    const int64_t D = a->head_dim, g = h / (a->heads / a->kv_heads);
    const double square = f->divisor > 0 ? f->divisor : (double)D;
    int64_t b, first, end;
    double sum = 0;
    inner_sequence(in, row, &b, &first, &end);
    memset(p, 0, (size_t)a->rows * sizeof *p);
    for (int64_t j = first; j < end; j++) {
        if (!may_see(f, in, a->layer, row, j)) continue;
        double s = 0;
        for (int64_t d = 0; d < D; d++)
            s += (double)a->q[row * a->stride + h * D + d] * (double)a->k[j * a->stride + g * D + d];
        s /= sqrt(square);
        if (f->softcap > 0) s = f->softcap * tanh(s / f->softcap);
        sum += p[j] = exp(s);
    }
    for (int64_t j = first; j < end; j++)
        p[j] /= sum;
}

/* ---- copies of activations ---- */

static const float *copy(const float *from, int64_t count)
{
    float *to = malloc((size_t)count * sizeof *to);
    return memcpy(to, from, (size_t)count * sizeof *to);
}

mha_model_activations inner_keep(const mha_model_activations *a, int64_t width)
{
    mha_model_activations c = *a;
    c.input = copy(a->input, a->rows * width);
    c.q = copy(a->q, a->rows * a->stride);
    c.k = c.q + (a->k - a->q);
    c.v = c.q + (a->v - a->q);
    c.context = copy(a->context, a->rows * a->heads * a->head_dim);
    c.out = copy(a->out, a->rows * width);
    return c;
}

void inner_release(mha_model_activations *a)
{
    free((void *)(uintptr_t)a->input);
    free((void *)(uintptr_t)a->q);
    free((void *)(uintptr_t)a->context);
    free((void *)(uintptr_t)a->out);
}

/* ---- a forward pass that copies all data passed to its callbacks ---- */

int inner_keep_activations(void *user, const mha_model_activations *a)
{
    inner_seen *s = user;
    const int64_t D = a->head_dim, q_width = a->heads * D;
    assert_int_equal(a->rows, s->rows);
    assert_int_equal(a->layer, s->next++);
    assert_int_equal(a->stride, q_width + 2 * a->kv_heads * D);
    assert_true(a->k - a->q == q_width && a->v - a->k == a->kv_heads * D);
    s->a[a->layer] = inner_keep(a, s->width);
    s->calls++;
    return 0;
}

static int keep_hidden(void *user, int64_t entry, const float *x)
{
    inner_seen *s = user;
    const size_t bytes = (size_t)(s->rows * s->width) * sizeof *x;
    s->hidden[entry] = memcpy(malloc(bytes), x, bytes);
    return 0;
}

inner_seen inner_run(const mha_model *model, const mha_model_input *in, bool shown)
{
    mha_error err = {0};
    inner_seen s = {.width = mha_model_describe(model)->hidden, .rows = inner_rows(in), .next = in->first_layer};
    s.last = malloc((size_t)(s.rows * s.width) * sizeof *s.last);
    const mha_model_output out = {.size = sizeof out,
                                  .last_hidden = s.last,
                                  .on_hidden = shown ? keep_hidden : NULL,
                                  .on_activations = shown ? inner_keep_activations : NULL,
                                  .user = &s};
    if (mha_model_forward(model, in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
    return s;
}

void inner_seen_free(inner_seen *s)
{
    for (int n = 0; n < INNER_LAYERS; n++)
        inner_release(&s->a[n]);
    for (int n = 0; n <= INNER_LAYERS; n++)
        free(s->hidden[n]);
    free(s->last);
}

void inner_same_rows(const mha_model_input *in, const float *a, const float *b, int64_t width)
{
    for (int64_t r = 0; r < inner_rows(in); r++)
        if (inner_is_real(in, r)) assert_memory_equal(a + r * width, b + r * width, (size_t)width * sizeof *a);
}
