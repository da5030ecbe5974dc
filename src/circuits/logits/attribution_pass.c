/* attribution_pass.c - computes the parts of a logit during a forward pass.
 *
 * A part is <w, c> / sigma, where w = C (gamma u). sigma depends on the whole residual stream, so the callbacks of the
 * forward pass compute <w, c> for each layer, and the sums are divided at the end. */
#include "circuits/logits/attribution_pass.h"

#include "base/error.h"
#include "base/size.h"
#include "circuits/logits/vocabulary_rows.h"
#include "heads/weights/head_weights.h"
#include <math.h>
#include <string.h>

enum { N = MHA_LOGIT_TARGETS };

/* ---- directions ---- */

static double dot(int64_t n, const double *a, const double *b)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static mha_status add_row(const mha__attribution_job *j, int32_t token, double factor, double *out, mha_error *err)
{
    const int64_t E = j->m->config.hidden;
    const float *row;
    MHA__TRY(mha__vocabulary_rows(mha__output_table(j->m), E, token, 1, j->rows, &row, err));
    for (int64_t i = 0; i < E; i++)
        out[i] += factor * (double)row[i];
    return MHA_OK;
}

/* Subtracts the mean row of the output matrix. */
static mha_status subtract_mean(const mha__attribution_job *j, double *out, mha_error *err)
{
    const int64_t E = j->m->config.hidden, vocab = j->m->config.vocab;
    double *sum = j->written; /* not used before the pass */
    const float *rows;
    memset(sum, 0, (size_t)E * sizeof *sum);
    for (int64_t first = 0; first < vocab; first += MHA__ATTRIBUTION_ROWS) {
        const int64_t count = mha__min64(MHA__ATTRIBUTION_ROWS, vocab - first);
        MHA__TRY(mha__vocabulary_rows(mha__output_table(j->m), E, first, count, j->rows, &rows, err));
        for (int64_t i = 0; i < count * E; i++)
            sum[i % E] += (double)rows[i];
    }
    for (int64_t i = 0; i < E; i++)
        out[i] -= sum[i] / (double)vocab;
    return MHA_OK;
}

/* Sets out = C (weight x), the gradient of a norm with a fixed scale. */
static void through_norm(const mha_norm *norm, int64_t width, const double *x, double *out)
{
    double sum = 0;
    for (int64_t i = 0; i < width; i++) {
        out[i] = norm->weight ? (double)norm->weight[i] * x[i] : x[i];
        sum += out[i];
    }
    for (int64_t i = 0; norm->weight && norm->kind == MHA_NORM_LAYER && i < width; i++)
        out[i] -= sum / (double)width;
}

static mha_status find_directions(mha__attribution_job *j, mha_error *err)
{
    const int64_t E = j->m->config.hidden;
    const double scale = (double)j->m->config.logit_scale;
    memset(j->u, 0, (size_t)(N * E) * sizeof *j->u);
    for (int n = 0; n < N; n++)
        MHA__TRY(add_row(j, j->o.answer, 1, j->u + n * E, err));
    if (j->o.wrong >= 0) MHA__TRY(add_row(j, j->o.wrong, -1, j->u + MHA_LOGIT_DIFFERENCE * E, err));
    MHA__TRY(subtract_mean(j, j->u + MHA_LOGIT_CENTRED * E, err));
    for (int64_t i = 0; i < N * E; i++)
        j->u[i] *= scale;
    for (int n = 0; n < N; n++)
        through_norm(&j->m->final_norm, E, j->u + n * E, j->w + n * E);
    return MHA_OK;
}

/* ---- one layer ---- */

static int keep_attention(void *user, int64_t layer, int64_t heads, const float *probs)
{
    const mha__attribution_job *j = user;
    (void)layer;
    memcpy(j->probs, probs, (size_t)(heads * j->to->shown.tokens) * sizeof *probs);
    return 0;
}

/* Returns the scale of a norm of x: sqrt(mean((C x)^2) + eps); writes C x to x. */
static double scale_of(const mha_norm *norm, int64_t width, double *x)
{
    double mean = 0, squares = 0;
    for (int64_t i = 0; norm->kind == MHA_NORM_LAYER && i < width; i++)
        mean += x[i] / (double)width;
    for (int64_t i = 0; i < width; i++) {
        x[i] -= mean;
        squares += x[i] * x[i];
    }
    return sqrt(squares / (double)width + norm->eps);
}

/* Sets j->inner to the directions before the norm that follows the attention, and j->written to what the layer adds to
 * the residual stream. Adds the parts of the norm's bias. */
static void pass_norm(const mha__attribution_job *j, int64_t layer, const mha_norm *norm, const float *out)
{
    const int64_t E = j->m->config.hidden, L = j->to->shown.layers;
    const double factor = j->m->config.residual_multiplier ? j->m->config.residual_multiplier : 1;
    for (int64_t i = 0; i < E; i++)
        j->written[i] = (double)out[i];
    const double scale = norm->weight ? scale_of(norm, E, j->written) : 1;
    for (int64_t i = 0; i < E; i++) {
        if (norm->weight) j->written[i] *= (double)norm->weight[i] / scale;
        if (norm->weight && norm->bias) j->written[i] += (double)norm->bias[i];
        j->written[i] *= factor;
    }
    for (int n = 0; n < N; n++) {
        through_norm(norm, E, j->w + n * E, j->inner + n * E);
        for (int64_t i = 0; i < E; i++) {
            j->inner[n * E + i] *= factor / scale;
            if (norm->weight && norm->bias)
                j->to->attn_bias[n * L + layer] += factor * j->w[n * E + i] * (double)norm->bias[i];
        }
    }
}

/* Sets `maps` [N, D] to the directions before the output projection of a head. */
static void pass_projection(const mha__attribution_job *j, const mha__head_part *p, const float *weight, double *maps)
{
    const int64_t E = j->m->config.hidden, D = p->columns;
    memset(maps, 0, (size_t)(N * D) * sizeof *maps);
    for (int n = 0; n < N; n++)
        for (int64_t e = 0; e < E; e++)
            for (int64_t d = 0; d < D; d++)
                maps[n * D + d] += j->inner[n * E + e] * (double)weight[p->first + e * p->row + d * p->column];
}

static void read_head(const mha__attribution_job *j, const mha_model_activations *a, int64_t head, const double *maps)
{
    const int64_t D = a->head_dim, T = j->to->shown.tokens, kv = head / (a->heads / a->kv_heads);
    const float *z = a->context + (j->o.position * a->heads + head) * D, *prob = j->probs + head * T;
    for (int n = 0; n < N; n++) {
        const int64_t at = (n * j->to->shown.layers + a->layer) * j->to->shown.head_count + head;
        for (int64_t d = 0; d < D; d++)
            j->to->heads[at] += maps[n * D + d] * (double)z[d];
        for (int64_t t = 0; t < T; t++) {
            const float *v = a->v + t * a->stride + kv * D;
            double sum = 0;
            for (int64_t d = 0; d < D && prob[t] != 0; d++) /* rows of masked keys may not be finite */
                sum += maps[n * D + d] * (double)v[d];
            j->to->sources[at * T + t] = (double)prob[t] * sum;
        }
    }
}

static mha_status read_layer(mha__attribution_job *j, const mha_model_activations *a)
{
    const int64_t E = j->m->config.hidden;
    mha_matrix part = {0}, out = {0};
    MHA__TRY(mha__weights_part(&j->weights, MHA__ATTN_OUT_NORM, a->layer, &part, j->err));
    MHA__TRY(mha__weights_part(&j->weights, MHA__ATTN_OUT, a->layer, &out, j->err));
    const mha_norm norm = mha__model_norm(&j->m->config, MHA__ATTN_OUT_NORM, &part);
    pass_norm(j, a->layer, &norm, a->out + j->o.position * E);
    for (int n = 0; n < N; n++)
        for (int64_t e = 0; out.bias && e < E; e++)
            j->to->attn_bias[n * j->to->shown.layers + a->layer] += j->inner[n * E + e] * (double)out.bias[e];
    for (int64_t h = 0; h < a->heads; h++) {
        const mha__head_part where = mha__head_part_of(j->m, a->layer, MHA__OF_O, h);
        pass_projection(j, &where, out.weight, j->maps);
        read_head(j, a, h, j->maps);
    }
    return MHA_OK;
}

static int take_activations(void *user, const mha_model_activations *a)
{
    mha__attribution_job *j = user;
    j->status = read_layer(j, a);
    mha__weights_release(&j->weights);
    return j->status != MHA_OK;
}

/* Computes the feed-forward part of a layer: what the layer added to the residual stream after its attention. */
static int take_hidden(void *user, int64_t entry, const float *x)
{
    const mha__attribution_job *j = user;
    const int64_t E = j->m->config.hidden, L = j->to->shown.layers;
    const float *row = x + j->o.position * E;
    for (int64_t i = 0; i < E; i++) {
        const double now = (double)row[i], added = entry ? now - j->last[i] - j->written[i] : 0;
        for (int n = 0; n < N && entry && !j->m->config.attention_only[entry - 1]; n++)
            j->to->mlps[n * L + entry - 1] += j->w[n * E + i] * added;
        if (!entry) j->first[i] = now;
        j->last[i] = now;
    }
    return 0;
}

/* ---- the whole ---- */

/* Computes the logits of the position from its residual stream, before a cap. */
static mha_status find_total(mha__attribution_job *j, mha_error *err)
{
    const mha_model *m = j->m;
    const int64_t E = m->config.hidden, vocab = m->config.vocab;
    const double scale = (double)m->config.logit_scale;
    double *total = j->to->shown.total, mean = 0;
    for (int64_t i = 0; i < E; i++)
        j->rows[i] = (float)j->last[i];
    if (m->final_norm.weight) MHA__TRY(mha_norm_forward(m->ctx, &m->final_norm, 1, E, j->rows, NULL, j->rows, err));
    MHA__TRY(mha_linear_forward(m->lm_head, j->rows, 1, j->logits, err));
    for (int64_t v = 0; v < vocab; v++)
        mean += (double)j->logits[v] / (double)vocab;
    const double answer = (double)j->logits[j->o.answer];
    total[MHA_LOGIT_ANSWER] = scale * answer;
    total[MHA_LOGIT_CENTRED] = scale * (answer - mean);
    total[MHA_LOGIT_DIFFERENCE] = j->o.wrong >= 0 ? scale * (answer - (double)j->logits[j->o.wrong]) : NAN;
    return MHA_OK;
}

/* Computes the parts of biases: of the final norm, and of the output matrix. */
static mha_status find_biases(mha__attribution_job *j, mha_error *err)
{
    const mha_model *m = j->m;
    const int64_t E = m->config.hidden, vocab = m->config.vocab;
    const double scale = (double)m->config.logit_scale;
    mha_logit_attribution *to = &j->to->shown;
    mha_matrix bias = {0};
    double mean = 0;
    for (int n = 0; n < N; n++)
        for (int64_t i = 0; m->final_norm.weight && m->final_norm.bias && i < E; i++)
            to->norm_bias[n] += j->u[n * E + i] * (double)m->final_norm.bias[i];
    MHA__TRY(mha__weights_part(&j->weights, m->lm_bias, -1, &bias, err));
    for (int64_t v = 0; bias.weight && v < vocab; v++)
        mean += (double)bias.weight[v] / (double)vocab;
    const double answer = bias.weight ? (double)bias.weight[j->o.answer] : 0;
    to->logit_bias[MHA_LOGIT_ANSWER] = scale * answer;
    to->logit_bias[MHA_LOGIT_CENTRED] = scale * (answer - mean);
    to->logit_bias[MHA_LOGIT_DIFFERENCE] =
        scale * (bias.weight && j->o.wrong >= 0 ? answer - (double)bias.weight[j->o.wrong] : 0);
    mha__weights_release(&j->weights);
    return MHA_OK;
}

/* Computes the parts of the embeddings, without the scale. */
static void find_embeddings(const mha__attribution_job *j)
{
    const mha_model *m = j->m;
    const int64_t E = m->config.hidden;
    const int64_t row = j->o.position + mha__first_position(m->config.family);
    const bool apart = m->positions.weight && !m->embed_norm.weight && !m->embed_map;
    for (int n = 0; n < N; n++) {
        const double whole = dot(E, j->w + n * E, j->first);
        double position = 0;
        for (int64_t i = 0; apart && i < E; i++)
            position += j->w[n * E + i] * (double)m->positions.weight[row * E + i];
        j->to->shown.pos_embed[n] = position;
        j->to->shown.embed[n] = whole - position;
    }
}

/* Divides all parts by the scale of the final norm, and compares their sum with the logit. */
static void finish(const mha__attribution_job *j)
{
    mha_logit_attribution *to = &j->to->shown;
    const int64_t L = to->layers, H = to->head_count, T = to->tokens;
    memcpy(j->written, j->last, (size_t)j->m->config.hidden * sizeof *j->last);
    to->scale = j->m->final_norm.weight ? scale_of(&j->m->final_norm, j->m->config.hidden, j->written) : 1;
    for (int n = 0; n < N; n++) {
        const double scale = n == MHA_LOGIT_DIFFERENCE && j->o.wrong < 0 ? NAN : to->scale;
        double sum = to->norm_bias[n] + to->logit_bias[n];
        sum += (to->embed[n] /= scale) + (to->pos_embed[n] /= scale);
        for (int64_t i = 0; i < L * H; i++)
            sum += j->to->heads[n * L * H + i] /= scale;
        for (int64_t i = 0; i < L * H * T; i++)
            j->to->sources[n * L * H * T + i] /= scale;
        for (int64_t i = 0; i < L; i++)
            sum += (j->to->attn_bias[n * L + i] /= scale) + (j->to->mlps[n * L + i] /= scale);
        to->error = fmax(to->error, fabs(sum - to->total[n])); /* fmax ignores NAN */
    }
}

mha_status mha__attribution_run(mha__attribution_job *j, const int32_t *ids, mha_error *err)
{
    mha_model bare = *j->m; /* without the final norm, so that the last hidden state is that of the residual stream */
    bare.final_norm = (mha_norm){0};
    j->weights = j->m->outer;
    j->weights.converted = NULL;
    MHA__TRY(find_directions(j, err));
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = j->to->shown.tokens, .ids = ids};
    const mha_model_output out = {.size = sizeof out,
                                  .on_hidden = take_hidden,
                                  .on_attention = keep_attention,
                                  .on_activations = take_activations,
                                  .map_rows = &j->o.position,
                                  .map_row_count = 1,
                                  .user = j};
    const mha_status status = mha_model_forward(&bare, &in, &out, err);
    if (j->status != MHA_OK) return j->status;
    MHA__TRY(status);
    MHA__TRY(find_total(j, err));
    MHA__TRY(find_biases(j, err));
    find_embeddings(j);
    finish(j);
    return MHA_OK;
}
