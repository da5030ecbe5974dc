/* test_model_choice.c - encoders whose layers choose heads for each text: against their formulas in double, gradients
 * against differences of these, and against the variants that choose (variants.h); and what such a model is able to. */
#include "mha/heads.h"
#include "mha/model_create.h"
#include "mha/model_grads.h"
#include "mha/prune.h"
#include "mha/regroup.h"
#include "mha/route.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model_case.h"
#include "support/train_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 4, L = 6, V = 64, E = 16, H = 4, D = 4 };

#define SIZES                                                                                                      \
    "\"model_type\":\"bert\",\"vocab_size\":64,\"hidden_size\":16,\"num_attention_heads\":4,\"intermediate_size\"" \
    ":24,\"max_position_embeddings\":32,\"initializer_range\":0.5,\"layer_norm_eps\":1e-5,"

/* What a config says, and what that means. */
typedef struct choosing {
    const char *entry;
    int keep;
    bool experts, soft;
} choosing;

static const choosing cases[] = {
    {"{\"moe_heads\":{}}", 2, true, true},
    {"{\"moe_heads\":{\"top_k\":3}}", 3, true, true},
    {"{\"moe_heads\":{\"top_k\":4}}", 4, true, true},
    {"{\"head_pruning\":{\"prune_ratio\":0.5}}", 2, false, true},
    {"{\"head_pruning\":{\"prune_ratio\":0.3,\"selection\":\"soft\"}}", 2, false, true},
    {"{\"head_pruning\":{\"prune_ratio\":0,\"selection\":\"soft\"}}", 4, false, true},
    {"{\"head_pruning\":{\"prune_ratio\":0.74,\"selection\":\"hard\"}}", 1, false, false},
    {"{\"head_pruning\":{\"prune_ratio\":0.25,\"selection\":\"straight_through\"}}", 3, false, false},
};
enum { CASES = sizeof cases / sizeof *cases };

static const char *config_of(const char *entry, int layers)
{
    static char text[1024];
    snprintf(text, sizeof text, "{" SIZES "\"num_hidden_layers\":%d,\"mha.feed_forward\":false,\"mha.attention\":%s}",
             layers, entry);
    return text;
}

static mha_model *create(mha_ctx *ctx, const char *config)
{
    const mha_model_create_options o = {.size = sizeof o, .seed = 5};
    mha_model *model = NULL;
    mha_error err = {0};
    if (mha_model_create(ctx, config, &o, &model, &err) != MHA_OK) fail_msg("%s: %s", config, err.message);
    return model;
}

/* Texts of several lengths: padded on the right, or, with `holes`, anywhere. */
static mha_model_input input_of(bool holes)
{
    static int32_t ids[B * L];
    static uint8_t mask[B * L];
    static const int lengths[B] = {6, 3, 1, 5};
    for (int n = 0; n < B * L; n++) {
        ids[n] = (7 + 31 * n + n * n) % V;
        mask[n] = holes ? n % 5 != 1 : n % L < lengths[n / L];
    }
    return (mha_model_input){.size = sizeof(mha_model_input), .batch = B, .length = L, .ids = ids, .mask = mask};
}

/* ---- the formulas ---- */

/* Weights in double; names are those of the checkpoint. */
typedef struct naive {
    const choosing *c;
    const char *name[64];
    double *value[64];
    int count;
    mha_trainer *trainer; /* its names live as long */
} naive;

static naive naive_of(const choosing *c, const mha_model *model)
{
    naive d = {.c = c};
    int64_t count;
    assert_int_equal(mha_trainer_create(model, NULL, &d.trainer, NULL), MHA_OK);
    const mha_named_tensor *weights = mha_trainer_weights(d.trainer, &count);
    assert_true(count <= 64);
    for (d.count = 0; d.count < count; d.count++) {
        const mha_named_tensor *t = &weights[d.count];
        const int64_t all = t->shape[0] * (t->rank == 2 ? t->shape[1] : 1);
        d.name[d.count] = t->name;
        d.value[d.count] = malloc((size_t)all * sizeof(double));
        for (int64_t i = 0; i < all; i++)
            d.value[d.count][i] = (double)((const float *)t->data)[i];
    }
    return d;
}

static void naive_free(naive *d)
{
    while (d->count)
        free(d->value[--d->count]);
    mha_trainer_free(d->trainer);
}

static double *find(const naive *d, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "bert.%s", name);
    for (int n = 0; n < d->count; n++)
        if (strcmp(d->name[n], full) == 0) return d->value[n];
    fail_msg("no tensor %s", full);
    return NULL;
}

static void norm(const naive *d, const char *name, double *x)
{
    char full[2][96];
    double mean = 0, square = 0;
    snprintf(full[0], sizeof *full, "%s.weight", name);
    snprintf(full[1], sizeof *full, "%s.bias", name);
    const double *w = find(d, full[0]), *b = find(d, full[1]);
    for (int e = 0; e < E; e++)
        mean += x[e] / E;
    for (int e = 0; e < E; e++)
        square += (x[e] - mean) * (x[e] - mean) / E;
    for (int e = 0; e < E; e++)
        x[e] = (x[e] - mean) / sqrt(square + 1e-5) * w[e] + b[e];
}

static void linear(const naive *d, const char *name, int out, const double *x, double *y)
{
    char full[2][96];
    snprintf(full[0], sizeof *full, "encoder.layer.0.attention.%s.weight", name);
    snprintf(full[1], sizeof *full, "encoder.layer.0.attention.%s.bias", name);
    const double *w = find(d, full[0]), *b = find(d, full[1]);
    for (int o = 0; o < out; o++) {
        y[o] = b[o];
        for (int e = 0; e < E; e++)
            y[o] += x[e] * w[o * E + e];
    }
}

/* score [H] of a text, and its gates. */
static void choose(const naive *d, const mha_model_input *in, int b, double x[L][E], double *score, double *gate)
{
    double mean[E] = {0}, sum = 0;
    int real = 0;
    for (int i = 0; i < L; i++)
        real += in->mask[b * L + i];
    for (int i = 0; i < L; i++)
        for (int e = 0; e < E; e++)
            mean[e] += in->mask[b * L + i] ? x[i][e] / real : 0;
    linear(d, "self.head_choice", H, mean, score);
    for (int h = 0; h < H; h++) {
        int before = 0;
        for (int o = 0; o < H; o++)
            before += score[o] > score[h];
        gate[h] = before >= d->c->keep ? 0 : !d->c->soft ? 1 : d->c->experts ? exp(score[h]) : 1 / (1 + exp(-score[h]));
        sum += gate[h];
    }
    for (int h = 0; h < H && d->c->experts; h++)
        gate[h] /= sum;
}

/* One head of row i: the weighted values of real tokens. */
static void attend(const mha_model_input *in, int b, int i, int h, double q[L][E], double k[L][E], double v[L][E],
                   double gate, double *context)
{
    double p[L], sum = 0;
    for (int j = 0; j < L; j++) {
        double s = 0;
        for (int c = h * D; c < (h + 1) * D; c++)
            s += q[i][c] * k[j][c] / sqrt(D);
        sum += p[j] = in->mask[b * L + j] ? exp(s) : 0;
    }
    for (int c = h * D; c < (h + 1) * D; c++) {
        context[c] = 0;
        for (int j = 0; j < L; j++)
            context[c] += gate * p[j] / sum * v[j][c];
    }
}

/* The last states of text b, and its scores. */
static void run(const naive *d, const mha_model_input *in, int b, double x[L][E], double *score)
{
    const double *words = find(d, "embeddings.word_embeddings.weight");
    const double *positions = find(d, "embeddings.position_embeddings.weight");
    const double *types = find(d, "embeddings.token_type_embeddings.weight");
    double q[L][E], k[L][E], v[L][E], gate[H], context[E], y[E];
    for (int i = 0; i < L; i++) {
        for (int e = 0; e < E; e++)
            x[i][e] = words[in->ids[b * L + i] * E + e] + positions[i * E + e] + types[e];
        norm(d, "embeddings.LayerNorm", x[i]);
        linear(d, "self.query", E, x[i], q[i]);
        linear(d, "self.key", E, x[i], k[i]);
        linear(d, "self.value", E, x[i], v[i]);
    }
    choose(d, in, b, x, score, gate);
    for (int i = 0; i < L; i++) {
        for (int h = 0; h < H; h++)
            attend(in, b, i, h, q, k, v, gate[h], context);
        linear(d, "output.dense", E, context, y);
        for (int e = 0; e < E; e++)
            x[i][e] += y[e];
        norm(d, "encoder.layer.0.attention.output.LayerNorm", x[i]);
    }
}

/* What the tests differentiate: states of real tokens, each with a weight. */
static float weight_of(const mha_model_input *in, int n)
{
    return in->mask[n / E] ? (float)sin(1 + n) : 0;
}

static double loss_of(const naive *d, const mha_model_input *in)
{
    double x[L][E], score[H], sum = 0;
    for (int b = 0; b < B; b++) {
        run(d, in, b, x, score);
        for (int n = 0; n < L * E; n++)
            sum += (double)weight_of(in, b * L * E + n) * x[n / E][n % E];
    }
    return sum;
}

static void test_states_as_the_formulas_give_them(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * CASES; n++) {
        mha_model *model = create(NULL, config_of(cases[n / 2].entry, 1));
        naive d = naive_of(&cases[n / 2], model);
        float hidden[B * L * E];
        double x[L][E], score[H], worst = 0;
        const mha_model_input in = input_of(n % 2);
        const mha_model_output out = {.size = sizeof out, .last_hidden = hidden};
        assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
        for (int b = 0; b < B; b++) {
            run(&d, &in, b, x, score);
            for (int k = 0; k < L * E; k++)
                if (in.mask[b * L + k / E]) worst = fmax(worst, fabs(x[k / E][k % E] - (double)hidden[b * L * E + k]));
        }
        if (!(worst < 2e-5)) fail_msg("%s: off by %g", cases[n / 2].entry, worst);
        naive_free(&d);
        mha_model_free(model);
    }
}

/* ---- gradients ---- */

static mha_model_grads *backward(const mha_model *model, const mha_model_input *in, bool recompute, float *gates)
{
    const mha_model_grads_options o = {.size = sizeof o, .recompute = recompute};
    float dhidden[B * L * E];
    mha_model_grads *grads = NULL;
    mha_error err = {0};
    for (int n = 0; n < B * L * E; n++)
        dhidden[n] = weight_of(in, n);
    const mha_model_gradient g = {.size = sizeof g, .last_hidden = dhidden, .gates = gates};
    assert_int_equal(mha_model_grads_create(model, &o, &grads, &err), MHA_OK);
    if (mha_model_grads_forward(grads, in, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    if (mha_model_grads_backward(grads, &g, &err) != MHA_OK) fail_msg("%s", err.message);
    return grads;
}

static int64_t size_of(const mha_named_tensor *t)
{
    return t->shape[0] * (t->rank == 2 ? t->shape[1] : 1);
}

/* Some numbers of a tensor; all of the scores. */
static void check_tensor(naive *d, const mha_model_input *in, const mha_named_tensor *t, double *values)
{
    const double step = 1e-6;
    const int64_t all = size_of(t), some = strstr(t->name, "head_choice") ? all : 5;
    for (int64_t k = 0; k < some; k++) {
        double *w = &values[(k * all / some + 29 * k) % all], was = *w, difference;
        *w = was + step;
        difference = loss_of(d, in);
        *w = was - step;
        difference = (difference - loss_of(d, in)) / (2 * step);
        *w = was;
        const double got = (double)((const float *)t->data)[w - values];
        if (!(fabs(difference - got) < 1e-4))
            fail_msg("%s: %s[%lld]: gradient %g, difference %g", d->c->entry, t->name, (long long)(w - values), got,
                     difference);
    }
}

static void test_gradients_against_differences(void **state)
{
    (void)state;
    for (int n = 0; n < 2 * CASES; n++) {
        const choosing *c = &cases[n / 2];
        mha_model *model = create(NULL, config_of(c->entry, 1));
        naive d = naive_of(c, model);
        const mha_model_input in = input_of(n % 2);
        int64_t count;
        mha_model_grads *grads = backward(model, &in, n / 2 % 2, NULL);
        const mha_named_tensor *list = mha_model_grads_list(grads, &count);
        for (int64_t t = 0; t < count; t++) {
            /* straight through it is no gradient of the function, but of the next test's */
            if (strstr(list[t].name, "cls.") || strstr(c->entry, "through")) continue;
            assert_string_equal(list[t].name, d.name[t]);
            check_tensor(&d, &in, &list[t], d.value[t]);
        }
        mha_model_grads_free(grads);
        naive_free(&d);
        mha_model_free(model);
    }
}

/* What a head adds to the loss at a gate of 1, times the slope of the sigmoid. */
static void test_straight_through(void **state)
{
    (void)state;
    const choosing *c = &cases[CASES - 1];
    mha_model *model = create(NULL, config_of(c->entry, 1));
    naive d = naive_of(c, model);
    const mha_model_input in = input_of(true);
    float dgates[B * H];
    double want[H] = {0}, x[L][E], score[H];
    int64_t count;
    mha_model_grads *grads = backward(model, &in, false, dgates);
    const mha_named_tensor *list = mha_model_grads_list(grads, &count);
    for (int b = 0; b < B; b++) {
        run(&d, &in, b, x, score);
        for (int h = 0; h < H; h++) {
            const double s = 1 / (1 + exp(-score[h]));
            want[h] += s * (1 - s) * (double)dgates[b * H + h]; /* 0 for a head that is not kept */
        }
    }
    for (int64_t t = 0; t < count; t++)
        for (int h = 0; strstr(list[t].name, "head_choice.bias") && h < H; h++)
            assert_true(fabs((double)((const float *)list[t].data)[h] - want[h]) < 1e-5);
    mha_model_grads_free(grads);
    naive_free(&d);
    mha_model_free(model);
}

/* Gates of the caller multiply: those of 1 change no bit, those of 0 leave nothing, and their gradient is that of the
 * product. */
static void test_gates_of_the_call(void **state)
{
    (void)state;
    for (int n = 0; n < CASES; n++) {
        mha_model *model = create(NULL, config_of(cases[n].entry, 1));
        float gates[B * H], slopes[2][B * H], hidden[3][B * L * E];
        mha_model_input in = input_of(false);
        for (int pass = 0; pass < 3; pass++) {
            const mha_model_output out = {.size = sizeof out, .last_hidden = hidden[pass]};
            for (int h = 0; h < B * H; h++)
                gates[h] = pass < 2 ? 1 : (float)(h % 3);
            in.gates = pass ? gates : NULL;
            assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
            mha_model_grads *grads = backward(model, &in, false, slopes[pass == 1]);
            mha_model_grads_free(grads);
            if (pass == 1) assert_memory_equal(slopes[0], slopes[1], sizeof *slopes);
        }
        assert_memory_equal(hidden[0], hidden[1], sizeof *hidden);
        assert_memory_not_equal(hidden[0], hidden[2], sizeof *hidden);
        mha_model_free(model);
    }
}

/* ---- the variants that choose ---- */

static void copy_named(const mha_named_tensor *list, int64_t count, const char *name, float *to)
{
    for (int64_t n = 0; n < count; n++)
        if (strcmp(list[n].name, name) == 0) {
            memcpy(to, list[n].data, (size_t)size_of(&list[n]) * sizeof *to);
            return;
        }
    fail_msg("no parameter %s", name);
}

/* One matrix of the variant, with its bias; an expert's is `of` rows of it. */
static mha_matrix take(const mha_variant *variant, const char *format, int parts, int of, float *room)
{
    int64_t count;
    const mha_named_tensor *list = mha_variant_parameters(variant, &count);
    float *bias = room + parts * of * E;
    for (int p = 0; p < parts; p++) {
        char stem[64], name[80];
        snprintf(stem, sizeof stem, format, p);
        snprintf(name, sizeof name, "%s.weight", stem);
        copy_named(list, count, name, room + p * of * E);
        snprintf(name, sizeof name, "%s.bias", stem);
        copy_named(list, count, name, bias + p * of);
    }
    return (mha_matrix){.weight = room, .bias = bias};
}

static void compare_with(mha_variant *variant, const mha_layer_choice *choice, const char *score, bool experts)
{
    static float room[5][E * (E + 1)];
    float x[B * L * E], want[B * L * E], got[B * L * E];
    mha_trace *trace = NULL;
    mha_attn_layer *layer = NULL;
    mha_error err = {0};
    mha_attn_layer_options o = {.size = sizeof o, .hidden = E, .heads = H, .choice = *choice};
    o.choice.score = take(variant, score, 1, H, room[0]);
    o.q = take(variant, experts ? "experts.%d.q_proj" : "q_proj", experts ? H : 1, experts ? D : E, room[1]);
    o.k = take(variant, experts ? "experts.%d.k_proj" : "k_proj", experts ? H : 1, experts ? D : E, room[2]);
    o.v = take(variant, experts ? "experts.%d.v_proj" : "v_proj", experts ? H : 1, experts ? D : E, room[3]);
    o.o = take(variant, "o_proj", 1, E, room[4]);
    for (int n = 0; n < B * L * E; n++)
        x[n] = (float)sin(3 * n + n * n);
    const mha_variant_input vin = {
        .size = sizeof vin, .batch = B, .q_len = L, .kv_len = L, .query = x, .key = x, .value = x};
    assert_int_equal(mha_trace_create(NULL, &trace, &err), MHA_OK);
    if (mha_variant_forward(variant, &vin, want, trace, &err) != MHA_OK) fail_msg("%s", err.message);
    if (mha_attn_layer_create(NULL, &o, &layer, &err) != MHA_OK) fail_msg("%s", err.message);
    const mha_layer_input in = {.size = sizeof in, .batch = B, .length = L};
    if (mha_attn_layer_forward(layer, &in, x, got, &err) != MHA_OK) fail_msg("%s", err.message);
    case_near(score, want, got, B * L * E, 2e-6);
    mha_attn_layer_free(layer);
    mha_trace_free(trace);
    mha_variant_free(variant);
}

static void test_as_the_variants(void **state)
{
    (void)state;
    mha_variant *variant = NULL;
    mha_rng rng;
    for (int k = 1; k <= H; k++) {
        const mha_moe_heads_options moe = {
            .size = sizeof moe, .d_model = E, .num_heads = H, .top_k = k, .expert_output = MHA_EXPERT_SLOT};
        mha_rng_manual_seed(&rng, 3);
        assert_int_equal(mha_moe_heads_create(NULL, &moe, &variant, NULL), MHA_OK);
        assert_int_equal(mha_variant_init(variant, &rng, NULL), MHA_OK);
        compare_with(variant, &(mha_layer_choice){.of = MHA_CHOICE_EXPERTS, .keep = k}, "router", true);
        for (int s = MHA_SELECTION_HARD; s <= MHA_SELECTION_STRAIGHT_THROUGH; s++) {
            const mha_head_pruning_options pruning = {.size = sizeof pruning,
                                                      .d_model = E,
                                                      .num_heads = H,
                                                      .prune_ratio = 1 - k / 4.0,
                                                      .selection = (mha_selection)s};
            assert_int_equal(mha_head_pruning_create(NULL, &pruning, &variant, NULL), MHA_OK);
            assert_int_equal(mha_variant_init(variant, &rng, NULL), MHA_OK);
            compare_with(variant, &(mha_layer_choice){.of = MHA_CHOICE_HEADS, .keep = k, .selection = (mha_selection)s},
                         "head_importance", false);
        }
    }
}

/* ---- the model ---- */

static const char two_layers[] = "[{\"moe_heads\":{\"top_k\":2}},{\"head_pruning\":{\"prune_ratio\":0.5}}]";

/* The same bits one text behind the other, and for any number of threads. */
static void test_same_bits_packed_and_threaded(void **state)
{
    (void)state;
    const int64_t starts[] = {0, 6, 9, 10, 15};
    float hidden[3][B * L * E] = {{0}};
    int32_t packed[15];
    for (int pass = 0; pass < 3; pass++) {
        const mha_ctx_options o = {.size = sizeof o, .threads = pass == 1 ? 3 : 1};
        mha_ctx *ctx = NULL;
        assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
        mha_model *model = create(ctx, config_of(two_layers, 2));
        mha_model_input in = input_of(false);
        const mha_model_output out = {.size = sizeof out, .last_hidden = hidden[pass]};
        for (int b = 0; b < B; b++)
            memcpy(packed + starts[b], in.ids + b * L, (size_t)(starts[b + 1] - starts[b]) * sizeof *packed);
        if (pass == 2) in = (mha_model_input){.size = sizeof in, .batch = B, .ids = packed, .starts = starts};
        assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
        mha_model_free(model);
        mha_ctx_free(ctx);
    }
    const mha_model_input in = input_of(false);
    for (int n = 0; n < B * L; n++)
        if (in.mask[n]) {
            const int64_t at = starts[n / L] + n % L;
            assert_memory_equal(hidden[0] + n * E, hidden[1] + n * E, E * sizeof(float));
            assert_memory_equal(hidden[0] + n * E, hidden[2] + at * E, E * sizeof(float));
        }
}

static const char mlm[] =
    "{" SIZES
    "\"num_hidden_layers\":2,\"mha.attention\":[{\"moe_heads\":{}},{\"head_pruning\":{\"prune_ratio\":0.5}}]}";

/* Learns to fill in masked tokens, its scores with it; is saved, and opened as it was. */
static void test_learns_and_is_saved(void **state)
{
    (void)state;
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    const mha_train_options o = {.size = sizeof o, .rate = 1e-2};
    const char *folder = files_folder();
    float hidden[2][B * L * E];
    mha_trainer *trainer = NULL, *resumed = NULL;
    mha_error err = {0};
    mha_model *model = create(NULL, mlm);
    assert_int_equal(mha_trainer_create(model, &o, &trainer, &err), MHA_OK);
    int64_t count;
    const mha_named_tensor *list = mha_trainer_weights(trainer, &count);
    float before[2 * H], after[2 * H];
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t n = 0, at = 0; n < count; n++)
            if (strstr(list[n].name, "head_choice.bias")) memcpy((pass ? after : before) + H * at++, list[n].data, 16);
        for (int step = 0; pass == 0 && step < 12; step++)
            train_on(trainer, 8, 16);
    }
    assert_memory_not_equal(before, after, H * sizeof(float));
    assert_memory_not_equal(before + H, after + H, H * sizeof(float));
    if (mha_trainer_save(trainer, folder, NULL, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_model *opened = case_model(NULL, folder, &bare);
    const mha_model *both[] = {mha_trainer_model(trainer), opened};
    const mha_model_input in = input_of(true);
    for (int n = 0; n < 2; n++) {
        const mha_model_output out = {.size = sizeof out, .last_hidden = hidden[n]};
        assert_int_equal(mha_model_forward(both[n], &in, &out, NULL), MHA_OK);
    }
    assert_memory_equal(hidden[0], hidden[1], sizeof *hidden);
    assert_int_equal(mha_trainer_resume(NULL, folder, &o, &resumed, &err), MHA_OK);
    train_on(trainer, 8, 16), train_on(resumed, 8, 16);
    train_expect_alike(trainer, resumed);
    mha_trainer_free(trainer), mha_trainer_free(resumed);
    mha_model_free(model), mha_model_free(opened);
    files_remove(folder);
}

static void test_says_what_it_is(void **state)
{
    (void)state;
    mha_model *model = create(NULL, config_of(two_layers, 2));
    const mha_model_attention *a = mha_model_describe(model)->attention_per_layer;
    assert_int_equal(a[0].choice, MHA_CHOICE_EXPERTS);
    assert_int_equal(a[0].kept_heads, 2);
    assert_int_equal(a[1].choice, MHA_CHOICE_HEADS);
    assert_int_equal(a[1].selection, MHA_SELECTION_SOFT);
    assert_int_equal(a[1].kept_heads, 2);
    mha_model_free(model);
}

/* In bf16 and in 8 bits; scores are float32 in all. */
static void test_other_types(void **state)
{
    (void)state;
    static const mha_dtype types[] = {MHA_BF16, MHA_F16, MHA_Q8_0};
    const char *folder = files_folder();
    float hidden[B * L * E], other[B * L * E];
    mha_model *model = create(NULL, config_of(two_layers, 2));
    const mha_model_input in = input_of(false);
    mha_model_output out = {.size = sizeof out, .last_hidden = hidden};
    assert_int_equal(mha_model_forward(model, &in, &out, NULL), MHA_OK);
    assert_int_equal(mha_model_save(model, folder, NULL, NULL), MHA_OK);
    out.last_hidden = other;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .dtype = types[t]};
        mha_model *opened = case_model(NULL, folder, &o);
        assert_int_equal(mha_model_forward(opened, &in, &out, NULL), MHA_OK);
        for (int n = 0; n < B * L; n++)
            if (in.mask[n]) case_near(mha_dtype_name(types[t]), hidden + n * E, other + n * E, E, 0.1);
        mha_model_free(opened);
    }
    mha_model_free(model);
    files_remove(folder);
}

/* ---- what is refused ---- */

static void expect_config(const char *config, mha_status status, const char *message)
{
    mha_model *model = NULL;
    mha_error err = {0};
    assert_int_equal(mha_model_create(NULL, config, NULL, &model, &err), status);
    assert_null(model);
    assert_string_equal(err.message, message);
}

static void test_wrong_configs(void **state)
{
    (void)state;
    expect_config(config_of("{\"moe_heads\":{\"top_k\":5}}", 1), MHA_ERR_FORMAT,
                  "config.json: mha.attention.moe_heads.top_k: want an integer from 1 to 4, got 5");
    expect_config(config_of("{\"moe_heads\":2}", 1), MHA_ERR_FORMAT,
                  "config.json: mha.attention.moe_heads: want an object, got 2");
    expect_config(config_of("{\"moe_heads\":{\"experts\":2}}", 1), MHA_ERR_FORMAT,
                  "config.json: mha.attention.moe_heads.experts is no key; there is top_k");
    expect_config(config_of("[null,{\"head_pruning\":{}}]", 2), MHA_ERR_FORMAT,
                  "config.json: mha.attention[1].head_pruning.prune_ratio: want a number from 0 to 1, got nothing");
    expect_config(config_of("{\"head_pruning\":{\"prune_ratio\":1}}", 1), MHA_ERR_FORMAT,
                  "config.json: mha.attention.head_pruning.prune_ratio: want a share that leaves a head, got 1");
    expect_config(config_of("{\"head_pruning\":{\"prune_ratio\":0.5,\"selection\":\"best\"}}", 1), MHA_ERR_FORMAT,
                  "config.json: mha.attention.head_pruning.selection: want \"hard\", \"soft\" or "
                  "\"straight_through\", got \"best\"");
    expect_config(config_of("{\"moe_heads\":{},\"head_pruning\":{\"prune_ratio\":0.5}}", 1), MHA_ERR_FORMAT,
                  "config.json: mha.attention: head_pruning beside moe_heads; a layer chooses in one way");
    expect_config(
        config_of("{\"adaptive_heads\":{}}", 1), MHA_ERR_UNSUPPORTED,
        "config.json: mha.attention.adaptive_heads: layers whose number of heads changes from text to text are "
        "for variants.h, not for models, whose heads have numbers");
    expect_config("{\"model_type\":\"gpt2\",\"mha.attention\":{\"moe_heads\":{}}}", MHA_ERR_UNSUPPORTED,
                  "config.json: mha.attention.moe_heads: heads are chosen by the mean of all tokens, and in a model of "
                  "type gpt2 a token would be told of later ones; encoders (bert) alone may choose");
}

/* But in a layer beside it that has all of them heads may go. */
static void test_heads_stay_and_are_not_regrouped(void **state)
{
    (void)state;
    const mha_regroup_options r = {.size = sizeof r, .key_heads = 2};
    uint8_t keep[2 * H];
    mha_model *model = create(NULL, config_of("[{\"moe_heads\":{}},null]", 2)), *fewer = NULL;
    mha_pruning *pruning = NULL;
    mha_error err = {0};
    memset(keep, 1, sizeof keep);
    keep[1] = 0;
    assert_int_equal(mha_prune_make(model, keep, NULL, &pruning, &err), MHA_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "layer 0 chooses its heads for each text: without one it would choose another in "
                                     "its place");
    assert_int_equal(mha_regroup_make(model, &r, &pruning, &err), MHA_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "regroup: layer 0 chooses its heads for each text, and they would share keys with "
                                     "others");
    keep[1] = 1;
    keep[H + 2] = 0;
    if (mha_prune_make(model, keep, NULL, &pruning, &err) != MHA_OK) fail_msg("%s", err.message);
    if (mha_pruning_open(pruning, &fewer, &err) != MHA_OK) fail_msg("%s", err.message);
    assert_int_equal(mha_model_describe(fewer)->heads_per_layer[1], H - 1);
    assert_int_equal(mha_model_describe(fewer)->attention_per_layer[0].kept_heads, 2);
    mha_model_free(fewer);
    mha_pruning_free(pruning);
    mha_model_free(model);
}

static void test_wrong_layers(void **state)
{
    (void)state;
    static const float weight[E * E] = {0};
    const mha_matrix m = {.weight = weight, .bias = weight};
    const mha_attn_layer_options good = {.size = sizeof good,
                                         .hidden = E,
                                         .heads = H,
                                         .q = m,
                                         .k = m,
                                         .v = m,
                                         .o = m,
                                         .choice = {MHA_CHOICE_EXPERTS, 2, 0, m}};
    mha_attn_layer_options wrong[6];
    static const char *const messages[] = {
        "attention layer: choice.keep is 0, not 1..heads 4",
        "attention layer: choice.score needs a weight [heads, hidden] and a bias",
        "attention layer: a choice with causal: it would tell a token of later ones",
        "attention layer: a choice with by_head",
        "attention layer: choice.of is 7, which is no mha_choice",
        "attention layer: choice.selection is 9, which is no mha_selection",
    };
    for (int n = 0; n < 6; n++)
        wrong[n] = good;
    wrong[0].choice.keep = 0;
    wrong[1].choice.score.bias = NULL;
    wrong[2].causal = 1;
    wrong[3].by_head = 1;
    wrong[4].choice.of = (mha_choice)7;
    wrong[5].choice.selection = (mha_selection)9;
    for (int n = 0; n < 6; n++) {
        mha_attn_layer *layer = NULL;
        mha_error err = {0};
        assert_int_not_equal(mha_attn_layer_create(NULL, &wrong[n], &layer, &err), MHA_OK);
        assert_null(layer);
        assert_string_equal(err.message, messages[n]);
    }
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    case_create_without_memory(config_of(two_layers, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_as_the_formulas_give_them),
        cmocka_unit_test(test_gradients_against_differences),
        cmocka_unit_test(test_straight_through),
        cmocka_unit_test(test_gates_of_the_call),
        cmocka_unit_test(test_as_the_variants),
        cmocka_unit_test(test_same_bits_packed_and_threaded),
        cmocka_unit_test(test_learns_and_is_saved),
        cmocka_unit_test(test_says_what_it_is),
        cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_wrong_configs),
        cmocka_unit_test(test_heads_stay_and_are_not_regrouped),
        cmocka_unit_test(test_wrong_layers),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
