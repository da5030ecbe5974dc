/* golden_mha.c - compares the library's linear layers and operator with golden results of torch.nn.MultiheadAttention.
 *
 * PyTorch's masks are true for masked keys, but the library's masks are true for unmasked keys. The learned key and
 * value (bias_k, bias_v) and the key of zeros are appended to the projected keys and values, and are never masked. */
#include "conformance/golden_ops.h"
#include <string.h>

typedef struct module {
    ops_case *c;
    int64_t E, H, B, L, S, extra; /* S: number of keys, without the `extra` appended keys */
    bool batch_first, batched;
    float *q, *k, *v, *out, *y, *probs;
    uint8_t *keep; /* [B, H, L, S + extra]; NULL = none */
    float *bias;   /* [L, S + extra]; NULL = none */
} module;

static bool flag(const module *m, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(json_object_get(m->c->entry.object, "module"), key);
    return value ? json_is_true(value) : otherwise;
}

static int64_t size_of(const module *m, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(json_object_get(m->c->entry.object, "module"), key);
    return value ? json_integer_value(value) : otherwise;
}

static bool failed(const module *m)
{
    return m->c->entry.error->status != MHA_OK || m->c->outcome.broken || m->c->outcome.refused;
}

/* ---- inputs and projections ---- */

/* Returns [B, length, width] of an input stored as [length, B, width] or [length, width]. */
static const float *input(module *m, const char *name, int64_t *length, int64_t width)
{
    const int rank = m->batched ? 3 : 2;
    int64_t shape[3] = {-1, -1, width};
    if (!m->batched) shape[1] = width;
    const float *x = ops_floats(m->c, name, rank, shape);
    const int64_t rows = m->batch_first || !m->batched ? m->batched : 0;
    if (!x) return NULL;
    *length = shape[rows];
    const int64_t batch = m->batched ? shape[1 - rows] : 1;
    if (m->B && batch != m->B) verify_fault(&m->c->entry, "tensor \"%s\" must have the query's batch size", name);
    m->B = batch;
    if (m->batch_first || !m->batched) return x;
    float *turned = ops_room(m->c, batch * *length * width);
    for (int64_t b = 0; turned && b < batch; b++)
        for (int64_t i = 0; i < *length; i++)
            memcpy(turned + (b * *length + i) * width, x + (i * batch + b) * width, (size_t)width * sizeof *x);
    return turned;
}

/* Computes y = x W^T + b. */
static void project(module *m, const float *x, int64_t rows, int64_t in, const float *weight, const float *bias,
                    float *y)
{
    mha_linear *linear;
    mha_error error = {0};
    if (failed(m) || !x || !weight || !y) return;
    if (mha_linear_create(m->c->ctx, in, m->E, weight, bias, &linear, &error) == MHA_OK)
        mha_linear_forward(linear, x, rows, y, &error);
    mha_linear_free(linear);
    if (error.status != MHA_OK) verify_stopped(&m->c->outcome, &error);
}

/* Returns the projection weight of q (0), k (1) or v (2): a third of one matrix, or a separate matrix if the inputs
 * have different widths. */
static const float *weight_of(module *m, int which, int64_t in)
{
    static const char *const names[] = {"param/q_proj_weight", "param/k_proj_weight", "param/v_proj_weight"};
    int64_t own[2] = {m->E, in}, all[2] = {3 * m->E, m->E};
    if (ops_find(m->c, names[which])) return ops_floats(m->c, names[which], 2, own);
    const float *w = ops_floats(m->c, "param/in_proj_weight", 2, all);
    return w ? w + which * m->E * m->E : NULL;
}

/* Returns q, k or v [B, length + extra, E]: the projected rows, then the row `last` if learned, then zeros. */
static float *projected(module *m, int which, const float *x, int64_t length, int64_t in, int64_t extra,
                        const char *last)
{
    int64_t all[1] = {3 * m->E}, one[3] = {1, 1, m->E};
    const bool biased = flag(m, "bias", true), learned = extra > 0 && flag(m, "add_bias_kv", false);
    const float *weight = weight_of(m, which, in), *row = learned ? ops_floats(m->c, last, 3, one) : NULL;
    const float *bias = biased ? ops_floats(m->c, "param/in_proj_bias", 1, all) : NULL;
    float *y = ops_room(m->c, m->B * (length + extra) * m->E);
    for (int64_t b = 0; b < m->B && x && y; b++) {
        float *to = y + b * (length + extra) * m->E;
        project(m, x + b * length * in, length, in, weight, bias ? bias + which * m->E : NULL, to);
        if (row) memcpy(to + length * m->E, row, (size_t)m->E * sizeof *to);
    }
    return y;
}

/* ---- masks ---- */

/* Returns a boolean mask as bytes; NULL if the mask is missing or contains floats. */
static const uint8_t *hidden_by(module *m, const char *name)
{
    const mha_tensor *t = ops_find(m->c, name);
    return t && t->dtype == MHA_BOOL ? verify_raw(&m->c->memory, &m->c->entry, t) : NULL;
}

static int64_t elements_of(const module *m, const char *name)
{
    const mha_tensor *t = ops_find(m->c, name);
    return t ? t->elements : 0;
}

static void add_masks(module *m)
{
    const int64_t keys = m->S + m->extra, square = m->L * m->S;
    const uint8_t *padding = hidden_by(m, "key_padding_mask"), *mask = hidden_by(m, "attn_mask");
    const bool each = elements_of(m, "attn_mask") == m->B * m->H * square;
    if (padding && elements_of(m, "key_padding_mask") != m->B * m->S)
        verify_fault(&m->c->entry, "\"key_padding_mask\" must have one element per key");
    if (elements_of(m, "attn_mask") && !each && elements_of(m, "attn_mask") != square)
        verify_fault(&m->c->entry, "\"attn_mask\" must have the shape of the scores");
    if (padding || mask) m->keep = verify_alloc(&m->c->memory, m->B * m->H * m->L * keys, 1, &m->c->entry);
    for (int64_t row = 0; m->keep && !failed(m) && row < m->B * m->H * m->L; row++)
        for (int64_t j = 0; j < keys; j++) {
            const int64_t b = row / (m->H * m->L), from = (each ? row : row % m->L) * m->S + j;
            const bool hidden = j < m->S && ((padding && padding[b * m->S + j]) || (mask && mask[from]));
            m->keep[row * keys + j] = !hidden;
        }
    if (mask || !ops_find(m->c, "attn_mask")) return;
    int64_t shape[2] = {m->L, m->S};
    const float *added = ops_floats(m->c, "attn_mask", 2, shape);
    m->bias = added ? ops_room(m->c, m->L * keys) : NULL;
    for (int64_t i = 0; m->bias && i < m->L; i++)
        memcpy(m->bias + i * keys, added + i * m->S, (size_t)m->S * sizeof *added);
}

/* ---- execution and comparison ---- */

static void attend(module *m)
{
    const int64_t E = m->E, D = E / m->H, keys = m->S + m->extra;
    const mha_attn_desc d = {.size = sizeof d,
                             .batch = m->B,
                             .heads = m->H,
                             .q_len = m->L,
                             .kv_len = keys,
                             .head_dim = D,
                             .inputs = (m->keep ? MHA_ATTN_KEEP : 0) | (m->bias ? MHA_ATTN_BIAS : 0),
                             .outputs = MHA_ATTN_PROBS};
    const mha_attn_args args = {.size = sizeof args,
                                .q = {m->q, {m->L * E, D, E, 1}},
                                .k = {m->k, {keys * E, D, E, 1}},
                                .v = {m->v, {keys * E, D, E, 1}},
                                .out = {m->out, {m->L * E, D, E, 1}},
                                .keep = {m->keep, {m->H * m->L * keys, m->L * keys, keys, 1}},
                                .bias = {m->bias, {0, 0, keys, 1}},
                                .probs = {m->probs, {0}}};
    mha_error error = {0};
    if (!failed(m) && mha_attention(m->c->ctx, &d, &args, &error) != MHA_OK) verify_stopped(&m->c->outcome, &error);
}

/* Converts y to the recorded layout: [L, B, E] if the sequence dimension comes first. */
static void compare_y(module *m)
{
    float *y = m->y;
    if (!m->batch_first && m->batched) {
        y = ops_room(m->c, m->B * m->L * m->E);
        for (int64_t b = 0; y && b < m->B; b++)
            for (int64_t i = 0; i < m->L; i++)
                memcpy(y + (i * m->B + b) * m->E, m->y + (b * m->L + i) * m->E, (size_t)m->E * sizeof *y);
    }
    ops_compare(m->c, "y", y, m->B * m->L * m->E, 0, 0);
}

static void compare_weights(module *m)
{
    const int64_t map = m->L * (m->S + m->extra);
    float *mean = ops_room(m->c, m->B * map);
    for (int64_t n = 0; mean && n < m->B * m->H * map; n++)
        mean[n / (m->H * map) * map + n % map] += m->probs[n] / (float)m->H;
    ops_compare(m->c, "weights", m->probs, m->B * m->H * map, 0, 0);
    ops_compare(m->c, "weights_mean", mean, m->B * map, 0, 0);
}

void ops_torch_mha(ops_case *c)
{
    static const char *const gradients[] = {"dquery", "dkey", "dvalue", "grad/in_proj_weight"};
    module m = {.c = c};
    const mha_tensor *query = ops_find(c, "query");
    m.E = size_of(&m, "embed_dim", 0), m.H = size_of(&m, "num_heads", 0);
    m.batch_first = flag(&m, "batch_first", false), m.batched = query && query->rank == 3;
    m.extra = flag(&m, "add_bias_kv", false) + flag(&m, "add_zero_attn", false);
    if (m.E < 1 || m.H < 1 || m.E % m.H) verify_fault(&c->entry, "\"num_heads\" must be a divisor of \"embed_dim\"");
    if (c->entry.error->status != MHA_OK) return;
    const int64_t kdim = size_of(&m, "kdim", m.E), vdim = size_of(&m, "vdim", m.E);
    int64_t values = 0, square[2] = {m.E, m.E}, wide[1] = {m.E};
    const float *q = input(&m, "query", &m.L, m.E), *k = input(&m, "key", &m.S, kdim);
    const float *v = input(&m, "value", &values, vdim);
    if (values != m.S) verify_fault(&c->entry, "\"key\" and \"value\" must have the same length");
    if (failed(&m)) return;
    m.q = projected(&m, 0, q, m.L, m.E, 0, NULL);
    m.k = projected(&m, 1, k, m.S, kdim, m.extra, "param/bias_k");
    m.v = projected(&m, 2, v, m.S, vdim, m.extra, "param/bias_v");
    add_masks(&m);
    m.out = ops_room(c, m.B * m.L * m.E), m.y = ops_room(c, m.B * m.L * m.E);
    m.probs = ops_room(c, m.B * m.H * m.L * (m.S + m.extra));
    const float *bias = flag(&m, "bias", true) ? ops_floats(c, "param/out_proj.bias", 1, wide) : NULL;
    const float *weight = ops_floats(c, "param/out_proj.weight", 2, square);
    attend(&m);
    project(&m, m.out, m.B * m.L, m.E, weight, bias, m.y);
    if (failed(&m)) return;
    compare_y(&m);
    compare_weights(&m);
    for (size_t n = 0; n < sizeof gradients / sizeof *gradients; n++)
        ops_skip(c, gradients[n]);
}
