/* naive_decoder.c - implements naive_decoder.h. Uses plain loops in double. */
#include "support/reference/naive_decoder.h"

#include "support/check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- weights ---- */

static int64_t elements(const mha_named_tensor *t)
{
    return t->rank == 2 ? t->shape[0] * t->shape[1] : t->shape[0];
}

void naive_take(naive_decoder *d, const mha_named_tensor *weights, int64_t count)
{
    d->count = count;
    d->weights = malloc((size_t)count * sizeof *d->weights);
    for (int64_t n = 0; n < count; n++) {
        double *copy = malloc((size_t)elements(&weights[n]) * sizeof *copy);
        d->weights[n] = weights[n];
        d->weights[n].name = strdup(weights[n].name);
        d->weights[n].data = copy;
        for (int64_t i = 0; i < elements(&weights[n]); i++)
            copy[i] = (double)((const float *)weights[n].data)[i];
    }
}

void naive_free(naive_decoder *d)
{
    for (int64_t n = 0; n < d->count; n++) {
        free(d->weights[n].data);
        free((void *)d->weights[n].name);
    }
    free(d->weights);
}

/* Returns the elements of the weight `name`, or NULL if it is missing. */
static const double *find(const naive_decoder *d, const char *name)
{
    for (int64_t n = 0; n < d->count; n++)
        if (strcmp(d->weights[n].name, name) == 0) return d->weights[n].data;
    return NULL;
}

static const double *part(const naive_decoder *d, int layer, const char *name, const char *suffix)
{
    char full[160];
    snprintf(full, sizeof full, d->gpt2 ? "transformer.h.%d.%s%s" : "model.layers.%d.%s%s", layer, name, suffix);
    return find(d, full);
}

/* ---- vector and matrix operations ---- */

static double *zeros(int count)
{
    return calloc((size_t)count, sizeof(double));
}

/* Returns the sum of x[i] * w[i * stride] over i < count. */
static double dot(const double *x, const double *w, int stride, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += x[i] * w[i * stride];
    return sum;
}

/* Computes y [rows, out] = x W^T + b. */
static double *linear(const naive_decoder *d, int layer, const char *name, int rows, int in, int out, const double *x)
{
    const double *w = part(d, layer, name, ".weight"), *b = part(d, layer, name, ".bias");
    double *y = zeros(rows * out);
    if (!w) fail_msg("the checkpoint must have the weight of %s in layer %d", name, layer);
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < out; o++)
            y[r * out + o] = (b ? b[o] : 0) + dot(x + r * in, w + (d->gpt2 ? o : o * in), d->gpt2 ? out : 1, in);
    return y;
}

static void norm_row(const naive_decoder *d, bool centred, const double *w, const double *b, int width, double *x)
{
    double mean = 0, square = 0;
    for (int i = 0; i < width && centred; i++)
        mean += x[i] / width;
    for (int i = 0; i < width; i++)
        square += (x[i] - mean) * (x[i] - mean) / width;
    for (int i = 0; i < width; i++)
        x[i] = (x[i] - mean) / sqrt(square + d->eps) * w[i] + (b ? b[i] : 0);
}

static double *normed(const naive_decoder *d, const double *w, const double *b, int rows, const double *x)
{
    double *y = zeros(rows * d->hidden);
    memcpy(y, x, (size_t)(rows * d->hidden) * sizeof *y);
    for (int r = 0; r < rows; r++)
        norm_row(d, d->gpt2, w, b, d->hidden, y + r * d->hidden);
    return y;
}

static void add(int count, double *x, double *branch)
{
    for (int i = 0; i < count; i++)
        x[i] += branch[i];
    free(branch);
}

/* ---- attention ---- */

/* Rotates pairs (i, i + D/2) of a head of width D by position / 10000^(2i/D), in radians. */
static void turn(const naive_decoder *d, int position, double *head)
{
    const int half = d->head_dim / 2;
    for (int i = 0; i < half; i++) {
        const double angle = position * pow(10000, -2.0 * i / d->head_dim), a = head[i], b = head[half + i];
        head[i] = a * cos(angle) - b * sin(angle);
        head[half + i] = b * cos(angle) + a * sin(angle);
    }
}

typedef struct attention {
    const naive_decoder *d;
    const naive_layer *l;
    int index, length, heads, k_heads, v_heads;
    double *q, *k, *v; /* [length, heads, head_dim] */
} attention;

/* Copies `count` columns, beginning at `first`, to a new array. */
static double *columns(const double *x, int rows, int stride, int first, int count)
{
    double *y = zeros(rows * count);
    for (int r = 0; r < rows; r++)
        memcpy(y + r * count, x + r * stride + first, (size_t)count * sizeof *y);
    return y;
}

static void project(attention *a, const double *x)
{
    const naive_decoder *d = a->d;
    const int D = d->head_dim, E = d->hidden, L = a->length, q = a->heads * D, k = a->k_heads * D, v = a->v_heads * D;
    if (!d->gpt2) {
        a->q = linear(d, a->index, "self_attn.q_proj", L, E, q, x);
        a->k = linear(d, a->index, "self_attn.k_proj", L, E, k, x);
        a->v = linear(d, a->index, "self_attn.v_proj", L, E, v, x);
        return;
    }
    double *all = linear(d, a->index, "attn.c_attn", L, E, q + k + v, x);
    a->q = columns(all, L, q + k + v, 0, q);
    a->k = columns(all, L, q + k + v, q, k);
    a->v = columns(all, L, q + k + v, q + k, v);
    free(all);
}

/* Applies RMSNorm and rotary position embeddings to each head of x, if the layer has them. */
static void prepare(const attention *a, const char *norm, int heads, double *x)
{
    const naive_decoder *d = a->d;
    const bool turns = a->l->turning == TURN || (a->l->turning == TURN_BY_FAMILY && !d->gpt2);
    for (int n = 0; n < a->length * heads; n++) {
        double *head = x + n * d->head_dim;
        if (a->l->normed) norm_row(d, false, part(d, a->index, norm, ".weight"), NULL, d->head_dim, head);
        if (turns) turn(d, n / heads, head);
    }
}

/* Returns the score of row i and key j. */
static double score(const attention *a, int head, int i, int j)
{
    const int D = a->d->head_dim;
    const double *q = a->q + (i * a->heads + head) * D;
    const double *k = a->k + (j * a->k_heads + head / (a->heads / a->k_heads)) * D;
    const int number = a->l->heads ? a->l->number[head] : head;
    double sum = dot(q, k, 1, D) * (a->l->scale > 0 ? a->l->scale : 1 / sqrt(D));
    if (a->l->softcap > 0) sum = a->l->softcap * tanh(sum / a->l->softcap);
    return a->l->alibi ? sum - pow(2, -8.0 * (number + 1) / a->d->heads) * (i - j) : sum;
}

/* Computes p[j], the attention weights of row i of a head. */
static void row_of(const attention *a, int head, int i, double *p)
{
    const int first = a->l->window > 0 && i >= a->l->window ? i - a->l->window + 1 : 0;
    double max = -INFINITY, sum = 0;
    for (int j = 0; j < first; j++)
        p[j] = 0;
    for (int j = first; j <= i; j++)
        max = fmax(max, p[j] = score(a, head, i, j));
    for (int j = first; j <= i; j++)
        sum += p[j] = exp(p[j] - max);
    for (int j = first; j <= i; j++)
        p[j] /= sum;
}

static double *attend(const naive_decoder *d, int layer, int L, const double *x)
{
    const naive_layer *l = &d->layer[layer];
    const int heads = l->heads ? l->heads : d->heads, D = d->head_dim;
    attention a = {
        d,    l,    layer, L, heads, l->k_heads ? l->k_heads : d->kv_heads, l->v_heads ? l->v_heads : d->kv_heads,
        NULL, NULL, NULL};
    double *p = zeros(L), *context = zeros(L * heads * D);
    project(&a, x);
    prepare(&a, d->gpt2 ? "attn.q_norm" : "self_attn.q_norm", heads, a.q);
    prepare(&a, d->gpt2 ? "attn.k_norm" : "self_attn.k_norm", a.k_heads, a.k);
    for (int n = 0; n < L * heads; n++) {
        const int i = n / heads, h = n % heads;
        row_of(&a, h, i, p);
        for (int j = 0; j <= i; j++)
            for (int c = 0; c < D; c++)
                context[n * D + c] += p[j] * a.v[(j * a.v_heads + h / (heads / a.v_heads)) * D + c];
    }
    double *y = linear(d, layer, d->gpt2 ? "attn.c_proj" : "self_attn.o_proj", L, heads * D, d->hidden, context);
    free(p), free(context), free(a.q), free(a.k), free(a.v);
    return y;
}

/* ---- feed-forward network ---- */

/* Returns the width of the feed-forward network of a layer, which is a dimension of its weight. */
static int width_of(const naive_decoder *d, int layer)
{
    const double *w = part(d, layer, d->gpt2 ? "mlp.c_fc" : "mlp.up_proj", ".weight");
    for (int64_t n = 0; n < d->count; n++)
        if (d->weights[n].data == w && w) return (int)d->weights[n].shape[d->gpt2 ? 1 : 0];
    fail_msg("the checkpoint must have a feed-forward network in layer %d", layer);
    return 0;
}

static double *feed(const naive_decoder *d, int layer, int L, const double *x)
{
    const int E = d->hidden, I = width_of(d, layer);
    double *up = linear(d, layer, d->gpt2 ? "mlp.c_fc" : "mlp.up_proj", L, E, I, x);
    double *gate = d->gpt2 ? NULL : linear(d, layer, "mlp.gate_proj", L, E, I, x);
    for (int i = 0; i < L * I; i++)
        if (d->gpt2)
            up[i] *= 0.5 * (1 + tanh(sqrt(2 / acos(-1)) * (up[i] + 0.044715 * up[i] * up[i] * up[i])));
        else
            up[i] *= gate[i] / (1 + exp(-gate[i]));
    double *y = linear(d, layer, d->gpt2 ? "mlp.c_proj" : "mlp.down_proj", L, I, E, up);
    free(up), free(gate);
    return y;
}

/* ---- complete decoder ---- */

static double *embed(const naive_decoder *d, const int32_t *ids, int L)
{
    const double *words = find(d, d->gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight");
    const double *positions = find(d, "transformer.wpe.weight");
    double *x = zeros(L * d->hidden);
    for (int n = 0; n < L * d->hidden; n++)
        x[n] = words[ids[n / d->hidden] * d->hidden + n % d->hidden] + (d->gpt2 ? positions[n] : 0);
    return x;
}

static void run_layer(const naive_decoder *d, int layer, int L, double *x)
{
    const char *first = d->gpt2 ? "ln_1" : "input_layernorm", *second = d->gpt2 ? "ln_2" : "post_attention_layernorm";
    double *in = normed(d, part(d, layer, first, ".weight"), part(d, layer, first, ".bias"), L, x);
    add(L * d->hidden, x, attend(d, layer, L, in));
    free(in);
    if (d->layer[layer].alone) return;
    in = normed(d, part(d, layer, second, ".weight"), part(d, layer, second, ".bias"), L, x);
    add(L * d->hidden, x, feed(d, layer, L, in));
    free(in);
}

void naive_logits(const naive_decoder *d, const int32_t *ids, int L, double *logits)
{
    double *x = embed(d, ids, L);
    for (int layer = 0; layer < d->layers; layer++)
        run_layer(d, layer, L, x);
    double *last = normed(d, find(d, d->gpt2 ? "transformer.ln_f.weight" : "model.norm.weight"),
                          find(d, "transformer.ln_f.bias"), L, x);
    const double *head = find(d, d->gpt2 ? "transformer.wte.weight" : "lm_head.weight");
    for (int n = 0; n < L * d->vocab; n++)
        logits[n] = dot(last + n / d->vocab * d->hidden, head + n % d->vocab * d->hidden, 1, d->hidden);
    free(x), free(last);
}

double naive_loss(const naive_decoder *d, const int32_t *ids, int batch, int L)
{
    double *logits = zeros(L * d->vocab), sum = 0;
    for (int b = 0; b < batch; b++) {
        naive_logits(d, ids + b * L, L, logits);
        for (int i = 0; i + 1 < L; i++) {
            const double *row = logits + i * d->vocab;
            double max = row[0], total = 0;
            for (int v = 1; v < d->vocab; v++)
                max = fmax(max, row[v]);
            for (int v = 0; v < d->vocab; v++)
                total += exp(row[v] - max);
            sum += max + log(total) - row[ids[b * L + i + 1]];
        }
    }
    free(logits);
    return sum / (batch * (L - 1));
}
