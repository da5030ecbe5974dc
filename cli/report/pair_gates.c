/* pair_gates.c - removes one head of an encoder-decoder after another. */
#include "report/pair_gates.h"

#include "output.h"
#include "session.h"
#include <stdlib.h>

typedef struct gates {
    const mha_model *model;
    const mha_model_input *source;
    const int32_t *ids, *labels;       /* [count], [label_count] */
    int64_t count, label_count, width; /* width of a row of logits */
    pair_heads of;
    mha_model_cache *cache; /* heads of the decoder: keys and values of the source, which do not change */
    float *gates, *logits;  /* [layers, heads], [count, width] */
} gates;

/* Computes the loss with the present gates. The encoder runs again only if its gates change. */
static mha_status loss_of(const cli_session *s, const gates *g, double *loss, mha_error *error)
{
    mha_model_input source = *g->source;
    mha_model_input input = {
        .size = sizeof input, .batch = 1, .length = g->count, .ids = g->ids, .source = &source, .cache = g->cache};
    const mha_model_output output = {.size = sizeof output, .logits = g->logits};
    const mha_cross_entropy_args entropy = {
        .size = sizeof entropy, .rows = g->label_count, .classes = g->width, .logits = g->logits, .labels = g->labels};
    const float **const gates[] = {
        [PAIR_ENCODER] = &source.gates, [PAIR_DECODER] = &input.gates, [PAIR_CROSS] = &input.cross_gates};
    *gates[g->of] = g->gates;
    mha_status status = MHA_OK;
    if (g->cache && mha_model_cache_length(g->cache, 0) > 0) {
        input.source = NULL;
        status = mha_model_cache_truncate(g->cache, 0, 0, error);
    }
    if (status == MHA_OK) status = mha_model_forward(g->model, &input, &output, error);
    return status == MHA_OK ? mha_cross_entropy(s->ctx, &entropy, loss, NULL, error) : status;
}

/* Appends the changes of the loss [layers][heads] to `values`, and null to `none`. */
static int measure(const cli_session *s, gates *g, const mha_model_info *m, double loss, json_t *values, json_t *none)
{
    static const char *const names[] = {[PAIR_ENCODER] = "heads of the encoder",
                                        [PAIR_DECODER] = "heads of the decoder",
                                        [PAIR_CROSS] = "heads of the cross-attention"};
    const char *what = names[g->of];
    mha_error error = {0};
    for (int64_t layer = 0; layer < m->layers; layer++) {
        json_t *row = json_array(), *empty = json_array();
        json_array_append_new(values, row);
        json_array_append_new(none, empty);
        for (int64_t head = 0; head < m->heads; head++) {
            double without = 0;
            float *gate = &g->gates[layer * m->heads + head];
            *gate = 0;
            cli_progress(what, layer * m->heads + head, m->layers * m->heads);
            if (cli_stopped() != CLI_DONE) return cli_stopped();
            if (loss_of(s, g, &without, &error) != MHA_OK) return cli_fail(s, &error);
            *gate = 1;
            json_array_append_new(row, cli_real(without - loss));
            json_array_append_new(empty, json_null());
        }
    }
    cli_progress(what, m->layers * m->heads, m->layers * m->heads);
    return CLI_DONE;
}

/* Allocates the gates, all 1, and for heads of the decoder the cache. */
static int allocate(const cli_session *s, gates *g, size_t heads)
{
    const mha_model_cache_options options = {
        .size = sizeof options, .tokens = g->count, .source_tokens = g->source->length};
    mha_error error = {0};
    g->gates = malloc(heads * sizeof *g->gates);
    g->logits = malloc((size_t)(g->count * g->width) * sizeof *g->logits);
    if (!g->gates || !g->logits) return cli_error(s, CLI_FAILED, "out of memory for the gates");
    for (size_t n = 0; n < heads; n++)
        g->gates[n] = 1;
    if (g->of == PAIR_ENCODER || mha_model_cache_create(g->model, &options, &g->cache, &error) == MHA_OK)
        return CLI_DONE;
    return cli_fail(s, &error);
}

int pair_gates_measure(const cli_session *s, const mha_model *model, const cli_sequence *q, pair_heads of,
                       json_t **importance)
{
    const mha_model_info *m = mha_model_describe(of == PAIR_ENCODER ? mha_model_encoder(model) : model);
    const mha_encoding *target = q->pair.target;
    gates g = {.model = model,
               .source = &q->source,
               .ids = q->ids,
               .labels = target->ids,
               .count = q->count,
               .label_count = target->count < q->count ? target->count : q->count,
               .width = mha_model_describe(model)->logit_width,
               .of = of};
    json_t *values = json_array(), *none = json_array();
    mha_error error = {0};
    double loss = 0;
    int code = allocate(s, &g, (size_t)(m->layers * m->heads));
    if (code == CLI_DONE && loss_of(s, &g, &loss, &error) != MHA_OK) code = cli_fail(s, &error);
    if (code == CLI_DONE) code = measure(s, &g, m, loss, values, none);
    mha_model_cache_free(g.cache);
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
