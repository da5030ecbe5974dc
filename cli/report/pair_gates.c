/* pair_gates.c - removes one head of an encoder-decoder after another. */
#include "report/pair_gates.h"

#include <math.h>
#include <stdlib.h>

#include "output.h"
#include "session.h"

typedef struct gates {
    const mha_model *model;
    const mha_model_input *source;
    const int32_t *ids;
    int64_t count, width; /* of ids, and of a row of logits */
    bool encoder;
    float *gates, *logits; /* [layers, heads], [count, width] */
} gates;

/* Returns the cross entropy of an id, in nats. */
static double cross_entropy(const float *logits, int64_t width, int32_t id)
{
    double most = -INFINITY, sum = 0;
    for (int64_t v = 0; v < width; v++)
        most = fmax(most, (double)logits[v]);
    for (int64_t v = 0; v < width; v++)
        sum += exp((double)logits[v] - most);
    return log(sum) + most - (double)logits[id];
}

/* Computes the loss with the present gates. */
static mha_status loss_of(const gates *g, double *loss, mha_error *error)
{
    mha_model_input source = *g->source;
    mha_model_input input = {.size = sizeof input, .batch = 1, .length = g->count, .ids = g->ids, .source = &source};
    const mha_model_output output = {.size = sizeof output, .logits = g->logits};
    *(g->encoder ? &source.gates : &input.gates) = g->gates;
    const mha_status status = mha_model_forward(g->model, &input, &output, error);
    *loss = 0;
    for (int64_t t = 0; status == MHA_OK && t + 1 < g->count; t++)
        *loss += cross_entropy(g->logits + t * g->width, g->width, g->ids[t + 1]) / (double)(g->count - 1);
    return status;
}

/* Appends the changes of the loss [layers][heads] to `values`, and null to `none`. */
static int measure(const cli_session *s, gates *g, const mha_model_info *m, double loss, json_t *values, json_t *none)
{
    mha_error error = {0};
    for (int64_t layer = 0; layer < m->layers; layer++) {
        json_t *row = json_array(), *empty = json_array();
        json_array_append_new(values, row);
        json_array_append_new(none, empty);
        for (int64_t head = 0; head < m->heads; head++) {
            double without = 0;
            float *gate = &g->gates[layer * m->heads + head];
            *gate = 0;
            if (cli_stopped() != CLI_DONE) return cli_stopped();
            if (loss_of(g, &without, &error) != MHA_OK) return cli_fail(s, &error);
            *gate = 1;
            json_array_append_new(row, cli_real(without - loss));
            json_array_append_new(empty, json_null());
        }
    }
    return CLI_DONE;
}

int pair_gates_measure(const cli_session *s, const mha_model *model, const mha_model_input *source, const int32_t *ids,
                       int64_t count, bool encoder, json_t **importance)
{
    const mha_model_info *m = mha_model_describe(encoder ? mha_model_encoder(model) : model);
    gates g = {model, source, ids, count, mha_model_describe(model)->logit_width, encoder, NULL, NULL};
    const size_t heads = (size_t)(m->layers * m->heads);
    json_t *values = json_array(), *none = json_array();
    mha_error error = {0};
    double loss = 0;
    g.gates = malloc(heads * sizeof *g.gates);
    g.logits = malloc((size_t)(count * g.width) * sizeof *g.logits);
    int code = g.gates && g.logits ? CLI_DONE : cli_error(s, CLI_FAILED, "out of memory for the gates");
    for (size_t n = 0; code == CLI_DONE && n < heads; n++)
        g.gates[n] = 1;
    if (code == CLI_DONE && loss_of(&g, &loss, &error) != MHA_OK) code = cli_fail(s, &error);
    if (code == CLI_DONE) code = measure(s, &g, m, loss, values, none);
    free(g.gates);
    free(g.logits);
    *importance = code == CLI_DONE
                      ? json_pack("{s:s, s:o, s:i, s:n, s:b, s:O, s:O, s:O}", "by",
                                  mha_importance_score_key(MHA_IMPORTANCE_LOO_LOSS), "loss", cli_real(loss), "texts", 1,
                                  "halves", "saturated", 0, "values", values, "low", none, "high", none)
                      : NULL;
    json_decref(values);
    json_decref(none);
    return code;
}
