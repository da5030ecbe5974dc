/* test_model_activations.c - tests activations inside attention, fills, and passes that begin at a later layer: for
 * every family and every mask, with packed sequences, pruned layers, 16-bit types and a cache. The reference is the
 * formula in double. */
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/inner_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = INNER_B, L = INNER_L, TOKENS = B * L, LAYERS = INNER_LAYERS, H = INNER_H, WIDEST = INNER_WIDEST };

static mha_error err;

/* ---- a forward pass that copies all data passed to its callbacks ---- */

typedef struct seen {
    int64_t width, rows, calls, next;
    mha_model_activations a[LAYERS]; /* copies of the activations of each layer */
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
    assert_true(a->k - a->q == q_width && a->v - a->k == a->kv_heads * D);
    s->a[a->layer] = inner_keep(a, s->width);
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
    seen s = {.width = mha_model_describe(model)->hidden, .rows = inner_rows(in), .next = in->first_layer};
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
    for (int n = 0; n < LAYERS; n++)
        inner_release(&s->a[n]);
    for (int n = 0; n <= LAYERS; n++)
        free(s->hidden[n]);
    free(s->last);
}

/* Fails unless the rows of unmasked tokens are bitwise identical in a and b. */
static void same_rows(const mha_model_input *in, const float *a, const float *b, int64_t width)
{
    for (int64_t r = 0; r < inner_rows(in); r++)
        if (inner_is_real(in, r)) assert_memory_equal(a + r * width, b + r * width, (size_t)width * sizeof *a);
}

/* ---- values of the activations ---- */

typedef struct expectation {
    const inner_family *f;
    const mha_model_input *in;
    const mha_model_activations *a;
    double limit;
} expectation;

static void near(const expectation *e, const char *what, int64_t row, double got, double want)
{
    if (!(fabs(got - want) <= e->limit * (1 + fabs(want))))
        fail_msg("%s, layer %d, row %d: %s: got %.9g, expected %.9g", e->f->folder, (int)e->a->layer, (int)row, what,
                 got, want);
}

static void check_context(const expectation *e, int64_t row)
{
    const mha_model_activations *a = e->a;
    const int64_t D = a->head_dim;
    double p[TOKENS];
    for (int64_t h = 0; h < a->heads; h++) {
        const int64_t g = h / (a->heads / a->kv_heads);
        const double gate = inner_gate(e->in, a->layer, row, h);
        const float *fill = e->in->fills ? e->in->fills + (a->layer * H + h) * D : NULL;
        inner_probs(e->f, e->in, a, row, h, p);
        for (int64_t d = 0; d < D; d++) {
            double c = 0;
            for (int64_t j = 0; j < a->rows; j++)
                if (p[j] > 0) c += p[j] * (double)a->v[j * a->stride + g * D + d];
            near(e, "context", row, (double)a->context[(row * a->heads + h) * D + d],
                 gate * c + (fill ? (double)fill[d] : 0));
        }
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
        if (inner_is_real(e->in, r)) {
            check_context(e, r);
            check_out(e, r, weight, bias, width);
        }
    free(weight);
    free(bias);
}

static mha_file *weights_of(const inner_family *f)
{
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", f->folder);
    return case_file(path);
}

static void values_are_those_of_the_formula(void **state)
{
    (void)state;
    for (int m = 0; m < INNER_FAMILIES; m++) {
        mha_model *model = inner_open(NULL, m, MHA_DTYPE_DEFAULT);
        mha_file *file = weights_of(&inner_families[m]);
        const mha_model_info *info = mha_model_describe(model);
        for (int kind = 0; kind < INNER_INPUTS; kind++) {
            const mha_model_input in = inner_input(kind);
            seen s = run(model, &in, true), plain = run(model, &in, false);
            assert_int_equal(s.calls, info->layers);
            same_rows(&in, s.last, plain.last, s.width);
            for (int64_t n = 0; n < info->layers; n++) {
                const expectation e = {&inner_families[m], &in, &s.a[n], 2e-5};
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

/* In a post-norm layer, on_activations must receive the layer's input before any normalization, and q must be the
 * projection of this input. */
static void queries_are_projections_of_the_input(void **state)
{
    (void)state;
    mha_model *model = inner_open(NULL, INNER_ENCODER, MHA_DTYPE_DEFAULT);
    mha_file *file = weights_of(&inner_families[INNER_ENCODER]);
    float *weight = case_floats(file, "encoder.layer.1.attention.self.query.weight");
    float *bias = case_floats(file, "encoder.layer.1.attention.self.query.bias");
    const mha_model_input in = inner_input(INNER_PADDED);
    seen s = run(model, &in, true);
    const expectation e = {&inner_families[INNER_ENCODER], &in, &s.a[1], 1e-5};
    for (int n = 0; n < 3; n++)
        same_rows(&in, s.a[n].input, s.hidden[n], s.width);
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t i = 0; i < s.width; i++) {
            double q = (double)bias[i];
            for (int64_t k = 0; k < s.width; k++)
                q += (double)s.a[1].input[r * s.width + k] * (double)weight[i * s.width + k];
            if (inner_is_real(&in, r)) near(&e, "q", r, (double)s.a[1].q[r * s.a[1].stride + i], q);
        }
    release(&s);
    free(weight);
    free(bias);
    mha_file_free(file);
    mha_model_free(model);
}

/* With a 16-bit model, the activations must be rounded to its type. The context must equal the context computed from q,
 * k and v within rounding. */
static void activations_in_sixteen_bits(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_BF16, MHA_F16};
    for (int m = 0; m < INNER_FAMILIES; m++)
        for (int t = 0; t < 2; t++) {
            mha_model *model = inner_open(NULL, m, types[t]);
            mha_file *file = weights_of(&inner_families[m]);
            for (int kind = INNER_PADDED; kind < INNER_INPUTS; kind += INNER_FILLED - INNER_PADDED) {
                const mha_model_input in = inner_input(kind);
                seen s = run(model, &in, true), plain = run(model, &in, false);
                same_rows(&in, s.last, plain.last, s.width);
                for (int64_t n = 0; n < mha_model_describe(model)->layers; n++) {
                    const expectation e = {&inner_families[m], &in, &s.a[n], 0.02};
                    check_layer(&e, file, s.width);
                    for (int64_t i = 0; types[t] == MHA_BF16 && i < s.rows * s.a[n].stride; i++) {
                        uint32_t bits;
                        memcpy(&bits, &s.a[n].q[i], sizeof bits);
                        if (inner_is_real(&in, i / s.a[n].stride)) assert_int_equal(bits & 0xffff, 0);
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

/* Removing head 1 of layer 1 with a fill m must equal setting its gate to 0 and adding Wo m to the output bias. */
static void a_gate_of_0_and_a_fill_are_mean_ablation(void **state)
{
    (void)state;
    enum { LAYER = 1, HEAD = 1, D = 12, E = 48 };
    static const char *const weight_name = "encoder.layer.1.attention.output.dense.weight";
    static const char *const bias_name = "encoder.layer.1.attention.output.dense.bias";
    mha_file *file = weights_of(&inner_families[INNER_ENCODER]);
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
        case_model(NULL, inner_families[INNER_ENCODER].folder,
                   &(mha_model_options){.size = sizeof(mha_model_options), .tensors = changed, .tensor_count = 2});
    mha_model *model = inner_open(NULL, INNER_ENCODER, MHA_DTYPE_DEFAULT);
    for (int kind = INNER_PLAIN; kind <= INNER_PACKED; kind++) {
        mha_model_input in = inner_input(kind);
        seen want = run(by_hand, &in, false);
        in.gates = off;
        in.fills = mean;
        seen got = run(model, &in, false);
        for (int64_t r = 0; r < got.rows; r++)
            if (inner_is_real(&in, r)) case_near("mean ablation", got.last + r * E, want.last + r * E, E, 2e-5);
        release(&want);
        release(&got);
    }
    mha_model_free(model);
    mha_model_free(by_hand);
    mha_file_free(file);
    free(weight);
    free(bias);
}

/* ---- passes that begin at a later layer ---- */

static void a_pass_from_any_layer_is_bitwise_identical(void **state)
{
    (void)state;
    for (int m = 0; m < INNER_FAMILIES; m++) {
        mha_model *model = inner_open(NULL, m, MHA_DTYPE_DEFAULT);
        const mha_model_info *info = mha_model_describe(model);
        for (int kind = 0; kind < INNER_INPUTS; kind++)
            for (int64_t first = 0; first < info->layers; first++) {
                mha_model_input in = inner_input(kind);
                seen whole = run(model, &in, true);
                in.first_layer = first;
                in.hidden = whole.hidden[first];
                in.ids = NULL;
                for (int64_t r = 0; r < whole.rows; r++) /* hidden states of masked tokens must not be read */
                    for (int64_t i = 0; !inner_is_real(&in, r) && i < whole.width; i++)
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

/* A pass can begin at the context of a layer. If this context was computed by the layer itself, the result must be
 * bitwise identical to that of the complete pass, also in 16-bit types. */
static void a_given_context_replaces_attention(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_F32, MHA_BF16, MHA_F16};
    for (int m = 0; m < INNER_FAMILIES; m++)
        for (int t = 0; t < 3; t++) {
            mha_model *model = inner_open(NULL, m, types[t]);
            for (int kind = 0; kind < INNER_FILLED; kind++) {
                mha_model_input in = inner_input(kind);
                seen whole = run(model, &in, true);
                in.first_layer = 1;
                in.hidden = whole.hidden[1];
                in.context = whole.a[1].context;
                seen part = run(model, &in, false);
                same_rows(&in, part.last, whole.last, whole.width);
                release(&whole);
                release(&part);
            }
            mha_model_free(model);
        }
}

static void logits_of_a_pass_from_a_later_layer(void **state)
{
    (void)state;
    mha_model *model = inner_open(NULL, INNER_SLIDING, MHA_DTYPE_DEFAULT);
    const int64_t vocab = mha_model_describe(model)->vocab;
    float *want = malloc((size_t)(TOKENS * vocab) * sizeof *want),
          *got = malloc((size_t)(TOKENS * vocab) * sizeof *got);
    mha_model_input in = inner_input(INNER_PLAIN);
    seen whole = run(model, &in, true);
    const mha_model_output all = {.size = sizeof all, .logits = want};
    assert_int_equal(mha_model_forward(model, &in, &all, &err), MHA_OK);
    in.first_layer = 2;
    in.hidden = whole.hidden[2];
    const mha_model_output part = {/* the last hidden states overwrite the input of the pass */
                                   .size = sizeof part,
                                   .logits = got,
                                   .last_hidden = whole.hidden[2]};
    assert_int_equal(mha_model_forward(model, &in, &part, &err), MHA_OK);
    assert_memory_equal(got, want, (size_t)(TOKENS * vocab) * sizeof *want);
    assert_memory_equal(whole.hidden[2], whole.last, (size_t)(TOKENS * whole.width) * sizeof *want);
    release(&whole);
    free(want);
    free(got);
    mha_model_free(model);
}

/* ---- pruned layers ---- */

/* Returns the config.json of the encoder, in which layer 1 keeps only its first `heads` heads. */
static char *pruned_config(int heads)
{
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1};
    mha_model *whole = case_model(NULL, inner_families[INNER_ENCODER].folder, &o);
    const char *text = mha_model_config_json(whole);
    const size_t room = strlen(text) + 200;
    char *config = malloc(room);
    assert_non_null(config);
    size_t n = (size_t)snprintf(config, room, "{\"mha.heads\": [[0, 1, 2, 3], [0");
    for (int h = 1; h < heads; h++)
        n += (size_t)snprintf(config + n, room - n, ", %d", h);
    snprintf(config + n, room - n, "], [0, 1, 2, 3]], %s", strchr(text, '{') + 1);
    mha_model_free(whole);
    return config;
}

/* Returns the encoder in which layer 1 keeps only its first `heads` heads, made from tensors in memory. */
static mha_model *pruned(int heads, float *data)
{
    enum { D = 12, E = 48, TENSORS = 7 };
    static const char *const names[TENSORS] = {"self.query.weight",  "self.query.bias",   "self.key.weight",
                                               "self.key.bias",      "self.value.weight", "self.value.bias",
                                               "output.dense.weight"};
    static char full[TENSORS][96];
    static mha_named_tensor list[TENSORS];
    mha_file *file = weights_of(&inner_families[INNER_ENCODER]);
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
    char *config = pruned_config(heads);
    mha_model *model = case_model(
        NULL, inner_families[INNER_ENCODER].folder,
        &(mha_model_options){
            .size = sizeof(mha_model_options), .tensors = list, .tensor_count = TENSORS, .config_json = config});
    free(config);
    return model;
}

/* Gates and fills of a pruned layer must apply to its remaining heads. The reference is the complete layer with gates
 * of 0 for the removed heads. */
static void pruned_layers_have_only_remaining_heads(void **state)
{
    (void)state;
    enum { D = 12, E = 48, KEPT = 2 };
    float *data = malloc(4 * E * E * sizeof *data);
    mha_model *some = pruned(KEPT, data), *all = inner_open(NULL, INNER_ENCODER, MHA_DTYPE_DEFAULT);
    for (int kind = INNER_PLAIN; kind < INNER_INPUTS; kind++) {
        float off[LAYERS * B * H], own[LAYERS * H * D] = {0};
        mha_model_input in = inner_input(kind);
        seen got = run(some, &in, true);
        assert_true(got.a[1].heads == KEPT && got.a[1].kv_heads == KEPT && got.a[0].heads == H);
        for (int n = 0; n < LAYERS * B * H; n++)
            off[n] = n / (B * H) == 1 && n % H >= KEPT ? 0 : in.gates ? in.gates[n] : 1;
        for (int n = 0; in.fills && n < LAYERS * H * D; n++)
            own[n] = n / (H * D) == 1 && n % (H * D) >= KEPT * D ? 0 : in.fills[n];
        in.gates = off;
        if (in.fills) in.fills = own;
        seen want = run(all, &in, true);
        for (int64_t r = 0; r < got.rows; r++)
            if (inner_is_real(&in, r)) {
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

/* ---- passes with a cache ---- */

/* A text that is passed in pieces with a cache must have the same activations as the text in one pass. */
static void pieces_give_the_rows_of_the_whole_text(void **state)
{
    (void)state;
    static const int64_t cuts[] = {0, 13, L - 1, L};
    for (int m = INNER_DECODER; m < INNER_FAMILIES; m++) {
        mha_model *model = inner_open(NULL, m, MHA_DTYPE_DEFAULT);
        mha_model_input in = inner_input(INNER_PLAIN);
        const int32_t *const text = in.ids;
        in.batch = 1;
        seen whole = run(model, &in, true);
        const mha_model_cache_options o = {.size = sizeof o, .tokens = L};
        assert_int_equal(mha_model_cache_create(model, &o, &in.cache, &err), MHA_OK);
        for (int c = 0; c < 3; c++) {
            in.ids = text + cuts[c];
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

/* ---- threads, error messages and failed allocations ---- */

static void threads_change_no_bit(void **state)
{
    (void)state;
    seen first = {0};
    const mha_model_input in = inner_input(INNER_FILLED);
    for (int threads = 1; threads <= 3; threads++) {
        mha_ctx *ctx = NULL;
        const mha_ctx_options o = {.size = sizeof o, .threads = threads};
        assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
        mha_model *model = inner_open(ctx, INNER_SLIDING, MHA_DTYPE_DEFAULT);
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

static void invalid_requests(void **state)
{
    (void)state;
    float *x = calloc(TOKENS * WIDEST, sizeof *x);
    mha_model *model = inner_open(NULL, INNER_SLIDING, MHA_DTYPE_DEFAULT);
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
        {1, NULL, NULL, false, "hidden must not be NULL with first_layer = 1"},
        {-1, x, NULL, false, "first_layer must be from 0 to 3 (got -1)"},
        {4, x, NULL, false, "first_layer must be from 0 to 3 (got 4)"},
        {2, x, cache, false, "first_layer must be 0 with cache, since lower layers would not cache the tokens (got 2)"},
        {0, NULL, NULL, true, "ids must not be NULL"},
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        mha_model_input in = inner_input(INNER_PLAIN);
        in.first_layer = wrong[n].first;
        in.hidden = wrong[n].hidden;
        in.cache = wrong[n].cache;
        if (wrong[n].no_ids) in.ids = NULL;
        assert_int_equal(mha_model_forward(model, &in, NULL, &err), MHA_ERR_ARG);
        if (!strstr(err.message, wrong[n].sentence)) fail_msg("%s", err.message);
    }
    mha_model_input changed = inner_input(INNER_PLAIN);
    changed.context = x;
    assert_int_equal(mha_model_forward(model, &changed, NULL, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_model_input: context must be NULL without hidden");
    changed.hidden = x;
    const mha_model_input in = inner_input(INNER_PLAIN);
    const mha_model_output out = {.size = sizeof out, .on_activations = stop_second};
    assert_int_equal(mha_model_forward(model, &changed, &out, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_model_output: on_activations must not be requested with context, because it "
                                     "replaces the output of attention");
    assert_int_equal(mha_model_forward(model, &in, &out, &err), MHA_ERR_CANCELLED);
    assert_string_equal(err.message, "stopped by on_activations at layer 1");
    mha_model_cache_free(cache);
    mha_model_free(model);
    free(x);
}

/* The callbacks must not cause further allocations. If an allocation fails, the pass must fail with MHA_ERR_MEMORY. */
static void running_out_of_memory(void **state)
{
    (void)state;
    counting memory = {.budget = -1};
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&memory)};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(&o, &ctx, &err), MHA_OK);
    mha_model *model = inner_open(ctx, INNER_ENCODER, MHA_DTYPE_DEFAULT);
    const long live = memory.live;
    mha_model_input in = inner_input(INNER_FILLED);
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
        cmocka_unit_test(queries_are_projections_of_the_input),
        cmocka_unit_test(activations_in_sixteen_bits),
        cmocka_unit_test(a_gate_of_0_and_a_fill_are_mean_ablation),
        cmocka_unit_test(a_pass_from_any_layer_is_bitwise_identical),
        cmocka_unit_test(a_given_context_replaces_attention),
        cmocka_unit_test(logits_of_a_pass_from_a_later_layer),
        cmocka_unit_test(pruned_layers_have_only_remaining_heads),
        cmocka_unit_test(pieces_give_the_rows_of_the_whole_text),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(invalid_requests),
        cmocka_unit_test(running_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
