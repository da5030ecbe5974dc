/* whole_ref.c - implements whole_ref.h. Uses plain loops. */
#include "support/reference/whole_ref.h"

#include "mha/layer.h"
#include "support/check.h"
#include "support/reference/layer_ref.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 1 << 18 };

/* ---- weights ---- */

int64_t whole_elements(const mha_named_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->shape[i];
    return n;
}

whole_model whole_open(const mha_model *model, const whole_config *config, const mha_named_tensor *list, int64_t count)
{
    whole_model w = {.info = mha_model_describe(model), .config = *config, .list = list, .count = count};
    w.value = calloc((size_t)count, sizeof *w.value);
    w.room = calloc(ROOM, sizeof *w.room);
    for (int64_t n = 0; n < count; n++)
        w.value[n] = to_doubles(list[n].data, whole_elements(&list[n]));
    return w;
}

void whole_free(whole_model *w)
{
    for (int64_t n = 0; n < w->count; n++)
        free(w->value[n]);
    free(w->value);
    free(w->room);
}

static bool is_family(const whole_model *w, const char *name)
{
    return strcmp(w->info->family, name) == 0;
}

/* A matrix, an embedding table or a norm; weight is NULL if the model lacks the tensor. */
typedef struct part {
    const double *weight, *bias;
    int64_t rows, columns;
} part;

static const double *find(const whole_model *w, const char *name, int64_t *rows, int64_t *columns)
{
    for (int64_t n = 0; n < w->count; n++) {
        if (strcmp(w->list[n].name, name) != 0) continue;
        *rows = w->list[n].shape[0];
        *columns = w->list[n].rank > 1 ? w->list[n].shape[1] : 1;
        return w->value[n];
    }
    return NULL;
}

/* Returns the tensor `name` of a layer; layer -1: a tensor outside the layers. The prefix of the family is prepended to
 * the name unless it begins with '/'. */
static part part_of(const whole_model *w, int64_t layer, const char *name)
{
    const bool gpt2 = is_family(w, "gpt2"), bert = is_family(w, "bert");
    const char *prefix = gpt2 ? "transformer." : bert ? "bert." : "model.";
    const char *layers = gpt2 ? "h." : bert ? "encoder.layer." : "layers.";
    char base[96], full[128];
    int64_t rows, columns;
    part p = {0};
    if (layer < 0)
        snprintf(base, sizeof base, "%s%s", *name == '/' ? "" : prefix, name + (*name == '/'));
    else
        snprintf(base, sizeof base, "%s%s%lld.%s", prefix, layers, (long long)layer, name);
    snprintf(full, sizeof full, "%s.bias", base);
    p.bias = find(w, full, &rows, &columns);
    snprintf(full, sizeof full, "%s.weight", base);
    p.weight = find(w, full, &p.rows, &p.columns);
    return p;
}

/* ---- vector and matrix operations ---- */

/* The state of one forward pass; its temporary memory is released after each layer. */
typedef struct run {
    const whole_model *w;
    const whole_input *in;
    int64_t used;
} run;

static double *take(run *r, int64_t count)
{
    double *x = r->w->room + r->used;
    r->used += count;
    assert_true(r->used <= ROOM);
    return x;
}

/* Computes y = x W^T + b and returns the width of y. With `conv`, the stored matrix is W^T, as in GPT-2. */
static int64_t linear(const part *p, bool conv, int64_t rows, const double *x, double *y)
{
    const int64_t in = conv ? p->rows : p->columns, out = conv ? p->columns : p->rows;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double sum = p->bias ? p->bias[o] : 0;
            for (int64_t i = 0; i < in; i++)
                sum += x[r * in + i] * p->weight[conv ? i * out + o : o * in + i];
            y[r * out + o] = sum;
        }
    return out;
}

/* Applies LayerNorm if the norm has a bias, otherwise RMSNorm; Gemma adds 1 to its weight. y may be x. */
static void norm(const whole_model *w, const part *p, int64_t rows, const double *x, double *y)
{
    const int64_t n = p->rows;
    const double one = is_family(w, "gemma2") ? 1 : 0;
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        double mean = 0, square = 0;
        for (int64_t i = 0; i < n && p->bias; i++)
            mean += x[i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            square += (x[i] - mean) * (x[i] - mean) / (double)n;
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) / sqrt(square + w->config.eps) * (one + p->weight[i]) + (p->bias ? p->bias[i] : 0);
    }
}

/* Rotates pairs (i, i + D / 2) of each head by position times theta^(-2 i / D). */
static void rotate(const whole_model *w, int64_t rows, int64_t heads, double *x)
{
    const int64_t D = w->info->head_dim, half = D / 2;
    for (int64_t n = 0; n < rows * heads; n++)
        for (int64_t i = 0; i < half; i++) {
            double *a = x + n * D + i, *b = a + half;
            const double angle = (double)(n / heads) * pow(w->config.theta, -2 * (double)i / (double)D);
            const double turned = *a * cos(angle) - *b * sin(angle);
            *b = *b * cos(angle) + *a * sin(angle);
            *a = turned;
        }
}

static bool sees(const run *r, int64_t layer, int64_t i, int64_t j)
{
    const int64_t window = layer % 2 == 0 ? r->w->config.window : 0;
    return r->in->mask[j] && !(r->w->info->causal && j > i) && !(window && i - j >= window);
}

/* Computes p[j], the attention weights of row i for one head. */
static void weights_of(const run *r, int64_t layer, int64_t i, const double *q, const double *k, int64_t stride,
                       double *p)
{
    const whole_config *c = &r->w->config;
    const int64_t D = r->w->info->head_dim;
    double sum = 0;
    for (int64_t j = 0; j < r->in->length; j++) {
        double score = 0;
        for (int64_t d = 0; d < D; d++)
            score += q[d] * k[j * stride + d];
        score /= sqrt(c->query_scalar != 0 ? c->query_scalar : (double)D);
        if (c->attn_cap != 0) score = c->attn_cap * tanh(score / c->attn_cap);
        sum += p[j] = sees(r, layer, i, j) ? exp(score) : 0;
    }
    for (int64_t j = 0; sum > 0 && j < r->in->length; j++)
        p[j] /= sum;
}

/* Computes the attention output of all rows and heads. The stride between rows is q_stride for q and `stride` for k and
 * v, in elements. */
static void attend(run *r, int64_t layer, int64_t heads, int64_t kv_heads, const double *q, int64_t q_stride,
                   const double *k, const double *v, int64_t stride, double *context)
{
    const int64_t L = r->in->length, D = r->w->info->head_dim;
    double *p = take(r, L);
    for (int64_t n = 0; n < heads * L; n++) {
        const int64_t h = n / L, i = n % L, at = h / (heads / kv_heads) * D;
        double *c = context + (i * heads + h) * D;
        weights_of(r, layer, i, q + i * q_stride + h * D, k + at, stride, p);
        for (int64_t d = 0; d < D; d++) {
            c[d] = 0;
            for (int64_t j = 0; j < L; j++)
                c[d] += p[j] * v[at + j * stride + d];
            c[d] *= r->in->gates[layer * r->w->info->heads + h];
        }
    }
}

/* ---- layers ---- */

/* Returns the output of the attention block for the normalized input x. */
static double *attention(run *r, int64_t layer, const double *x)
{
    const whole_model *w = r->w;
    const int64_t L = r->in->length, E = w->info->hidden, D = w->info->head_dim;
    const bool gpt2 = is_family(w, "gpt2"), bert = is_family(w, "bert");
    const part qkv = part_of(w, layer, "attn.c_attn");
    const part q = part_of(w, layer, bert ? "attention.self.query" : "self_attn.q_proj");
    const part k = part_of(w, layer, bert ? "attention.self.key" : "self_attn.k_proj");
    const part v = part_of(w, layer, bert ? "attention.self.value" : "self_attn.v_proj");
    const part o = part_of(w, layer, gpt2 ? "attn.c_proj" : bert ? "attention.output.dense" : "self_attn.o_proj");
    const part q_norm = part_of(w, layer, "self_attn.q_norm"), k_norm = part_of(w, layer, "self_attn.k_norm");
    const int64_t heads = (gpt2 ? qkv.columns / 3 : q.rows) / D, kv = (gpt2 ? qkv.columns / 3 : k.rows) / D;
    double *all = take(r, L * (heads + 2 * kv) * D), *context = take(r, L * heads * D), *y = take(r, L * E);
    double *keys = all + L * heads * D, *values = keys + L * kv * D;
    if (gpt2) {
        const int64_t width = linear(&qkv, true, L, x, all), own = heads * D;
        attend(r, layer, heads, kv, all, width, all + own, all + 2 * own, width, context);
    } else {
        linear(&q, false, L, x, all), linear(&k, false, L, x, keys), linear(&v, false, L, x, values);
        if (q_norm.weight) norm(w, &q_norm, L * heads, all, all), norm(w, &k_norm, L * kv, keys, keys);
        if (!bert) rotate(w, L, heads, all), rotate(w, L, kv, keys);
        attend(r, layer, heads, kv, all, heads * D, keys, values, kv * D, context);
    }
    linear(&o, gpt2, L, context, y);
    return y;
}

/* Returns the output of the feed-forward block; NULL if the layer has none. */
static double *feed_forward(run *r, int64_t layer, const double *x)
{
    const whole_model *w = r->w;
    const int64_t L = r->in->length;
    const bool gpt2 = is_family(w, "gpt2"), bert = is_family(w, "bert"), gated = !gpt2 && !bert;
    const part up = part_of(w, layer, gpt2 ? "mlp.c_fc" : bert ? "intermediate.dense" : "mlp.up_proj");
    const part down = part_of(w, layer, gpt2 ? "mlp.c_proj" : bert ? "output.dense" : "mlp.down_proj");
    const part gate = part_of(w, layer, "mlp.gate_proj");
    const mha_activation act = bert ? MHA_ACT_GELU : gpt2 || is_family(w, "gemma2") ? MHA_ACT_GELU_TANH : MHA_ACT_SILU;
    if (!up.weight) return NULL;
    const int64_t inner = gpt2 ? up.columns : up.rows;
    double *wide = take(r, L * inner), *gates = take(r, L * inner), *y = take(r, L * w->info->hidden);
    linear(&up, gpt2, L, x, wide);
    if (gated) linear(&gate, false, L, x, gates);
    ref_activation(act, gated ? gates : wide, L * inner);
    for (int64_t i = 0; gated && i < L * inner; i++)
        wide[i] *= gates[i];
    linear(&down, gpt2, L, wide, y);
    return y;
}

static void add(double *x, const double *y, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] += y[i];
}

/* Computes x += after(branch(before(x))), where `before` and `after` are norms; for BERT, x = after(x + branch(x)). */
static void residual(run *r, int64_t layer, double *(*branch)(run *r, int64_t layer, const double *x),
                     const char *before, const char *after, double *x)
{
    const whole_model *w = r->w;
    const int64_t L = r->in->length, count = L * w->info->hidden;
    const part pre = part_of(w, layer, before), post = part_of(w, layer, after);
    double *input = take(r, count);
    memcpy(input, x, (size_t)count * sizeof *x);
    if (pre.weight) norm(w, &pre, L, x, input);
    double *y = branch(r, layer, input);
    if (!y) return;
    if (post.weight && pre.weight) norm(w, &post, L, y, y);
    add(x, y, count);
    if (post.weight && !pre.weight) norm(w, &post, L, x, x);
}

static void run_layer(run *r, int64_t layer, double *x)
{
    const whole_model *w = r->w;
    const int64_t mark = r->used;
    if (is_family(w, "gpt2")) {
        residual(r, layer, attention, "ln_1", "", x);
        residual(r, layer, feed_forward, "ln_2", "", x);
    } else if (is_family(w, "bert")) {
        residual(r, layer, attention, "", "attention.output.LayerNorm", x);
        residual(r, layer, feed_forward, "", "output.LayerNorm", x);
    } else if (is_family(w, "gemma2")) {
        residual(r, layer, attention, "input_layernorm", "post_attention_layernorm", x);
        residual(r, layer, feed_forward, "pre_feedforward_layernorm", "post_feedforward_layernorm", x);
    } else {
        residual(r, layer, attention, "input_layernorm", "", x);
        residual(r, layer, feed_forward, "post_attention_layernorm", "", x);
    }
    r->used = mark;
}

/* ---- embeddings, logits and loss ---- */

static part words_of(const whole_model *w)
{
    return part_of(w, -1,
                   is_family(w, "gpt2")   ? "wte"
                   : is_family(w, "bert") ? "embeddings.word_embeddings"
                                          : "embed_tokens");
}

static void embed(run *r, double *x)
{
    const whole_model *w = r->w;
    const int64_t E = w->info->hidden;
    const part words = words_of(w), types = part_of(w, -1, "embeddings.token_type_embeddings");
    const part places = part_of(w, -1, is_family(w, "gpt2") ? "wpe" : "embeddings.position_embeddings");
    const part after = part_of(w, -1, "embeddings.LayerNorm");
    const double scale = is_family(w, "gemma2") ? sqrt((double)E) : 1;
    for (int64_t i = 0; i < r->in->length * E; i++) {
        const int64_t row = i / E, type = r->in->types ? r->in->types[row] : 0;
        x[i] = scale * (words.weight[r->in->ids[row] * E + i % E] + r->in->shift[i]);
        if (places.weight) x[i] += places.weight[row * E + i % E];
        if (types.weight) x[i] += types.weight[type * E + i % E];
    }
    if (after.weight) norm(w, &after, r->in->length, x, x);
}

/* Computes the logits of all rows from the last hidden states. */
static double *logits_of(run *r, double *x)
{
    const whole_model *w = r->w;
    const int64_t L = r->in->length, vocab = w->info->vocab;
    const double cap = w->config.logit_cap;
    const part dense = part_of(w, -1, "/cls.predictions.transform.dense");
    const part after = part_of(w, -1, "/cls.predictions.transform.LayerNorm");
    const part final = part_of(w, -1, is_family(w, "gpt2") ? "ln_f" : "norm");
    part head = part_of(w, -1, "/lm_head");
    double *y = take(r, L * w->info->hidden), *logits = take(r, L * vocab);
    if (!head.weight) head = words_of(w);
    if (dense.weight) {
        head.bias = part_of(w, -1, "/cls.predictions.decoder").bias;
        if (!head.bias) head.bias = part_of(w, -1, "/cls.predictions").bias;
        linear(&dense, false, L, x, y);
        ref_activation(MHA_ACT_GELU, y, L * w->info->hidden);
    }
    norm(w, dense.weight ? &after : &final, L, dense.weight ? y : x, y);
    linear(&head, false, L, y, logits);
    for (int64_t i = 0; cap != 0 && i < L * vocab; i++)
        logits[i] = cap * tanh(logits[i] / cap);
    return logits;
}

static double cross_entropy(const double *logits, int64_t vocab, int32_t label)
{
    double sum = 0;
    for (int64_t c = 0; c < vocab; c++)
        sum += exp(logits[c] - logits[label]);
    return log(sum);
}

double whole_loss(const whole_model *w, const whole_input *in, int64_t *counted)
{
    run r = {.w = w, .in = in};
    const int64_t L = in->length, next = w->info->causal ? 1 : 0;
    double *x = take(&r, L * w->info->hidden), loss = 0;
    embed(&r, x);
    for (int64_t layer = 0; layer < w->info->layers; layer++)
        run_layer(&r, layer, x);
    const double *logits = logits_of(&r, x);
    for (int64_t i = 0; i + next < L; i++) {
        const int32_t label = in->labels[i + next];
        if (!in->mask[i] || label == MHA_IGNORE) continue;
        loss += cross_entropy(logits + i * w->info->vocab, w->info->vocab, label);
        (*counted)++;
    }
    return loss;
}
