/* head_gates.c - see head_gates.h. */
#include "run/head_gates.h"

#include <math.h>
#include <stdlib.h>

#include "options.h"
#include "output.h"

static int parse(const cli_session *s, const mha_model *model, const char *text, float *gates)
{
    const int64_t heads = mha_model_describe(model)->heads;
    for (char *end; text; text = *end ? end + 1 : NULL) {
        mha_model_head h;
        const char *equals = cli_head(text, &h);
        const float gate = equals && *equals == '=' ? strtof(equals + 1, &end) : NAN;
        if (!isfinite(gate) || end == equals + 1 || (*end && *end != ','))
            return cli_usage(s, "--gates must be LAYER.HEAD=GATE,... (got \"%s\")", cli_shown_start(text, 40));
        const int64_t place = mha_head_place(model, h.layer, h.head);
        if (place < 0)
            return cli_usage(s, "--gates must name heads of the model (got %d.%d)", (int)h.layer, (int)h.head);
        gates[h.layer * heads + place] = gate;
    }
    return CLI_DONE;
}

/* The pass that sums the outputs of the heads. */
typedef struct means {
    const mha_model_info *info;
    const float *gates;
    float *fills;
} means;

static int add_means(void *user, const mha_model_activations *a)
{
    const means *m = user;
    const int64_t D = m->info->head_dim, width = a->heads * a->head_dim;
    float *fills = m->fills + a->layer * m->info->heads * D;
    for (int64_t column = 0; a->head_dim == D && column < width; column++) {
        double sum = 0;
        for (int64_t row = 0; row < a->rows; row++)
            sum += (double)a->context[row * width + column];
        fills[column] = (1 - m->gates[a->layer * m->info->heads + column / D]) * (float)(sum / (double)a->rows);
    }
    return 0;
}

static int measure_means(const cli_session *s, const mha_model *model, const cli_sequence *q, head_gates *g)
{
    mha_error error = {0};
    const mha_model_info *info = mha_model_describe(model);
    g->fills = calloc((size_t)(info->layers * info->heads * info->head_dim), sizeof *g->fills);
    if (!g->fills) return cli_error(s, CLI_FAILED, "out of memory for the means of the heads");
    means m = {info, g->gates, g->fills};
    const mha_model_input in = {
        .size = sizeof in, .batch = 1, .length = q->count, .ids = q->pixels ? NULL : q->ids, .pixels = q->pixels};
    const mha_model_output out = {.size = sizeof out, .on_activations = add_means, .user = &m};
    return mha_model_forward(model, &in, &out, &error) == MHA_OK ? CLI_DONE : cli_refuse(s, &error);
}

int head_gates_read(const cli_session *s, const mha_model *model, const char *text, bool mean, const cli_sequence *q,
                    head_gates *g)
{
    const mha_model_info *info = mha_model_describe(model);
    *g = (head_gates){0};
    if (!text) return CLI_DONE;
    if (info->encoder_decoder) return cli_usage(s, "--gates must not be given for an encoder-decoder");
    g->gates = malloc((size_t)(info->layers * info->heads) * sizeof *g->gates);
    if (!g->gates) return cli_error(s, CLI_FAILED, "out of memory for the gates");
    for (int64_t n = 0; n < info->layers * info->heads; n++)
        g->gates[n] = 1;
    const int code = parse(s, model, text, g->gates);
    return code == CLI_DONE && mean ? measure_means(s, model, q, g) : code;
}

void head_gates_free(head_gates *g)
{
    free(g->gates);
    free(g->fills);
    *g = (head_gates){0};
}
