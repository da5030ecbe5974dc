/* test_layer_latent.c - tests latent attention as a layer: both forms against a direct evaluation in double, gradients
 * against differences of that evaluation, and rejected options. */
#include "mha/latent_attention.h"
#include "mha/rope.h"
#include "support/alloc.h"
#include "support/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, L = 7, E = 12, MAX = 4000 };

typedef struct shape {
    int64_t heads, q_rank, kv_rank, nope, rope, value;
    int interleaved, causal;
} shape;

static const shape shapes[] = {
    {3, 6, 10, 6, 4, 8, 0, 1}, /* values narrower than keys */
    {2, 0, 5, 3, 2, 9, 1, 1},  /* q without a vector, values wider than keys */
    {4, 8, 16, 4, 6, 10, 1, 0},
};

/* All weights, in the order of the fields of mha_latent_gradient. */
enum { Q_A, Q_A_BIAS, Q_NORM, Q_B, KV_A, KV_A_BIAS, KV_NORM, KV_B, O, O_BIAS, PARTS };

typedef struct weights {
    shape s;
    int64_t count[PARTS], begin[PARTS], all;
    double w[MAX];
    float f[MAX];
    double x[B * L * E], dy[B * L * E];
    float xf[B * L * E], dyf[B * L * E];
} weights;

static double draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*state >> 33) / (double)(INT64_C(1) << 30) - 1;
}

static void set_up(weights *w, const shape *s)
{
    const int64_t H = s->heads, Q = s->q_rank, K = s->kv_rank;
    const int64_t count[PARTS] = {Q * E,
                                  Q,
                                  Q,
                                  H * (s->nope + s->rope) * (Q ? Q : E),
                                  (K + s->rope) * E,
                                  K + s->rope,
                                  K,
                                  H * (s->nope + s->value) * K,
                                  E * H * s->value,
                                  E};
    uint64_t state = 7;
    *w = (weights){.s = *s};
    for (int p = 0; p < PARTS; p++) {
        w->count[p] = count[p];
        w->begin[p] = w->all;
        w->all += count[p];
    }
    assert_true(w->all <= MAX);
    for (int64_t i = 0; i < w->all; i++)
        w->w[i] = (double)(w->f[i] = (float)(0.6 * draw(&state)));
    for (int64_t i = 0; i < B * L * E; i++) {
        w->x[i] = (double)(w->xf[i] = (float)draw(&state));
        w->dy[i] = (double)(w->dyf[i] = (float)draw(&state));
    }
}

/* ---- direct evaluation ---- */

static void linear(const double *x, int64_t in, const double *m, const double *bias, int64_t out, double *y)
{
    for (int64_t o = 0; o < out; o++) {
        y[o] = bias ? bias[o] : 0;
        for (int64_t i = 0; i < in; i++)
            y[o] += m[o * in + i] * x[i];
    }
}

static void normalize(double *x, int64_t n, const double *gain)
{
    double square = 0;
    for (int64_t i = 0; i < n; i++)
        square += x[i] * x[i];
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] / sqrt(square / (double)n + 1e-6) * gain[i];
}

static void rotate(const shape *s, int64_t position, double *x)
{
    const int64_t R = s->rope;
    for (int64_t i = 0; i < R / 2; i++) {
        const double angle = (double)position * pow(100, -2 * (double)i / (double)R);
        double *a = s->interleaved ? x + 2 * i : x + i, *b = s->interleaved ? a + 1 : a + R / 2;
        const double p = *a, q = *b;
        *a = p * cos(angle) - q * sin(angle);
        *b = q * cos(angle) + p * sin(angle);
    }
}

/* Computes y [L, E] of one sequence, token by token, from the formulas of the header. */
static void evaluate(const weights *w, const double *x, double *y)
{
    const shape *s = &w->s;
    const int64_t H = s->heads, Q = s->q_rank, K = s->kv_rank, N = s->nope, R = s->rope, V = s->value;
    const double *const *part = (const double *const[]){
        w->w + w->begin[Q_A],  w->w + w->begin[Q_A_BIAS],  w->w + w->begin[Q_NORM],  w->w + w->begin[Q_B],
        w->w + w->begin[KV_A], w->w + w->begin[KV_A_BIAS], w->w + w->begin[KV_NORM], w->w + w->begin[KV_B],
        w->w + w->begin[O],    w->w + w->begin[O_BIAS]};
    static double q[L][200], kv[L][200], c[L][40];
    for (int64_t t = 0; t < L; t++) {
        double low[20];
        linear(x + t * E, E, part[Q_A], part[Q_A_BIAS], Q, low);
        if (Q) normalize(low, Q, part[Q_NORM]);
        linear(Q ? low : x + t * E, Q ? Q : E, part[Q_B], NULL, H * (N + R), q[t]);
        linear(x + t * E, E, part[KV_A], part[KV_A_BIAS], K + R, c[t]);
        normalize(c[t], K, part[KV_NORM]);
        linear(c[t], K, part[KV_B], NULL, H * (N + V), kv[t]);
        rotate(s, t, c[t] + K);
        for (int64_t h = 0; h < H; h++)
            rotate(s, t, q[t] + h * (N + R) + N);
    }
    for (int64_t t = 0; t < L; t++) {
        double context[100] = {0};
        for (int64_t h = 0; h < H; h++) {
            double p[L], sum = 0;
            for (int64_t j = 0; j < L; j++) {
                double score = 0;
                for (int64_t i = 0; i < N; i++)
                    score += q[t][h * (N + R) + i] * kv[j][h * (N + V) + i];
                for (int64_t i = 0; i < R; i++)
                    score += q[t][h * (N + R) + N + i] * c[j][K + i];
                p[j] = s->causal && j > t ? 0 : exp(score / sqrt((double)(N + R)));
                sum += p[j];
            }
            for (int64_t j = 0; j < L; j++)
                for (int64_t i = 0; i < V; i++)
                    context[h * V + i] += p[j] / sum * kv[j][h * (N + V) + N + i];
        }
        linear(context, H * V, part[O], part[O_BIAS], E, y + t * E);
    }
}

static double loss(const weights *w)
{
    double y[L * E], sum = 0;
    for (int64_t b = 0; b < B; b++) {
        evaluate(w, w->x + b * L * E, y);
        for (int64_t i = 0; i < L * E; i++)
            sum += y[i] * w->dy[b * L * E + i];
    }
    return sum;
}

/* ---- the layer ---- */

static mha_latent_options options_of(const weights *w)
{
    const shape *s = &w->s;
    const float *const f = w->f;
    return (mha_latent_options){.size = sizeof(mha_latent_options),
                                .hidden = E,
                                .heads = s->heads,
                                .q_rank = s->q_rank,
                                .kv_rank = s->kv_rank,
                                .nope = s->nope,
                                .rope = s->rope,
                                .value = s->value,
                                .q_a = {.weight = f + w->begin[Q_A], .bias = f + w->begin[Q_A_BIAS]},
                                .q_b = {.weight = f + w->begin[Q_B]},
                                .kv_a = {.weight = f + w->begin[KV_A], .bias = f + w->begin[KV_A_BIAS]},
                                .kv_b = {.weight = f + w->begin[KV_B]},
                                .o = {.weight = f + w->begin[O], .bias = f + w->begin[O_BIAS]},
                                .q_norm = {.kind = MHA_NORM_RMS, .weight = f + w->begin[Q_NORM], .eps = 1e-6},
                                .kv_norm = {.kind = MHA_NORM_RMS, .weight = f + w->begin[KV_NORM], .eps = 1e-6},
                                .interleaved = s->interleaved,
                                .causal = s->causal};
}

static mha_attn_layer *create(const weights *w)
{
    const mha_latent_options o = options_of(w);
    mha_attn_layer *layer = NULL;
    mha_error err = {0};
    if (mha_latent_create(NULL, &o, &layer, &err) != MHA_OK) fail_msg("%s", err.message);
    return layer;
}

/* Sets the angles of tokens first .. first + count - 1 of `sequences` sequences. */
static void angles(const shape *s, int64_t sequences, int64_t first, int64_t count, float *cosines, float *sines)
{
    for (int64_t r = 0; r < sequences * count; r++)
        for (int64_t i = 0; i < s->rope / 2; i++) {
            const double angle = (double)(first + r % count) * pow(100, -2 * (double)i / (double)s->rope);
            cosines[r * (s->rope / 2) + i] = (float)cos(angle);
            sines[r * (s->rope / 2) + i] = (float)sin(angle);
        }
}

static void forward(const mha_attn_layer *layer, const weights *w, mha_cache *cache, int64_t sequences,
                    int64_t sequence, int64_t first, int64_t count, const float *x, float *y)
{
    float cosines[B * L * 4], sines[B * L * 4];
    mha_error err = {0};
    angles(&w->s, sequences, first, count, cosines, sines);
    const mha_layer_input in = {.size = sizeof in,
                                .batch = sequences,
                                .length = count,
                                .cache = cache,
                                .sequence = sequence,
                                .cos = cosines,
                                .sin = sines};
    if (mha_attn_layer_forward(layer, &in, x, y, &err) != MHA_OK) fail_msg("%s", err.message);
}

static mha_cache *cache_of(const mha_attn_layer *layer, const shape *s)
{
    mha_cache *cache = NULL;
    mha_cache_desc desc = {.size = sizeof desc, .batch = B, .page_size = 16};
    assert_int_equal(mha_latent_cache(layer, &desc, NULL), MHA_OK);
    assert_int_equal(desc.head_dim, s->kv_rank + s->rope);
    assert_int_equal(desc.v_head_dim, s->kv_rank);
    assert_int_equal(mha_cache_create(NULL, &desc, &cache, NULL), MHA_OK);
    return cache;
}

static void near(const char *what, const float *got, const double *want, int64_t count, double limit)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - want[i]) <= limit))
            fail_msg("%s[%d] must be %g within %g (got %g)", what, (int)i, want[i], limit, (double)got[i]);
}

static void test_forms(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        weights *w = malloc(sizeof *w);
        double want[B * L * E];
        float whole[B * L * E], once[B * L * E], each[B * L * E];
        set_up(w, &shapes[n]);
        for (int b = 0; b < B; b++)
            evaluate(w, w->x + b * L * E, want + b * L * E);
        mha_attn_layer *layer = create(w);
        forward(layer, w, NULL, B, 0, 0, L, w->xf, whole);
        near("expanded", whole, want, B * L * E, 3e-6);
        mha_cache *cache = cache_of(layer, &w->s);
        for (int64_t b = 0; w->s.causal && b < B; b++)
            for (int64_t t = 0; t < L; t++)
                forward(layer, w, cache, 1, b, t, 1, w->xf + (b * L + t) * E, each + (b * L + t) * E);
        mha_cache_clear(cache, MHA_CACHE_ALL, NULL);
        if (w->s.causal) {
            forward(layer, w, cache, B, 0, 0, L, w->xf, once);
            near("absorbed", once, want, B * L * E, 3e-6);
            assert_memory_equal(once, each, sizeof once);
        }
        mha_cache_free(cache);
        mha_attn_layer_free(layer);
        free(w);
    }
}

/* Gradients must agree with central differences of the direct evaluation. */
static void test_gradients(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        weights *w = malloc(sizeof *w);
        float *d = calloc(MAX, sizeof *d), dx[B * L * E], cosines[B * L * 4], sines[B * L * 4];
        set_up(w, &shapes[n]);
        mha_attn_layer *layer = create(w);
        const mha_latent_options o = options_of(w);
        const mha_layer_input in = {.size = sizeof in, .batch = B, .length = L, .cos = cosines, .sin = sines};
        mha_error err = {0};
        angles(&w->s, B, 0, L, cosines, sines);
        const mha_latent_gradient g = {.size = sizeof g,
                                       .options = &o,
                                       .input = &in,
                                       .x = w->xf,
                                       .dy = w->dyf,
                                       .dx = dx,
                                       .dq_a = d + w->begin[Q_A],
                                       .dq_a_bias = d + w->begin[Q_A_BIAS],
                                       .dq_norm = d + w->begin[Q_NORM],
                                       .dq_b = d + w->begin[Q_B],
                                       .dkv_a = d + w->begin[KV_A],
                                       .dkv_a_bias = d + w->begin[KV_A_BIAS],
                                       .dkv_norm = d + w->begin[KV_NORM],
                                       .dkv_b = d + w->begin[KV_B],
                                       .d_o = d + w->begin[O],
                                       .d_o_bias = d + w->begin[O_BIAS]};
        if (mha_latent_backward(layer, &g, &err) != MHA_OK) fail_msg("%s", err.message);
        for (int64_t i = 0; i < w->all + B * L * E; i += 3) {
            const bool weight = i < w->all;
            double *at = weight ? &w->w[i] : &w->x[i - w->all];
            const double kept = *at, step = 1e-5, got = (double)(weight ? d[i] : dx[i - w->all]);
            *at = kept + step;
            const double more = loss(w);
            *at = kept - step;
            const double want = (more - loss(w)) / (2 * step);
            *at = kept;
            if (!(fabs(want - got) <= 2e-5 + 1e-5 * fabs(want)))
                fail_msg("shape %d: gradient %d must be %g (got %g)", (int)n, (int)i, want, got);
        }
        const mha_latent_gradient one = {
            .size = sizeof one, .options = &o, .input = &in, .x = w->xf, .dy = w->dyf, .dkv_b = d + w->begin[KV_B]};
        float *twice = malloc((size_t)w->count[KV_B] * sizeof *twice);
        for (int64_t i = 0; i < w->count[KV_B]; i++)
            twice[i] = 2 * d[w->begin[KV_B] + i];
        assert_int_equal(mha_latent_backward(layer, &one, &err), MHA_OK); /* adds */
        for (int64_t i = 0; i < w->count[KV_B]; i++)
            assert_true(fabsf(d[w->begin[KV_B] + i] - twice[i]) <= 1e-5F + 1e-5F * fabsf(twice[i]));
        free(twice);
        free(d);
        mha_attn_layer_free(layer);
        free(w);
    }
}

/* ---- rejected arguments ---- */

static void refuse(const mha_latent_options *o, const char *part)
{
    mha_attn_layer *layer = NULL;
    mha_error err = {0};
    const mha_status status = mha_latent_create(NULL, o, &layer, &err);
    if (status != MHA_ERR_ARG || !strstr(err.message, part))
        fail_msg("status must be %d with \"%s\" (got %d, \"%s\")", (int)MHA_ERR_ARG, part, (int)status, err.message);
    assert_null(layer);
}

static void test_refused(void **state)
{
    (void)state;
    weights *w = malloc(sizeof *w);
    set_up(w, &shapes[0]);
    const mha_latent_options good = options_of(w);
    mha_latent_options o = good;
    refuse((o.kv_rank = 0, &o), "kv_rank must be from 1 to 2^31-1 (got 0)");
    o = good;
    refuse((o.rope = 3, &o), "rope must be even (got 3)");
    o = good;
    refuse((o.kv_rank = MHA_HEAD_DIM_MAX, &o), "kv_rank + rope, nope + rope and value must be at most");
    o = good;
    refuse((o.kv_b.weight = NULL, &o), "kv_b must have a weight");
    o = good;
    refuse((o.q_b.bias = w->f, &o), "q_b must have a weight, must not have a bias");
    o = good;
    refuse((o.kv_norm.weight = NULL, &o), "q_norm and kv_norm must have a weight");
    mha_attn_layer *layer = create(w);
    mha_cache_desc desc = {.size = sizeof desc, .batch = 1};
    mha_cache *cache = NULL;
    mha_error err = {0};
    assert_int_equal(mha_latent_cache(layer, &desc, &err), MHA_OK);
    desc.head_dim++;
    assert_int_equal(mha_cache_create(NULL, &desc, &cache, &err), MHA_OK);
    float y[E], angle[4] = {0};
    const mha_layer_input in = {.size = sizeof in, .batch = 1, .length = 1, .cache = cache, .cos = angle, .sin = angle};
    assert_int_equal(mha_attn_layer_forward(layer, &in, w->xf, y, &err), MHA_ERR_ARG);
    assert_non_null(
        strstr(err.message, "kv_heads, head_dim and v_head_dim of the cache must be 1, 14, 10 (got 1, 15, 10)"));
    const mha_latent_gradient g = {.size = sizeof g, .options = &good, .input = &in, .x = w->xf, .dy = w->dyf};
    assert_int_equal(mha_latent_backward(layer, &g, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "cache of input must be NULL"));
    mha_cache_free(cache);
    mha_attn_layer_free(layer);
    free(w);
}

/* Every failing allocation must return MHA_ERR_MEMORY and free all memory. */
static void test_memory(void **state)
{
    (void)state;
    weights *w = malloc(sizeof *w);
    float cosines[B * L * 4], sines[B * L * 4], dx[B * L * E];
    set_up(w, &shapes[0]);
    angles(&w->s, B, 0, L, cosines, sines);
    const mha_latent_options o = options_of(w);
    mha_status status = MHA_ERR_MEMORY;
    for (int budget = 0; status != MHA_OK; budget++) {
        counting c = {.budget = -1};
        mha_ctx *ctx = NULL;
        mha_attn_layer *layer = NULL;
        const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&c)};
        assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
        const long before = c.live;
        c.budget = budget;
        status = mha_latent_create(ctx, &o, &layer, NULL);
        const mha_layer_input in = {.size = sizeof in, .batch = B, .length = L, .cos = cosines, .sin = sines};
        const mha_latent_gradient g = {
            .size = sizeof g, .options = &o, .input = &in, .x = w->xf, .dy = w->dyf, .dx = dx};
        if (status == MHA_OK) status = mha_latent_backward(layer, &g, NULL);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        assert_true(layer || c.live == before);
        mha_attn_layer_free(layer);
        assert_int_equal(c.live, before);
        mha_ctx_free(ctx);
    }
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_gradients),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
