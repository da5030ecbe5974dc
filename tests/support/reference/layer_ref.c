/* layer_ref.c - implements layer_ref.h. Uses plain loops. */
#include "support/reference/layer_ref.h"

#include <math.h>
#include <stdlib.h>

float *random_floats(uint64_t seed, uint64_t stream, int64_t count, double scale, double shift)
{
    float *x = malloc((size_t)count * sizeof *x);
    rng r = rng_make(seed, stream);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)(scale * rng_normal(&r) + shift);
    return x;
}

double *to_doubles(const float *a, int64_t count)
{
    double *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (double)a[i];
    return x;
}

double worst_error(const float *a, const double *b, int64_t count)
{
    double worst = 0;
    for (int64_t i = 0; i < count; i++) {
        const double error = fabs((double)a[i] - b[i]);
        if (!(error <= worst)) worst = error; /* the negated comparison keeps NaN */
    }
    return worst;
}

void ref_linear(const double *x, int64_t rows, int64_t in, const mha_matrix *m, double *y)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < m->out; o++) {
            double sum = m->bias ? (double)m->bias[o] : 0;
            for (int64_t k = 0; k < in; k++)
                sum += x[r * in + k] * (double)m->weight[m->transposed ? k * m->out + o : o * in + k];
            y[r * m->out + o] = sum;
        }
}

void ref_layer_norm(double *x, int64_t rows, int64_t width, const float *weight, const float *bias, double eps)
{
    for (int64_t r = 0; r < rows; r++, x += width) {
        double mean = 0, var = 0;
        for (int64_t i = 0; i < width; i++)
            mean += x[i] / (double)width;
        for (int64_t i = 0; i < width; i++)
            var += (x[i] - mean) * (x[i] - mean) / (double)width;
        for (int64_t i = 0; i < width; i++)
            x[i] = (x[i] - mean) / sqrt(var + eps) * (double)weight[i] + (double)bias[i];
    }
}

void ref_activation(mha_activation activation, double *x, int64_t count)
{
    const double root = 0.7978845608028654; /* sqrt(2 / pi) */
    for (int64_t i = 0; i < count; i++)
        switch (activation) {
        case MHA_ACT_GELU:
            x[i] *= 0.5 * erfc(-x[i] / sqrt(2.0));
            break;
        case MHA_ACT_GELU_TANH:
            x[i] *= 0.5 * (1 + tanh(root * (x[i] + 0.044715 * x[i] * x[i] * x[i])));
            break;
        case MHA_ACT_RELU:
            x[i] = x[i] < 0 ? 0 : x[i];
            break;
        case MHA_ACT_TANH:
            x[i] = tanh(x[i]);
            break;
        case MHA_ACT_SILU:
            x[i] /= 1 + exp(-x[i]);
            break;
        case MHA_ACT_QUICK_GELU:
            x[i] /= 1 + exp(-1.702 * x[i]);
            break;
        case MHA_ACT_SIGMOID:
            x[i] = 1 / (1 + exp(-x[i]));
            break;
        case MHA_ACT_SOFTPLUS:
            x[i] = log1p(exp(x[i]));
            break;
        default:
            break;
        }
}

static bool visible(const mha_attn_layer_options *o, const mha_layer_input *in, int64_t b, int64_t h, int64_t i,
                    int64_t j)
{
    const int64_t *stride = in->keep.stride;
    if (in->lengths && (i >= in->lengths[b] || j >= in->lengths[b])) return false;
    if (o->causal && j > i) return false;
    if (!in->keep.data) return true;
    return ((const uint8_t *)in->keep.data)[b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3]] != 0;
}

/* Computes p[j], the probabilities of query row i; all are 0 if every key is masked. */
static void row_of_probs(const mha_attn_layer_options *o, const mha_layer_input *in, int64_t b, int64_t h, int64_t i,
                         const double *q, const double *k, int64_t k_stride, int64_t D, double *p)
{
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < in->length; j++) {
        p[j] = -INFINITY;
        if (!visible(o, in, b, h, i, j)) continue;
        p[j] = 0;
        for (int64_t d = 0; d < D; d++)
            p[j] += q[d] * k[j * k_stride + d];
        p[j] *= o->scale != 0 ? o->scale : 1 / sqrt((double)D);
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j < in->length; j++)
        sum += p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - max);
    for (int64_t j = 0; sum > 0 && j < in->length; j++)
        p[j] /= sum;
}

void ref_attention(const mha_attn_layer_options *o, const mha_layer_input *input, const double *x, double *y,
                   double *probs)
{
    const int64_t L = input->length, rows = input->batch * L, H = o->heads, Hkv = o->kv_heads ? o->kv_heads : H;
    const int64_t D = o->head_dim ? o->head_dim : o->hidden / H;
    mha_matrix mq = o->q, mk = o->k, mv = o->v, mo = o->o;
    mq.out = H * D;
    mk.out = mv.out = Hkv * D;
    mo.out = o->hidden;
    double *q = calloc((size_t)(rows * H * D), sizeof *q), *k = calloc((size_t)(rows * Hkv * D), sizeof *k);
    double *v = calloc((size_t)(rows * Hkv * D), sizeof *v), *c = calloc((size_t)(rows * H * D), sizeof *c);
    double *p = calloc((size_t)L, sizeof *p);
    ref_linear(x, rows, o->hidden, &mq, q);
    ref_linear(x, rows, o->hidden, &mk, k);
    ref_linear(x, rows, o->hidden, &mv, v);
    for (int64_t n = 0; n < input->batch * H * L; n++) {
        const int64_t b = n / (H * L), h = n / L % H, i = n % L, g = h / (H / Hkv);
        const int64_t kv = (b * L * Hkv + g) * D;
        row_of_probs(o, input, b, h, i, q + ((b * L + i) * H + h) * D, k + kv, Hkv * D, D, p);
        for (int64_t j = 0; j < L; j++) {
            if (probs) probs[n * L + j] = p[j];
            for (int64_t d = 0; d < D; d++)
                c[((b * L + i) * H + h) * D + d] += p[j] * v[kv + j * Hkv * D + d];
        }
    }
    ref_linear(c, rows, H * D, &mo, y);
    free(q);
    free(k);
    free(v);
    free(c);
    free(p);
}

static void feed_forward(const mha_block_options *o, int64_t rows, const double *x, double *y)
{
    mha_matrix up = o->up, down = o->down;
    up.out = o->intermediate;
    down.out = o->attn.hidden;
    double *wide = calloc((size_t)(rows * o->intermediate), sizeof *wide);
    ref_linear(x, rows, o->attn.hidden, &up, wide);
    ref_activation(o->activation, wide, rows * o->intermediate);
    ref_linear(wide, rows, o->intermediate, &down, y);
    free(wide);
}

static void copy(double *to, const double *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = from[i];
}

static void norm_of(const mha_norm *norm, int64_t rows, int64_t E, double *x)
{
    if (norm->weight) ref_layer_norm(x, rows, E, norm->weight, norm->bias, norm->eps);
}

/* Computes x += residual_scale * branch. */
static void join(const mha_block_options *o, double *x, const double *branch, int64_t count)
{
    for (int64_t n = 0; n < count; n++)
        x[n] += (o->residual_scale != 0 ? o->residual_scale : 1) * branch[n];
}

void ref_block(const mha_block_options *o, const mha_layer_input *input, double *x, double *probs)
{
    const int64_t rows = input->batch * input->length, E = o->attn.hidden, count = rows * E;
    const mha_norm *feed = o->parallel && !o->mlp_norm.weight ? &o->attn_norm : &o->mlp_norm;
    double *in = calloc((size_t)count, sizeof *in), *branch = calloc((size_t)count, sizeof *branch);
    double *first = calloc((size_t)count, sizeof *first);
    copy(in, x, count);
    copy(first, x, count);
    if (o->pre_norm) norm_of(&o->attn_norm, rows, E, in);
    ref_attention(&o->attn, input, in, branch, probs);
    join(o, x, branch, count);
    if (!o->pre_norm) norm_of(&o->attn_norm, rows, E, x);
    copy(in, o->parallel ? first : x, count);
    if (o->pre_norm) norm_of(feed, rows, E, in);
    feed_forward(o, rows, in, branch);
    join(o, x, branch, count);
    if (!o->pre_norm) norm_of(&o->mlp_norm, rows, E, x);
    free(in);
    free(branch);
    free(first);
}

/* ---- random blocks ---- */

static mha_matrix random_matrix(uint64_t seed, uint64_t stream, int64_t in, int64_t out)
{
    return (mha_matrix){.weight = random_floats(seed, stream, in * out, 1 / sqrt((double)in), 0),
                        .bias = random_floats(seed, stream + 1, out, 0.1, 0)};
}

mha_block_options random_block(uint64_t seed, int64_t hidden, int64_t heads, int64_t kv_heads, int64_t head_dim,
                               int64_t intermediate)
{
    const int64_t D = head_dim ? head_dim : hidden / heads, kv = (kv_heads ? kv_heads : heads) * D;
    return (mha_block_options){
        .size = sizeof(mha_block_options),
        .attn = {.size = sizeof(mha_attn_layer_options),
                 .hidden = hidden,
                 .heads = heads,
                 .kv_heads = kv_heads,
                 .head_dim = head_dim,
                 .q = random_matrix(seed, 10, hidden, heads * D),
                 .k = random_matrix(seed, 20, hidden, kv),
                 .v = random_matrix(seed, 30, hidden, kv),
                 .o = random_matrix(seed, 40, heads * D, hidden)},
        .attn_norm = {random_floats(seed, 50, hidden, 0.1, 1), random_floats(seed, 51, hidden, 0.1, 0), 1e-5,
                      MHA_NORM_LAYER},
        .mlp_norm = {random_floats(seed, 52, hidden, 0.1, 1), random_floats(seed, 53, hidden, 0.1, 0), 1e-5,
                     MHA_NORM_LAYER},
        .intermediate = intermediate,
        .up = random_matrix(seed, 60, hidden, intermediate),
        .down = random_matrix(seed, 70, intermediate, hidden),
        .activation = MHA_ACT_GELU,
    };
}

void random_block_free(mha_block_options *o)
{
    const mha_matrix all[] = {o->attn.q, o->attn.k, o->attn.v, o->attn.o, o->up, o->down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free((void *)all[i].weight);
        free((void *)all[i].bias);
    }
    free((void *)o->attn_norm.weight);
    free((void *)o->attn_norm.bias);
    free((void *)o->mlp_norm.weight);
    free((void *)o->mlp_norm.bias);
}
