/* head_steps.c - see head_steps.h. */
#include "logits/head_steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "output.h"

static int keep_weights(void *user, int64_t layer, int64_t heads, const float *probs)
{
    head_steps *t = user;
    (void)layer, (void)heads;
    memcpy(t->weights, probs, (size_t)t->count * sizeof *probs);
    return 0;
}

/* A layer whose heads have another width (adaptive_heads) has no numbered heads. */
static int keep_steps(void *user, const mha_model_activations *a)
{
    head_steps *t = user;
    const int64_t D = t->D;
    if (a->layer != t->head.layer || a->head_dim != D) return 0;
    const int64_t kv = t->head.head / (a->heads / a->kv_heads);
    memcpy(t->q, a->q + t->at * a->stride + t->head.head * D, (size_t)D * sizeof *t->q);
    memcpy(t->out, a->context + (t->at * a->heads + t->head.head) * D, (size_t)D * sizeof *t->out);
    for (int64_t j = 0; j < t->count; j++) {
        memcpy(t->k + j * D, a->k + j * a->stride + kv * D, (size_t)D * sizeof *t->k);
        memcpy(t->v + j * D, a->v + j * a->stride + kv * D, (size_t)D * sizeof *t->v);
    }
    t->found = true;
    return 0;
}

int head_steps_find(const cli_session *s, const mha_model *model, const char *name, mha_model_head *head)
{
    const char *end = cli_head(name, head);
    if (!end || *end) return cli_usage(s, "--steps must be LAYER.HEAD (got \"%s\")", cli_shown_start(name, 40));
    const int64_t place = mha_head_place(model, head->layer, head->head);
    if (place < 0)
        return cli_usage(s, "--steps must name a head of the model (got %d.%d)", (int)head->layer, (int)head->head);
    head->head = (int32_t)place;
    return CLI_DONE;
}

static bool allocate(head_steps *t)
{
    const size_t D = (size_t)t->D, n = (size_t)t->count;
    t->q = calloc(2 * D + n * (1 + 2 * D), sizeof *t->q);
    if (!t->q) return false;
    t->out = t->q + D;
    t->k = t->out + D;
    t->v = t->k + n * D;
    t->weights = t->v + n * D;
    return true;
}

int head_steps_read(const cli_session *s, const mha_model *model, const cli_sequence *q, int64_t at,
                    const capture_request *request, head_steps *t)
{
    mha_error error = {0};
    const mha_model_info *info = mha_model_describe(model);
    *t = (head_steps){.model = model, .head = t->head, .at = at, .count = q->count, .D = info->head_dim};
    if (!allocate(t)) return cli_error(s, CLI_FAILED, "out of memory for the steps of a head");
    const double scale = info->attention_per_layer[t->head.layer].scale;
    t->scale = scale != 0 ? scale : 1 / sqrt((double)t->D);
    const mha_model_output output = {.size = sizeof output,
                                     .on_attention = keep_weights,
                                     .map_heads = &t->head,
                                     .map_count = 1,
                                     .map_rows = &t->at,
                                     .map_row_count = 1,
                                     .on_activations = keep_steps,
                                     .user = t};
    if (forward_pass(s, model, q->ids, q->count, request, &output, &error) != MHA_OK) return cli_refuse(s, &error);
    if (t->found) return CLI_DONE;
    return cli_error(s, CLI_REFUSED, "%s: the heads of layer %d depend on the text, so they have no steps",
                     cli_shown(s->model_name), (int)t->head.layer);
}

void head_steps_free(head_steps *t)
{
    free(t->q);
    *t = (head_steps){0};
}

/* ---- output ---- */

/* The score of a key before masks, caps and position terms. */
static double score_of(const head_steps *t, int64_t j)
{
    double sum = 0;
    for (int64_t d = 0; d < t->D; d++)
        sum += (double)t->q[d] * (double)t->k[j * t->D + d];
    return sum * t->scale;
}

static double length_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static json_t *vector_json(const float *x, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(list, cli_real((double)x[i]));
    return list;
}

json_t *head_steps_json(const head_steps *t, const cli_sequence *q)
{
    json_t *keys = json_array();
    for (int64_t j = 0; j < t->count; j++)
        json_array_append_new(keys,
                              json_pack("{s:s, s:o, s:o, s:o, s:o}", "token", cli_sequence_token(q, q->ids[j]), "score",
                                        cli_real(score_of(t, j)), "weight", cli_real((double)t->weights[j]), "k",
                                        vector_json(t->k + j * t->D, t->D), "v", vector_json(t->v + j * t->D, t->D)));
    json_t *name =
        json_sprintf("%d.%lld", (int)t->head.layer, (long long)mha_head_number(t->model, t->head.layer, t->head.head));
    return json_pack("{s:o, s:I, s:o, s:o, s:o}", "head", name, "at", (json_int_t)t->at, "q", vector_json(t->q, t->D),
                     "keys", keys, "output", vector_json(t->out, t->D));
}

void head_steps_print(const cli_session *s, const head_steps *t, const cli_sequence *q)
{
    fprintf(s->out, "\nsteps of head %d.%lld for token %lld: |output| %.6f\n", (int)t->head.layer,
            (long long)mha_head_number(t->model, t->head.layer, t->head.head), (long long)t->at,
            length_of(t->out, t->D));
    fprintf(s->out, "%12s %12s %12s %12s  key\n", "score", "weight", "|v|", "weight |v|");
    for (int64_t j = 0; j < t->count; j++) {
        const double weight = (double)t->weights[j], length = length_of(t->v + j * t->D, t->D);
        fprintf(s->out, "%12.6f %12.6f %12.6f %12.6f  %s (%lld)\n", score_of(t, j), weight, length, weight * length,
                cli_shown(cli_sequence_token(q, q->ids[j])), (long long)j);
    }
}
