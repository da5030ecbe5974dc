/* head_effects.c - see head_effects.h. */
#include "logits/head_effects.h"

#include "output.h"
#include "session.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a pass predicts, and the request of the passes. */
typedef struct prediction_pass {
    const cli_session *session;
    const mha_model *model;
    const mha_model_info *info;
    const cli_sequence *sequence;
    const capture_request *request;
    int64_t at;
    int64_t width; /* vocab, or the hidden size of a model without logits */
    float *rows;   /* [tokens, width] output of the last pass */
} prediction_pass;

/* What a pass predicts, [width]: the logits after token `at`, or the mean hidden state. */
typedef struct prediction {
    float *logits;
    double *mean;
} prediction;

static int predict(const prediction_pass *p, const prediction *to)
{
    mha_error error = {0};
    const int64_t n = p->sequence->count;
    const bool last = p->info->logits && p->at == n - 1;
    const mha_model_output output = {.size = sizeof output,
                                     .last_logits = last ? p->rows : NULL,
                                     .logits = p->info->logits && !last ? p->rows : NULL,
                                     .last_hidden = p->info->logits ? NULL : p->rows};
    if (forward_pass(p->session, p->model, p->sequence->ids, n, p->request, &output, &error) != MHA_OK)
        return cli_refuse(p->session, &error);
    const float *row = p->info->logits && !last ? p->rows + p->at * p->width : p->rows;
    if (p->info->logits) memcpy(to->logits, row, (size_t)p->width * sizeof *row);
    for (int64_t i = 0; !p->info->logits && i < p->width; i++) {
        to->mean[i] = 0;
        for (int64_t token = 0; token < n; token++)
            to->mean[i] += (double)row[token * p->width + i] / (double)n;
    }
    return CLI_DONE;
}

static double product(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* Returns the KL divergence of two predictions in bits, or 1 - cosine. */
static double distance(const prediction_pass *p, const prediction *x, const prediction *y)
{
    const int64_t n = p->width;
    if (p->info->logits) return mha_kl_divergence(x->logits, y->logits, n) / log(2);
    return 1 - product(x->mean, y->mean, n) / sqrt(product(x->mean, x->mean, n) * product(y->mean, y->mean, n));
}

static int check_effect(const prediction_pass *p, int64_t n, double value)
{
    char what[64];
    const int64_t layer = n / p->info->heads, head = mha_head_number(p->model, layer, n % p->info->heads);
    snprintf(what, sizeof what, "the effect of head %lld.%lld", (long long)layer, (long long)head);
    return cli_finite(p->session, p->sequence->where, what, value);
}

static int measure_heads(const prediction_pass *p, head_gates *gates, const prediction *base,
                         const prediction *switched, double *values)
{
    const mha_model_info *info = p->info;
    int code = predict(p, base);
    for (int64_t n = 0; n < info->layers * info->heads && code == CLI_DONE; n++) {
        if (n % info->heads >= info->heads_per_layer[n / info->heads]) continue;
        const float gate = gates->gates[n];
        cli_progress("heads", n, info->layers * info->heads);
        head_gates_set(gates, info, n, gate == 0 ? 1 : 0);
        code = predict(p, switched);
        head_gates_set(gates, info, n, gate);
        values[n] = code == CLI_DONE ? distance(p, base, switched) : 0;
        if (code == CLI_DONE) code = check_effect(p, n, values[n]);
    }
    return code;
}

int head_effects_measure(const cli_session *s, const mha_model *model, const cli_sequence *q, int64_t at,
                         const capture_request *request, head_gates *gates, head_effects *effects)
{
    const mha_model_info *info = mha_model_describe(model);
    prediction_pass p = {.session = s,
                         .model = model,
                         .info = info,
                         .sequence = q,
                         .request = request,
                         .at = at,
                         .width = info->logits ? info->vocab : info->hidden};
    const size_t width = (size_t)p.width, rows = info->logits && at == q->count - 1 ? 1 : (size_t)q->count;
    float *logits = malloc(2 * width * sizeof *logits);
    double *means = malloc(2 * width * sizeof *means);
    const prediction base = {logits, means}, switched = {logits ? logits + width : NULL, means ? means + width : NULL};
    effects->model = model;
    effects->values = calloc((size_t)(info->layers * info->heads), sizeof *effects->values);
    p.rows = calloc(rows, width * sizeof *p.rows);
    const int code = logits && means && p.rows && effects->values
                         ? measure_heads(&p, gates, &base, &switched, effects->values)
                         : cli_error(s, CLI_FAILED, "out of memory for the effects of the heads");
    free(logits);
    free(means);
    free(p.rows);
    return code;
}

void head_effects_free(head_effects *effects)
{
    free(effects->values);
    *effects = (head_effects){0};
}

/* ---- output ---- */

json_t *head_effects_json(const head_effects *effects)
{
    json_t *list = json_array();
    const mha_model_info *info = mha_model_describe(effects->model);
    for (int64_t layer = 0; layer < info->layers; layer++)
        for (int64_t head = 0; head < info->heads_per_layer[layer]; head++)
            json_array_append_new(list, json_pack("{s:o, s:o}", "head",
                                                  json_sprintf("%lld.%lld", (long long)layer,
                                                               (long long)mha_head_number(effects->model, layer, head)),
                                                  "effect", cli_real(effects->values[layer * info->heads + head])));
    return list;
}

void head_effects_print(const cli_session *s, const head_effects *effects)
{
    const mha_model_info *info = mha_model_describe(effects->model);
    fprintf(s->out, "\n%12s  head\n", info->logits ? "effect, bits" : "1 - cosine");
    for (int64_t layer = 0; layer < info->layers; layer++)
        for (int64_t head = 0; head < info->heads_per_layer[layer]; head++)
            fprintf(s->out, "%12.6f  %lld.%lld\n", effects->values[layer * info->heads + head], (long long)layer,
                    (long long)mha_head_number(effects->model, layer, head));
}
