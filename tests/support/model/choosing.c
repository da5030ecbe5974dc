/* choosing.c - implements choosing.h. The formulas are computed with plain loops in double. */
#include "support/model/choosing.h"

#include "mha/model_create.h"
#include "support/check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = CHOOSING_B, L = CHOOSING_L, E = CHOOSING_E, H = CHOOSING_H, P = CHOOSING_P, V = 64 };

/* ---- models ---- */

const choosing choosing_cases[] = {
    {"{\"moe_heads\":{}}", 2, true, true, false, {0}},
    {"{\"moe_heads\":{\"top_k\":3}}", 3, true, true, false, {0}},
    {"{\"moe_heads\":{\"top_k\":4}}", 4, true, true, false, {0}},
    {"{\"head_pruning\":{\"prune_ratio\":0.5}}", 2, false, true, false, {0}},
    {"{\"head_pruning\":{\"prune_ratio\":0.3,\"selection\":\"soft\"}}", 2, false, true, false, {0}},
    {"{\"head_pruning\":{\"prune_ratio\":0,\"selection\":\"soft\"}}", 4, false, true, false, {0}},
    {"{\"head_pruning\":{\"prune_ratio\":0.74,\"selection\":\"hard\"}}", 1, false, false, false, {0}},
    {"{\"head_pruning\":{\"prune_ratio\":0.25,\"selection\":\"straight_through\"}}", 3, false, false, true, {0}},
    {"{\"adaptive_heads\":{\"head_options\":[1,2,8],\"predictor_width\":5}}", 1, true, true, false, {1, 2, 8}},
    {"{\"window\":3,\"scale\":0.4,\"adaptive_heads\":{\"head_options\":[16,1,4],\"predictor_width\":5,\"selection\":"
     "\"hard\"}}",
     1,
     true,
     false,
     false,
     {16, 1, 4}},
    {"{\"adaptive_heads\":{\"head_options\":[8,4,2],\"predictor_width\":5,\"selection\":\"straight_through\"}}",
     1,
     true,
     false,
     true,
     {8, 4, 2}},
};
const int choosing_count = sizeof choosing_cases / sizeof *choosing_cases;

const char *choosing_config(const char *entry, int layers)
{
    static char text[1024];
    snprintf(text, sizeof text,
             "{" CHOOSING_SIZES "\"num_hidden_layers\":%d,\"mha.feed_forward\":false,\"mha.attention\":%s}", layers,
             entry);
    return text;
}

mha_model *choosing_model(mha_ctx *ctx, const char *config)
{
    const mha_model_create_options o = {.size = sizeof o, .seed = 5};
    mha_model *model = NULL;
    mha_error err = {0};
    if (mha_model_create(ctx, config, &o, &model, &err) != MHA_OK) fail_msg("%s: %s", config, err.message);
    return model;
}

mha_model_input choosing_input(bool holes)
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

/* ---- reference formulas ---- */

choosing_naive choosing_take(const choosing *c, const mha_model *model)
{
    choosing_naive d = {.c = c, .scale = 1};
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

void choosing_free(choosing_naive *d)
{
    while (d->count)
        free(d->value[--d->count]);
    mha_trainer_free(d->trainer);
}

static double *find(const choosing_naive *d, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "bert.%s", name);
    for (int n = 0; n < d->count; n++)
        if (strcmp(d->name[n], full) == 0) return d->value[n];
    fail_msg("the checkpoint must have a tensor %s", full);
    return NULL;
}

static void norm(const choosing_naive *d, const char *name, double *x)
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

static void linear(const choosing_naive *d, const char *name, int out, int in, const double *x, double *y)
{
    char full[2][96];
    snprintf(full[0], sizeof *full, "encoder.layer.0.attention.%s.weight", name);
    snprintf(full[1], sizeof *full, "encoder.layer.0.attention.%s.bias", name);
    const double *w = find(d, full[0]), *b = find(d, full[1]);
    for (int o = 0; o < out; o++) {
        y[o] = b[o];
        for (int i = 0; i < in; i++)
            y[o] += x[i] * w[o * in + i];
    }
}

/* Computes the router scores of text b. Returns the number of scores. */
static int find_scores(const choosing_naive *d, const mha_model_input *in, int b, double x[L][E],
                       double score[CHOOSING_SCORES])
{
    double mean[E] = {0}, hidden[P];
    int real = 0;
    for (int i = 0; i < L; i++)
        real += in->mask[b * L + i];
    for (int i = 0; i < L; i++)
        for (int e = 0; e < E; e++)
            mean[e] += in->mask[b * L + i] ? x[i][e] / real : 0;
    if (!d->c->options[0]) {
        linear(d, "self.head_choice", H, E, mean, score);
        return H;
    }
    linear(d, "self.head_choice_hidden", P, E, mean, hidden);
    for (int p = 0; p < P; p++)
        hidden[p] = hidden[p] > 0 ? hidden[p] : 0;
    linear(d, "self.head_choice", 3, P, hidden, score);
    return 3;
}

/* Computes the gate of each head from the router scores of a text. Returns the number of selected heads. */
static int choose(const choosing *c, int scores, const double *score, double *gate)
{
    double soft[CHOOSING_SCORES], sum = 0;
    int heads = H, best = 0;
    for (int s = 0; s < scores; s++) {
        int before = 0;
        for (int o = 0; o < scores; o++)
            before += score[o] > score[s];
        best = before == 0 ? s : best;
        gate[s] = before < c->keep;
        soft[s] = c->softmax ? exp(score[s]) : 1 / (1 + exp(-score[s]));
        sum += c->options[0] || gate[s] != 0 ? soft[s] : 0;
    }
    for (int s = 0; s < scores && c->soft; s++)
        gate[s] *= soft[s] / (c->softmax ? sum : 1);
    if (!c->options[0]) return heads;
    const double one = gate[best];
    for (heads = 0; heads < c->options[best]; heads++)
        gate[heads] = one;
    return heads;
}

/* Computes the output of head h for row i: gate * sum_j p[j] v[j] over the unmasked tokens j. */
static void attend(const choosing *c, const mha_model_input *in, int b, int i, int h, int D, double q[L][E],
                   double k[L][E], double v[L][E], double gate, double *context)
{
    const bool other = strstr(c->entry, "window") != NULL; /* the case with a window and a scale */
    double p[L], sum = 0;
    for (int j = 0; j < L; j++) {
        double s = 0;
        for (int e = h * D; e < (h + 1) * D; e++)
            s += q[i][e] * k[j][e] * (other ? 0.4 : 1 / sqrt(D));
        sum += p[j] = in->mask[b * L + j] && (!other || abs(i - j) < 3) ? exp(s) : 0;
    }
    for (int e = h * D; e < (h + 1) * D; e++) {
        context[e] = 0;
        for (int j = 0; j < L && sum > 0; j++)
            context[e] += gate * p[j] / sum * v[j][e];
    }
}

void choosing_run(const choosing_naive *d, const mha_model_input *in, int b, double x[L][E],
                  double score[CHOOSING_SCORES])
{
    const double *words = find(d, "embeddings.word_embeddings.weight");
    const double *positions = find(d, "embeddings.position_embeddings.weight");
    const double *types = find(d, "embeddings.token_type_embeddings.weight");
    double q[L][E], k[L][E], v[L][E], gate[E], context[E], y[E];
    for (int i = 0; i < L; i++) {
        for (int e = 0; e < E; e++)
            x[i][e] = words[in->ids[b * L + i] * E + e] + positions[i * E + e] + types[e];
        norm(d, "embeddings.LayerNorm", x[i]);
        linear(d, "self.query", E, E, x[i], q[i]);
        linear(d, "self.key", E, E, x[i], k[i]);
        linear(d, "self.value", E, E, x[i], v[i]);
    }
    const int heads = choose(d->c, find_scores(d, in, b, x, score), score, gate);
    for (int i = 0; i < L; i++) {
        for (int h = 0; h < heads; h++)
            attend(d->c, in, b, i, h, E / heads, q, k, v, d->scale * gate[h], context);
        linear(d, "output.dense", E, E, context, y);
        for (int e = 0; e < E; e++)
            x[i][e] += y[e];
        norm(d, "encoder.layer.0.attention.output.LayerNorm", x[i]);
    }
}
