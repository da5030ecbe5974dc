/* test_model_context.c - tests callbacks of the backward pass: the context of the heads of each layer and its gradient,
 * and first-order scores of single attention weights.
 *
 * The reference is the formula in double. In addition, four first-order formulas must give the same value. */
#include "mha/model_grads.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/passes/inner_case.h"
#include "support/reference/layer_ref.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = INNER_B, TOKENS = B * INNER_L, LAYERS = INNER_LAYERS, H = INNER_H, GATES = LAYERS * B * H };

static mha_error err;

/* ---- a backward pass that copies all data passed to its callbacks ---- */

typedef struct seen {
    int64_t next, shown;
    mha_model_context_gradient g[LAYERS]; /* copies of the contexts and gradients of each layer */
    float gates[GATES];
    float *embeddings;
} seen;

static const float *copy(const float *from, int64_t count)
{
    if (!from) return NULL;
    float *to = malloc((size_t)count * sizeof *to);
    return memcpy(to, from, (size_t)count * sizeof *to);
}

static int keep(void *user, const mha_model_context_gradient *g)
{
    seen *s = user;
    assert_int_equal(g->layer, s->next--);
    s->g[g->layer] = *g;
    s->g[g->layer].context = copy(g->context, g->rows * g->heads * g->head_dim);
    s->g[g->layer].dcontext = copy(g->dcontext, g->rows * g->heads * g->head_dim);
    s->g[g->layer].row_taylor = copy(g->row_taylor, g->rows * g->heads);
    s->shown++;
    return 0;
}

static void release(seen *s)
{
    for (int n = 0; n < LAYERS; n++) {
        free((void *)(uintptr_t)s->g[n].context);
        free((void *)(uintptr_t)s->g[n].dcontext);
        free((void *)(uintptr_t)s->g[n].row_taylor);
    }
    free(s->embeddings);
}

static mha_model_grads *create(const mha_model *model, int no_parameters, int recompute)
{
    const mha_model_grads_options o = {.size = sizeof o, .no_parameters = no_parameters, .recompute = recompute};
    mha_model_grads *grads = NULL;
    if (mha_model_grads_create(model, &o, &grads, &err) != MHA_OK) fail_msg("%s", err.message);
    return grads;
}

/* Computes the gradients of the loss sum(last_hidden * r) for random r. If `shown` is true, copies the data passed to
 * on_context. */
static seen run(const mha_model *model, mha_model_grads *grads, const mha_model_input *in, bool shown, int taylor)
{
    const mha_model_info *info = mha_model_describe(model);
    const int64_t cells = inner_rows(in) * info->hidden;
    float *r = random_floats(31, 1, cells, 1, 0);
    seen s = {.next = info->layers - 1, .embeddings = malloc((size_t)cells * sizeof(float))};
    const mha_model_gradient gradient = {.size = sizeof gradient,
                                         .last_hidden = r,
                                         .gates = s.gates,
                                         .embeddings = s.embeddings,
                                         .on_context = shown ? keep : NULL,
                                         .user = &s,
                                         .taylor = taylor};
    if (mha_model_grads_forward(grads, in, NULL, &err) != MHA_OK ||
        mha_model_grads_backward(grads, &gradient, &err) != MHA_OK)
        fail_msg("%s", err.message);
    free(r);
    return s;
}

/* ---- contexts, gradients and scores ---- */

static int keep_activations(void *user, const mha_model_activations *a)
{
    mha_model_activations *all = user;
    all[a->layer] = inner_keep(a, 1);
    return 0;
}

static void near(const char *what, int64_t layer, int64_t n, double got, double want, double size)
{
    if (!(fabs(got - want) <= 2e-5 * size + 1e-9))
        fail_msg("%s of layer %d, element %d: got %.9g, expected %.9g", what, (int)layer, (int)n, got, want);
}

/* Compares row_taylor of head h with the formula. Adds <context, dcontext> and the sum of p dL/dp to the totals of each
 * sequence. */
static void check_head(const inner_family *f, const mha_model_input *in, const mha_model_activations *a,
                       const mha_model_context_gradient *g, int64_t h, double dots[B], double sums[B], double sizes[B])
{
    const int64_t D = a->head_dim, wide = a->heads * D, kv = h / (a->heads / a->kv_heads);
    double p[TOKENS];
    for (int64_t row = 0; row < a->rows; row++) {
        const double gate = inner_gate(in, a->layer, row, h);
        const float *dc = g->dcontext + row * wide + h * D, *c = g->context + row * wide + h * D;
        double taylor = 0, size = 0;
        int64_t b, first, end;
        inner_sequence(in, row, &b, &first, &end);
        if (!inner_is_real(in, row)) {
            for (int64_t d = 0; d < D; d++)
                assert_true(dc[d] == 0);
            assert_true(g->row_taylor[h * a->rows + row] == 0);
            continue;
        }
        inner_probs(f, in, a, row, h, p);
        for (int64_t d = 0; d < D; d++)
            dots[b] += (double)c[d] * (double)dc[d];
        for (int64_t j = first; j < end; j++) {
            double dp = 0;
            for (int64_t d = 0; d < D && p[j] > 0; d++) {
                const double product = gate * (double)dc[d] * (double)a->v[j * a->stride + kv * D + d];
                dp += product;
                size += p[j] * fabs(product);
            }
            taylor += fabs(p[j] * dp);
            sums[b] += p[j] * dp;
        }
        sizes[b] += size;
        near("row_taylor", a->layer, row, (double)g->row_taylor[h * a->rows + row], taylor, size);
    }
}

static void check_layer(const inner_family *f, const mha_model_input *in, const mha_model_activations *a,
                        const mha_model_context_gradient *g, const float *gates)
{
    assert_true(g->rows == a->rows && g->heads == a->heads && g->head_dim == a->head_dim);
    const int64_t wide = a->heads * a->head_dim;
    for (int64_t r = 0; r < a->rows; r++)
        if (inner_is_real(in, r))
            assert_memory_equal(g->context + r * wide, a->context + r * wide, (size_t)wide * sizeof *a->context);
    for (int64_t h = 0; h < a->heads; h++) {
        double dots[B] = {0}, sums[B] = {0}, sizes[B] = {0};
        check_head(f, in, a, g, h, dots, sums, sizes);
        for (int64_t b = 0; b < in->batch; b++) {
            const int64_t at = (a->layer * in->batch + b) * H + h;
            const double gate = in->gates ? (double)in->gates[at] : 1;
            near("<c, dc>", a->layer, at, dots[b], sums[b], sizes[b]);
            near("gate", a->layer, at, gate * (double)gates[at], sums[b], sizes[b]);
        }
    }
}

static void values_are_those_of_the_formula(void **state)
{
    (void)state;
    for (int m = 0; m < INNER_FAMILIES; m++) {
        mha_model *model = inner_open(NULL, m, MHA_DTYPE_DEFAULT);
        const int64_t layers = mha_model_describe(model)->layers;
        for (int recompute = 0; recompute < 2; recompute++) {
            mha_model_grads *grads = create(model, 1, recompute);
            for (int kind = 0; kind < INNER_FILLED; kind++) {
                const mha_model_input in = inner_input(kind);
                mha_model_activations a[LAYERS] = {{0}};
                const mha_model_output out = {.size = sizeof out, .on_activations = keep_activations, .user = a};
                assert_int_equal(mha_model_forward(model, &in, &out, &err), MHA_OK);
                seen s = run(model, grads, &in, true, 1);
                assert_int_equal(s.shown, layers);
                for (int64_t n = 0; n < layers; n++) {
                    check_layer(&inner_families[m], &in, &a[n], &s.g[n], s.gates);
                    inner_release(&a[n]);
                }
                release(&s);
            }
            mha_model_grads_free(grads);
        }
        mha_model_free(model);
    }
}

/* ---- other results with and without callbacks ---- */

static void callbacks_change_no_bit(void **state)
{
    (void)state;
    for (int m = 0; m < INNER_FAMILIES; m++)
        for (int threads = 1; threads <= 3; threads++) {
            mha_ctx *ctx = NULL;
            const mha_ctx_options o = {.size = sizeof o, .threads = threads};
            assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
            mha_model *model = inner_open(ctx, m, MHA_DTYPE_DEFAULT);
            const mha_model_input in = inner_input(INNER_PACKED);
            mha_model_grads *plain = create(model, 0, 0), *watched = create(model, 0, 0);
            seen a = run(model, plain, &in, false, 0), b = run(model, watched, &in, true, 1);
            const size_t cells = (size_t)(inner_rows(&in) * mha_model_describe(model)->hidden);
            int64_t count;
            const mha_named_tensor *x = mha_model_grads_list(plain, &count), *y = mha_model_grads_list(watched, &count);
            assert_memory_equal(a.gates, b.gates, sizeof(float) * (size_t)(mha_model_describe(model)->layers * B * H));
            assert_memory_equal(a.embeddings, b.embeddings, cells * sizeof(float));
            for (int64_t n = 0; n < count; n++) {
                size_t bytes = sizeof(float);
                for (int i = 0; i < x[n].rank; i++)
                    bytes *= (size_t)x[n].shape[i];
                assert_memory_equal(x[n].data, y[n].data, bytes);
            }
            release(&a);
            release(&b);
            mha_model_grads_free(plain);
            mha_model_grads_free(watched);
            mha_model_free(model);
            mha_ctx_free(ctx);
        }
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    seen first = {0};
    const mha_model_input in = inner_input(INNER_GATED);
    for (int threads = 1; threads <= 3; threads++) {
        mha_ctx *ctx = NULL;
        const mha_ctx_options o = {.size = sizeof o, .threads = threads};
        assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
        mha_model *model = inner_open(ctx, INNER_SLIDING, MHA_DTYPE_DEFAULT);
        mha_model_grads *grads = create(model, 1, 0);
        seen s = run(model, grads, &in, true, 1);
        if (threads == 1) first = s;
        for (int n = 0; n < LAYERS; n++) {
            const size_t wide = (size_t)(s.g[n].heads * s.g[n].head_dim), rows = (size_t)s.g[n].rows;
            assert_memory_equal(first.g[n].dcontext, s.g[n].dcontext, rows * wide * sizeof(float));
            assert_memory_equal(first.g[n].row_taylor, s.g[n].row_taylor, rows * (size_t)s.g[n].heads * sizeof(float));
        }
        if (threads > 1) release(&s);
        mha_model_grads_free(grads);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
    release(&first);
}

/* ---- callbacks with the loss of the model ---- */

static void the_loss_call_gives_the_same_contexts(void **state)
{
    (void)state;
    mha_model *model = inner_open(NULL, INNER_DECODER, MHA_DTYPE_DEFAULT);
    mha_model_grads *grads = create(model, 1, 0);
    const mha_model_input in = inner_input(INNER_PACKED);
    const int64_t layers = mha_model_describe(model)->layers;
    seen s = {.next = layers - 1};
    double loss;
    const mha_model_loss_args args = {
        .size = sizeof args, .dgates = s.gates, .on_context = keep, .user = &s, .taylor = 1};
    if (mha_model_grads_loss(grads, &in, &args, &loss, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int64_t n = 0; n < layers; n++) {
        const mha_model_context_gradient *g = &s.g[n];
        for (int64_t b = 0; b < B; b++)
            for (int64_t h = 0; h < H; h++) {
                double dot = 0, size = 0;
                for (int64_t r = in.starts[b]; r < in.starts[b + 1]; r++)
                    for (int64_t d = 0; d < g->head_dim; d++)
                        dot += (double)g->context[(r * H + h) * g->head_dim + d] *
                               (double)g->dcontext[(r * H + h) * g->head_dim + d];
                for (int64_t r = in.starts[b]; r < in.starts[b + 1]; r++)
                    size += (double)g->row_taylor[h * g->rows + r];
                assert_true(fabs(dot) <= size * 1.0001);
                near("gate", n, h, (double)s.gates[(n * B + b) * H + h], dot, size);
            }
    }
    release(&s);
    mha_model_grads_free(grads);
    mha_model_free(model);
}

/* ---- error messages and failed allocations ---- */

static int stop_second(void *user, const mha_model_context_gradient *g)
{
    const int64_t *at = user;
    return g->layer == *at;
}

static void invalid_requests(void **state)
{
    (void)state;
    mha_model *model = inner_open(NULL, INNER_DECODER, MHA_DTYPE_DEFAULT);
    mha_model_grads *grads = create(model, 1, 0);
    const mha_model_input in = inner_input(INNER_PLAIN);
    const mha_model_loss_args loss = {.size = sizeof loss, .taylor = 1};
    mha_model_gradient gradient = {.size = sizeof gradient, .taylor = 1};
    int64_t second = 1;
    assert_int_equal(mha_model_grads_loss(grads, &in, &loss, NULL, NULL, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "on_context must not be NULL with taylor = 1");
    assert_int_equal(mha_model_grads_forward(grads, &in, NULL, &err), MHA_OK);
    assert_int_equal(mha_model_grads_backward(grads, &gradient, &err), MHA_ERR_ARG);
    gradient.on_context = stop_second;
    gradient.user = &second;
    assert_int_equal(mha_model_grads_backward(grads, &gradient, &err), MHA_ERR_CANCELED);
    assert_string_equal(err.message, "stopped by on_context at layer 1");
    const mha_model_input filled = inner_input(INNER_FILLED);
    assert_int_equal(mha_model_grads_forward(grads, &filled, NULL, &err), MHA_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "mha_model_grads_forward: fills must not be set");
    mha_model_grads_free(grads);
    mha_model_free(model);
}

static void no_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&memory)};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
    mha_model *model = inner_open(ctx, INNER_ENCODER, MHA_DTYPE_DEFAULT);
    mha_model_grads *grads = create(model, 1, 0);
    const mha_model_input in = inner_input(INNER_PLAIN);
    assert_int_equal(mha_model_grads_forward(grads, &in, NULL, &err), MHA_OK);
    const long live = memory.live;
    mha_status status = MHA_ERR_MEMORY;
    long n = 0;
    for (; status != MHA_OK; n++) {
        seen s = {.next = mha_model_describe(model)->layers - 1};
        const mha_model_gradient gradient = {.size = sizeof gradient, .on_context = keep, .user = &s, .taylor = 1};
        memory.budget = memory.calls + n;
        status = mha_model_grads_backward(grads, &gradient, &err);
        assert_true(status == MHA_OK || status == MHA_ERR_MEMORY);
        release(&s);
    }
    assert_true(n > 1);
    mha_model_grads_free(grads);
    assert_true(memory.live <= live);
    mha_model_free(model);
    mha_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_the_formula),

        cmocka_unit_test(callbacks_change_no_bit),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(the_loss_call_gives_the_same_contexts),
        cmocka_unit_test(invalid_requests),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
