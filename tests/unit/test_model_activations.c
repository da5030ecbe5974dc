/* test_model_activations.c - what attention holds between its projections, fills, and passes that begin at a layer: in
 * every family, with every mask, packed, pruned, in 16 bit, from a cache. The truth is the formula in double. */
#include "support/alloc.h"
#include "support/check.h"
#include "support/model_case.h"
#include "support/rng.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 3, L = 23, TOKENS = B * L, VOCAB = 64, LAYERS = 4, H = 4, WIDEST = 96, FAMILIES = 4 };

/* What the formula needs of each model, as its config.json has it. */
typedef struct family {
    const char *folder, *weight, *bias; /* of the output projection of a layer */
    bool transposed, causal;
    double divisor, softcap;    /* scores are divided by the root of it; 0 = D */
    int window, windowed_every; /* keys that layers 0, n, 2 n ... see, their own included; 0 = all */
} family;

static const family families[FAMILIES] = {
    {"models/bert-tiny", "encoder.layer.%d.attention.output.dense.weight",
     "encoder.layer.%d.attention.output.dense.bias", false, false, 12, 0, 0, 0},
    {"models/gpt2-tiny", "transformer.h.%d.attn.c_proj.weight", "transformer.h.%d.attn.c_proj.bias", true, true, 12, 0,
     0, 0},
    {"models/gemma2-tiny", "model.layers.%d.self_attn.o_proj.weight", NULL, false, true, 20, 4, 8, 2},
    {"families/qwen3", "model.layers.%d.self_attn.o_proj.weight", NULL, false, true, 0, 0, 0, 0},
};
enum { ENCODER = 0, DECODER = 1, SLIDING = 2 };

static mha_error err;
static int32_t ids[TOKENS];

static mha_model *open_family(mha_ctx *ctx, int m, mha_dtype dtype)
{
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .dtype = dtype};
    return case_model(ctx, families[m].folder, &o);
}

/* ---- inputs ---- */

enum { PLAIN, PADDED, HOLES, LEFT, PACKED, GATED, FILLED, INPUTS };
static uint8_t mask[TOKENS];
static float gates[LAYERS * B * H], fills[LAYERS * H * WIDEST];
static const int64_t starts[B + 1] = {0, 11, 12, 12 + L};

static mha_model_input input_of(int kind)
{
    mha_model_input in = {.size = sizeof in, .batch = B, .length = L, .ids = ids};
    const int64_t lengths[B] = {L, 9, 1};
    rng r = rng_make(7, 1);
    for (int64_t n = 0; n < TOKENS; n++) {
        const int64_t b = n / L, i = n % L;
        ids[n] = (int32_t)rng_range(&r, 0, VOCAB - 1);
        mask[n] = kind == LEFT ? i >= L - lengths[b] : kind == HOLES ? i % 7 != b : i < lengths[b];
    }
    for (int n = 0; n < LAYERS * B * H; n++)
        gates[n] = (float)(n % 5) / 4;
    for (int n = 0; n < LAYERS * H * WIDEST; n++)
        fills[n] = (float)(n % 11) / 8 - 0.5f; /* exact in 16 bit */
    if (kind == PADDED || kind == HOLES || kind == LEFT) in.mask = mask;
    if (kind == PACKED) in.starts = starts;
    if (kind == GATED || kind == FILLED) in.gates = gates;
    if (kind == FILLED) in.fills = fills;
    return in;
}

static int64_t rows_of(const mha_model_input *in)
{
    return in->starts ? in->starts[in->batch] : in->batch * in->length;
}

static bool is_real(const mha_model_input *in, int64_t row)
{
    return in->starts || !in->mask || in->mask[row];
}

/* The rows of the sequence that a row is of. */
static void sequence_of(const mha_model_input *in, int64_t row, int64_t *b, int64_t *first, int64_t *end)
{
    *b = row / L, *first = *b * in->length, *end = *first + in->length;
    if (!in->starts) return;
    for (*b = 0; row >= in->starts[*b + 1];)
        ++*b;
    *first = in->starts[*b], *end = in->starts[*b + 1];
}

/* ---- one pass, all that it shows kept ---- */

typedef struct seen {
    int64_t width, rows, calls, next;
    mha_model_activations a[LAYERS]; /* with copies */
    float *hidden[LAYERS + 1], *last;
} seen;

static float *copy(const float *from, int64_t count)
{
    float *to = malloc((size_t)count * sizeof *to);
    return memcpy(to, from, (size_t)count * sizeof *to);
}

static int keep(void *user, const mha_model_activations *a)
{
    seen *s = user;
    const int64_t D = a->head_dim, q_width = a->heads * D;
    assert_int_equal(a->rows, s->rows);
    assert_int_equal(a->layer, s->next++);
    assert_int_equal(a->stride, q_width + 2 * a->kv_heads * D);
    mha_model_activations *c = &s->a[a->layer];
    *c = *a;
    c->input = copy(a->input, a->rows * s->width);
    c->q = copy(a->q, a->rows * a->stride);
    assert_true(a->k - a->q == q_width && a->v - a->k == a->kv_heads * D);
    c->k = c->q + q_width;
    c->v = c->k + a->kv_heads * D;
    c->context = copy(a->context, a->rows * q_width);
    c->out = copy(a->out, a->rows * s->width);
    s->calls++;
    return 0;
}

static int keep_hidden(void *user, int64_t entry, const float *x)
{
    seen *s = user;
    s->hidden[entry] = copy(x, s->rows * s->width);
    return 0;
}

static seen run(const mha_model *model, const mha_model_input *in, bool shown)
{
    seen s = {.width = mha_model_describe(model)->hidden, .rows = rows_of(in), .next = in->first_layer};
    s.last = malloc((size_t)(s.rows * s.width) * sizeof *s.last);
    const mha_model_output out = {.size = sizeof out,
                                  .last_hidden = s.last,
                                  .on_hidden = shown ? keep_hidden : NULL,
                                  .on_activations = shown ? keep : NULL,
                                  .user = &s};
    if (mha_model_forward(model, in, &out, &err) != MHA_OK) fail_msg("%s", err.message);
    return s;
}

static void release(seen *s)
{
    for (int n = 0; n < LAYERS; n++) {
        free((void *)s->a[n].input);
        free((void *)s->a[n].q);
        free((void *)s->a[n].context);
        free((void *)s->a[n].out);
    }
    for (int n = 0; n <= LAYERS; n++)
        free(s->hidden[n]);
    free(s->last);
}

/* Rows of real tokens are the same, to the bit. */
static void same_rows(const mha_model_input *in, const float *a, const float *b, int64_t width)
{
    for (int64_t r = 0; r < rows_of(in); r++)
        if (is_real(in, r)) assert_memory_equal(a + r * width, b + r * width, (size_t)width * sizeof *a);
}

/* ---- the values ---- */

typedef struct expectation {
    const family *f;
    const mha_model_input *in;
    const mha_model_activations *a;
    double limit;
} expectation;

static void near(const expectation *e, const char *what, int64_t row, double got, double want)
{
    if (!(fabs(got - want) <= e->limit * (1 + fabs(want))))
        fail_msg("%s, layer %d, row %d: %s is %.9g, want %.9g", e->f->folder, (int)e->a->layer, (int)row, what, got,
                 want);
}

static bool may_see(const expectation *e, int64_t row, int64_t key)
{
    const bool windowed = e->f->window && e->a->layer % e->f->windowed_every == 0;
    if (e->f->causal && key > row) return false;
    if (windowed && row - key >= e->f->window) return false;
    return is_real(e->in, key);
}

/* Output of head h for one row, straight from q, k and v. */
static void attend(const expectation *e, int64_t row, int64_t h, double *c)
{
    const mha_model_activations *a = e->a;
    const int64_t D = a->head_dim, g = h / (a->heads / a->kv_heads);
    const double square = e->f->divisor > 0 ? e->f->divisor : (double)D;
    int64_t b, first, end;
    double sum = 0;
    sequence_of(e->in, row, &b, &first, &end);
    memset(c, 0, (size_t)D * sizeof *c);
    for (int64_t j = first; j < end; j++) {
        if (!may_see(e, row, j)) continue;
        double s = 0;
        for (int64_t d = 0; d < D; d++)
            s += (double)a->q[row * a->stride + h * D + d] * (double)a->k[j * a->stride + g * D + d];
        s /= sqrt(square);
        if (e->f->softcap > 0) s = e->f->softcap * tanh(s / e->f->softcap);
        sum += exp(s);
        for (int64_t d = 0; d < D; d++)
            c[d] += exp(s) * (double)a->v[j * a->stride + g * D + d];
    }
    for (int64_t d = 0; d < D; d++)
        c[d] /= sum;
}

static void check_context(const expectation *e, int64_t row)
{
    const mha_model_activations *a = e->a;
    const int64_t D = a->head_dim;
    int64_t b, first, end;
    double c[WIDEST];
    sequence_of(e->in, row, &b, &first, &end);
    for (int64_t h = 0; h < a->heads; h++) {
        const double gate = e->in->gates ? (double)e->in->gates[(a->layer * e->in->batch + b) * H + h] : 1;
        const float *fill = e->in->fills ? e->in->fills + (a->layer * H + h) * D : NULL;
        attend(e, row, h, c);
        for (int64_t d = 0; d < D; d++)
            near(e, "context", row, (double)a->context[(row * a->heads + h) * D + d],
                 gate * c[d] + (fill ? (double)fill[d] : 0));
    }
}

static void check_out(const expectation *e, int64_t row, const float *weight, const float *bias, int64_t width)
{
    const mha_model_activations *a = e->a;
    const int64_t n = a->heads * a->head_dim;
    for (int64_t i = 0; i < width; i++) {
        double y = bias ? (double)bias[i] : 0;
        for (int64_t k = 0; k < n; k++)
            y += (double)a->context[row * n + k] * (double)weight[e->f->transposed ? k * width + i : i * n + k];
        near(e, "out", row, (double)a->out[row * width + i], y);
    }
}

static void check_layer(const expectation *e, const mha_file *file, int64_t width)
{
    char name[128];
    snprintf(name, sizeof name, e->f->weight, (int)e->a->layer);
    float *weight = case_floats(file, name), *bias = NULL;
    if (e->f->bias) {
        snprintf(name, sizeof name, e->f->bias, (int)e->a->layer);
        bias = case_floats(file, name);
    }
    for (int64_t r = 0; r < e->a->rows; r++)
        if (is_real(e->in, r)) {
            check_context(e, r);
            check_out(e, r, weight, bias, width);
        }
    free(weight);
    free(bias);
}

static mha_file *weights_of(const family *f)
{
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", f->folder);
    return case_file(path);
}

static void values_are_those_of_the_formula(void **state)
{
    (void)state;
    for (int m = 0; m < FAMILIES; m++) {
        mha_model *model = open_family(NULL, m, MHA_DTYPE_DEFAULT);
        mha_file *file = weights_of(&families[m]);
        const mha_model_info *info = mha_model_describe(model);
        for (int kind = 0; kind < INPUTS; kind++) {
            const mha_model_input in = input_of(kind);
            seen s = run(model, &in, true), plain = run(model, &in, false);
            assert_int_equal(s.calls, info->layers);
            same_rows(&in, s.last, plain.last, s.width);
            for (int64_t n = 0; n < info->layers; n++) {
                const expectation e = {&families[m], &in, &s.a[n], 2e-5};
                assert_true(s.a[n].heads == info->heads && s.a[n].kv_heads == info->kv_heads);
                check_layer(&e, file, s.width);
            }
            release(&s);
            release(&plain);
        }
        mha_file_free(file);
        mha_model_free(model);
    }
}

/* A post-norm layer reads its input as it is, and q is a product of that. */
static void the_input_is_what_queries_are_made_of(void **state)
{
    (void)state;
    mha_model *model = open_family(NULL, ENCODER, MHA_DTYPE_DEFAULT);
    mha_file *file = weights_of(&families[ENCODER]);
    float *weight = case_floats(file, "encoder.layer.1.attention.self.query.weight");
    float *bias = case_floats(file, "encoder.layer.1.attention.self.query.bias");
    const mha_model_input in = input_of(PADDED);
    seen s = run(model, &in, true);
    const expectation e = {&families[ENCODER], &in, &s.a[1], 1e-5};
    for (int n = 0; n < 3; n++)
        same_rows(&in, s.a[n].input, s.hidden[n], s.width);
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t i = 0; i < s.width; i++) {
            double q = (double)bias[i];
            for (int64_t k = 0; k < s.width; k++)
                q += (double)s.a[1].input[r * s.width + k] * (double)weight[i * s.width + k];
            if (is_real(&in, r)) near(&e, "q", r, (double)s.a[1].q[r * s.a[1].stride + i], q);
        }
    release(&s);
    free(weight);
    free(bias);
    mha_file_free(file);
    mha_model_free(model);
}

/* In 16 bit: what is shown was rounded to that, and q k v give the context within that rounding. */
static void activations_in_sixteen_bits(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_BF16, MHA_F16};
    for (int m = 0; m < FAMILIES; m++)
        for (int t = 0; t < 2; t++) {
            mha_model *model = open_family(NULL, m, types[t]);
            mha_file *file = weights_of(&families[m]);
            for (int kind = PADDED; kind < INPUTS; kind += FILLED - PADDED) {
                const mha_model_input in = input_of(kind);
                seen s = run(model, &in, true), plain = run(model, &in, false);
                same_rows(&in, s.last, plain.last, s.width);
                for (int64_t n = 0; n < mha_model_describe(model)->layers; n++) {
                    const expectation e = {&families[m], &in, &s.a[n], 0.02};
                    check_layer(&e, file, s.width);
                    for (int64_t i = 0; types[t] == MHA_BF16 && i < s.rows * s.a[n].stride; i++) {
                        uint32_t bits;
                        memcpy(&bits, &s.a[n].q[i], sizeof bits);
                        if (is_real(&in, i / s.a[n].stride)) assert_int_equal(bits & 0xffff, 0);
                    }
                }
                release(&s);
                release(&plain);
            }
            mha_file_free(file);
            mha_model_free(model);
        }
}

/* ---- fills ---- */

/* The same by hand: without head 1 of layer 1, and Wo m in the output bias. */
static void a_gate_of_0_and_a_fill_are_mean_ablation(void **state)
{
    (void)state;
    enum { LAYER = 1, HEAD = 1, D = 12, E = 48 };
    static const char *const weight_name = "encoder.layer.1.attention.output.dense.weight";
    static const char *const bias_name = "encoder.layer.1.attention.output.dense.bias";
    mha_file *file = weights_of(&families[ENCODER]);
    float *weight = case_floats(file, weight_name), *bias = case_floats(file, bias_name);
    float off[LAYERS * B * H], mean[LAYERS * H * D] = {0};
    for (int n = 0; n < LAYERS * B * H; n++)
        off[n] = n / (B * H) != LAYER || n % H != HEAD;
    for (int d = 0; d < D; d++)
        mean[(LAYER * H + HEAD) * D + d] = (float)(d - 5) / 7;
    for (int i = 0; i < E; i++)
        for (int d = 0; d < D; d++) {
            float *w = &weight[i * E + HEAD * D + d];
            bias[i] += *w * mean[(LAYER * H + HEAD) * D + d];
            *w = 0;
        }
    const mha_named_tensor changed[] = {{weight_name, MHA_F32, 2, {E, E}, weight}, {bias_name, MHA_F32, 1, {E}, bias}};
    mha_model *by_hand =
        case_model(NULL, families[ENCODER].folder,
                   &(mha_model_options){.size = sizeof(mha_model_options), .tensors = changed, .tensor_count = 2});
    mha_model *model = open_family(NULL, ENCODER, MHA_DTYPE_DEFAULT);
    for (int kind = PLAIN; kind <= PACKED; kind++) {
        mha_model_input in = input_of(kind);
        seen want = run(by_hand, &in, false);
        in.gates = off;
        in.fills = mean;
        seen got = run(model, &in, false);
        for (int64_t r = 0; r < got.rows; r++)
            if (is_real(&in, r)) case_near("mean ablation", got.last + r * E, want.last + r * E, E, 2e-5);
        release(&want);
        release(&got);
    }
    mha_model_free(model);
    mha_model_free(by_hand);
    mha_file_free(file);
    free(weight);
    free(bias);
}

/* ---- passes that begin at a layer ---- */

static void begins_with_the_bits_of_the_whole(void **state)
{
    (void)state;
    for (int m = 0; m < FAMILIES; m++) {
        mha_model *model = open_family(NULL, m, MHA_DTYPE_DEFAULT);
        const mha_model_info *info = mha_model_describe(model);
        for (int kind = 0; kind < INPUTS; kind++)
            for (int64_t first = 0; first < info->layers; first++) {
                mha_model_input in = input_of(kind);
                seen whole = run(model, &in, true);
                in.first_layer = first;
                in.hidden = whole.hidden[first];
                in.ids = NULL;
                for (int64_t r = 0; r < whole.rows; r++) /* nobody reads these */
                    for (int64_t i = 0; !is_real(&in, r) && i < whole.width; i++)
                        whole.hidden[first][r * whole.width + i] = NAN;
                seen part = run(model, &in, true);
                same_rows(&in, part.last, whole.last, whole.width);
                assert_int_equal(part.calls, info->layers - first);
                for (int64_t n = 0; n <= info->layers; n++)
                    if (n < first)
                        assert_null(part.hidden[n]);
                    else
                        same_rows(&in, part.hidden[n], whole.hidden[n], whole.width);
                for (int64_t n = first; n < info->layers; n++)
                    same_rows(&in, part.a[n].out, whole.a[n].out, whole.width);
                release(&whole);
                release(&part);
            }
        mha_model_free(model);
    }
}

static void logits_and_places_in_a_pass_that_begins_later(void **state)
{
    (void)state;
    mha_model *model = open_family(NULL, SLIDING, MHA_DTYPE_DEFAULT);
    const int64_t vocab = mha_model_describe(model)->vocab;
    float *want = malloc((size_t)(TOKENS * vocab) * sizeof *want),
          *got = malloc((size_t)(TOKENS * vocab) * sizeof *got);
    mha_model_input in = input_of(PLAIN);
    seen whole = run(model, &in, true);
    const mha_model_output all = {.size = sizeof all, .logits = want};
    assert_int_equal(mha_model_forward(model, &in, &all, &err), MHA_OK);
    in.first_layer = 2;
    in.hidden = whole.hidden[2];
    const mha_model_output part = {
        .size = sizeof part, .logits = got, .last_hidden = whole.hidden[2]}; /* its own place */
    assert_int_equal(mha_model_forward(model, &in, &part, &err), MHA_OK);
    assert_memory_equal(got, want, (size_t)(TOKENS * vocab) * sizeof *want);
    assert_memory_equal(whole.hidden[2], whole.last, (size_t)(TOKENS * whole.width) * sizeof *want);
    release(&whole);
    free(want);
    free(got);
    mha_model_free(model);
}

/* ---- pruned layers ---- */

/* The first `heads` heads of layer 1 alone, as tensors in memory. */
static mha_model *pruned(int heads, float *data)
{
    enum { D = 12, E = 48, TENSORS = 7 };
    static const char *const names[TENSORS] = {"self.query.weight",  "self.query.bias",   "self.key.weight",
                                               "self.key.bias",      "self.value.weight", "self.value.bias",
                                               "output.dense.weight"};
    static char full[TENSORS][96];
    static mha_named_tensor list[TENSORS];
    mha_file *file = weights_of(&families[ENCODER]);
    for (int t = 0; t < TENSORS; t++) {
        const bool bias = t < TENSORS - 1 && t % 2, columns = t == TENSORS - 1;
        snprintf(full[t], sizeof full[t], "encoder.layer.1.attention.%s", names[t]);
        float *whole = case_floats(file, full[t]);
        list[t] = (mha_named_tensor){
            full[t], MHA_F32, bias ? 1 : 2, {columns ? E : heads * D, columns ? heads * D : E}, data};
        if (bias) list[t].shape[1] = 0;
        for (int i = 0; i < (columns ? E : heads * D); i++)
            for (int k = 0; k < (bias ? 1 : columns ? heads * D : E); k++)
                *data++ = whole[bias ? i : i * E + k];
        free(whole);
    }
    mha_file_free(file);
    return case_model(
        NULL, families[ENCODER].folder,
        &(mha_model_options){.size = sizeof(mha_model_options), .tensors = list, .tensor_count = TENSORS});
}

/* Gates and fills of a layer are those of its first heads; the truth is the whole layer with the others at 0. */
static void pruned_layers_show_the_heads_they_have(void **state)
{
    (void)state;
    enum { D = 12, E = 48, KEPT = 2 };
    float *data = malloc(4 * E * E * sizeof *data);
    mha_model *some = pruned(KEPT, data), *all = open_family(NULL, ENCODER, MHA_DTYPE_DEFAULT);
    for (int kind = PLAIN; kind < INPUTS; kind++) {
        float off[LAYERS * B * H], own[LAYERS * H * D] = {0};
        mha_model_input in = input_of(kind);
        seen got = run(some, &in, true);
        assert_true(got.a[1].heads == KEPT && got.a[1].kv_heads == KEPT && got.a[0].heads == H);
        for (int n = 0; n < LAYERS * B * H; n++)
            off[n] = n / (B * H) == 1 && n % H >= KEPT ? 0 : in.gates ? gates[n] : 1;
        for (int n = 0; in.fills && n < LAYERS * H * D; n++)
            own[n] = n / (H * D) == 1 && n % (H * D) >= KEPT * D ? 0 : fills[n];
        in.gates = off;
        if (in.fills) in.fills = own;
        seen want = run(all, &in, true);
        for (int64_t r = 0; r < got.rows; r++)
            if (is_real(&in, r)) {
                case_near("context", got.a[1].context + r * KEPT * D, want.a[1].context + r * H * D, KEPT * D, 2e-5);
                case_near("q", got.a[1].q + r * got.a[1].stride, want.a[1].q + r * want.a[1].stride, KEPT * D, 2e-5);
                case_near("last", got.last + r * E, want.last + r * E, E, 5e-5);
            }
        release(&got);
        release(&want);
    }
    mha_model_free(some);
    mha_model_free(all);
    free(data);
}

/* ---- with a cache ---- */

/* A text in pieces shows the rows of the whole. */
static void pieces_show_the_rows_of_the_whole(void **state)
{
    (void)state;
    static const int64_t cuts[] = {0, 13, L - 1, L};
    for (int m = DECODER; m < FAMILIES; m++) {
        mha_model *model = open_family(NULL, m, MHA_DTYPE_DEFAULT);
        mha_model_input in = input_of(PLAIN);
        in.batch = 1;
        seen whole = run(model, &in, true);
        const mha_model_cache_options o = {.size = sizeof o, .tokens = L};
        assert_int_equal(mha_model_cache_create(model, &o, &in.cache, &err), MHA_OK);
        for (int c = 0; c < 3; c++) {
            in.ids = ids + cuts[c];
            in.length = cuts[c + 1] - cuts[c];
            seen part = run(model, &in, true);
            for (int64_t n = 0; n < mha_model_describe(model)->layers; n++) {
                const mha_model_activations *a = &whole.a[n];
                const int64_t wide = a->heads * a->head_dim;
                same_rows(&in, part.a[n].q, a->q + cuts[c] * a->stride, a->stride);
                same_rows(&in, part.a[n].context, a->context + cuts[c] * wide, wide);
                same_rows(&in, part.a[n].out, a->out + cuts[c] * whole.width, whole.width);
            }
            release(&part);
        }
        mha_model_cache_free(in.cache);
        release(&whole);
        mha_model_free(model);
    }
}

/* ---- threads, memory, refusals ---- */

static void threads_change_no_bit(void **state)
{
    (void)state;
    seen first = {0};
    const mha_model_input in = input_of(FILLED);
    for (int threads = 1; threads <= 3; threads++) {
        mha_ctx *ctx = NULL;
        const mha_ctx_options o = {.size = sizeof o, .threads = threads};
        assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
        mha_model *model = open_family(ctx, SLIDING, MHA_DTYPE_DEFAULT);
        seen s = run(model, &in, true);
        if (threads == 1) first = s;
        for (int n = 0; n < LAYERS; n++) {
            same_rows(&in, first.a[n].q, s.a[n].q, s.a[n].stride);
            same_rows(&in, first.a[n].context, s.a[n].context, s.a[n].heads * s.a[n].head_dim);
            same_rows(&in, first.a[n].out, s.a[n].out, s.width);
        }
        if (threads > 1) release(&s);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
    release(&first);
}

static int stop_second(void *user, const mha_model_activations *a)
{
    (void)user;
    return a->layer == 1;
}

static void what_cannot_be_asked_for(void **state)
{
    (void)state;
    float *x = calloc(TOKENS * WIDEST, sizeof *x);
    mha_model *model = open_family(NULL, SLIDING, MHA_DTYPE_DEFAULT);
    mha_model_cache *cache = NULL;
    const mha_model_cache_options o = {.size = sizeof o, .batch = B};
    assert_int_equal(mha_model_cache_create(model, &o, &cache, &err), MHA_OK);
    const struct {
        int64_t first;
        const float *hidden;
        mha_model_cache *cache;
        bool no_ids;
        const char *sentence;
    } wrong[] = {
        {1, NULL, NULL, false, "first_layer is 1, hidden is NULL"},
        {-1, x, NULL, false, "first_layer is -1, the model has layers 0..3"},
        {4, x, NULL, false, "first_layer is 4, the model has layers 0..3"},
        {2, x, cache, false, "first_layer is 2 with a cache"},
        {0, NULL, NULL, true, "ids is NULL"},
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        mha_model_input in = input_of(PLAIN);
        in.first_layer = wrong[n].first;
        in.hidden = wrong[n].hidden;
        in.cache = wrong[n].cache;
        if (wrong[n].no_ids) in.ids = NULL;
        assert_int_equal(mha_model_forward(model, &in, NULL, &err), MHA_ERR_ARG);
        if (!strstr(err.message, wrong[n].sentence)) fail_msg("%s", err.message);
    }
    const mha_model_input in = input_of(PLAIN);
    const mha_model_output out = {.size = sizeof out, .on_activations = stop_second};
    assert_int_equal(mha_model_forward(model, &in, &out, &err), MHA_ERR_CANCELLED);
    assert_string_equal(err.message, "stopped by on_activations at 1");
    mha_model_cache_free(cache);
    mha_model_free(model);
    free(x);
}

/* A pass allocates as often as without, and fails whole where memory ends. */
static void memory_ends(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&memory)};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
    mha_model *model = open_family(ctx, ENCODER, MHA_DTYPE_DEFAULT);
    const long live = memory.live;
    mha_model_input in = input_of(FILLED);
    long calls[2];
    for (int shown = 0; shown < 2; shown++) {
        const long before = memory.calls;
        seen s = run(model, &in, shown != 0);
        calls[shown] = memory.calls - before;
        release(&s);
    }
    assert_int_equal(calls[0], 2);
    assert_int_equal(calls[1], 2);
    for (long n = 0; n <= 2; n++) {
        seen s = {.width = mha_model_describe(model)->hidden, .rows = TOKENS};
        const mha_model_output out = {.size = sizeof out, .on_activations = keep, .user = &s};
        memory.budget = memory.calls + n;
        assert_int_equal(mha_model_forward(model, &in, &out, &err), n < 2 ? MHA_ERR_MEMORY : MHA_OK);
        assert_int_equal(memory.live, live);
        release(&s);
    }
    mha_model_free(model);
    mha_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_the_formula),
        cmocka_unit_test(the_input_is_what_queries_are_made_of),
        cmocka_unit_test(activations_in_sixteen_bits),
        cmocka_unit_test(a_gate_of_0_and_a_fill_are_mean_ablation),
        cmocka_unit_test(begins_with_the_bits_of_the_whole),
        cmocka_unit_test(logits_and_places_in_a_pass_that_begins_later),
        cmocka_unit_test(pruned_layers_show_the_heads_they_have),
        cmocka_unit_test(pieces_show_the_rows_of_the_whole),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(what_cannot_be_asked_for),
        cmocka_unit_test(memory_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
