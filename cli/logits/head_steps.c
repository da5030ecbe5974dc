/* head_steps.c - see head_steps.h. */
#include "logits/head_steps.h"

#include "options.h"
#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int keep_weights(void *user, int64_t layer, int64_t heads, const float *probs)
{
    head_steps *t = user;
    (void)layer, (void)heads;
    memcpy(t->weights, probs, (size_t)t->count * sizeof *probs);
    return 0;
}

static int keep_steps(void *user, const mha_model_activations *a)
{
    head_steps *t = user;
    mha_head_steps h;
    if (a->layer != t->head.layer) return 0;
    t->status = mha_model_head_steps(t->model, a, t->head.head, t->at, &h, &t->error);
    if (t->status != MHA_OK) return 1;
    const size_t D = (size_t)h.head_dim;
    memcpy(t->q, h.q, D * sizeof *t->q);
    memcpy(t->out, h.context, D * sizeof *t->out);
    for (int64_t j = 0; j < h.rows; j++) {
        t->scores[j] = mha_head_steps_score(&h, j);
        memcpy(t->k + j * h.head_dim, h.k + j * h.stride, D * sizeof *t->k);
        memcpy(t->v + j * h.head_dim, h.v + j * h.stride, D * sizeof *t->v);
    }
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
    t->scores = calloc(n, sizeof *t->scores);
    if (!t->q || !t->scores) return false;
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
    const mha_model_output output = {.size = sizeof output,
                                     .on_attention = keep_weights,
                                     .map_heads = &t->head,
                                     .map_count = 1,
                                     .map_rows = &t->at,
                                     .map_row_count = 1,
                                     .on_activations = keep_steps,
                                     .user = t};
    const mha_status status = forward_pass(s, model, q->ids, q->count, request, &output, &error);
    if (t->status != MHA_OK) return cli_refuse(s, &t->error);
    return status == MHA_OK ? CLI_DONE : cli_refuse(s, &error);
}

void head_steps_free(head_steps *t)
{
    free(t->q);
    free(t->scores);
    *t = (head_steps){0};
}

/* ---- output ---- */

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
                                        cli_real(t->scores[j]), "weight", cli_real((double)t->weights[j]), "k",
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
        fprintf(s->out, "%12.6f %12.6f %12.6f %12.6f  %s (%lld)\n", t->scores[j], weight, length, weight * length,
                cli_shown(cli_sequence_token(q, q->ids[j])), (long long)j);
    }
}
