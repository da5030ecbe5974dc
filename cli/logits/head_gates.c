/* head_gates.c - see head_gates.h. */
#include "logits/head_gates.h"

#include "options.h"
#include "output.h"
#include <math.h>
#include <stdlib.h>

/* Sets the gates of the listed heads, and the others to 1. A gate is NAN until it is set. */
static int parse(const cli_session *s, const mha_model *model, const char *text, float *gates)
{
    const int64_t heads = mha_model_describe(model)->heads, count = mha_model_describe(model)->layers * heads;
    for (int64_t n = 0; n < count; n++)
        gates[n] = NAN;
    for (char *end; text; text = *end ? end + 1 : NULL) {
        mha_model_head h;
        const char *equals = cli_head(text, &h);
        const float gate = equals && *equals == '=' ? (float)cli_decimal(equals + 1, &end) : NAN;
        if (!isfinite(gate) || end == equals + 1 || (*end && *end != ','))
            return cli_usage(s, "--gates must be LAYER.HEAD=GATE,... (got \"%s\")", cli_shown_start(text, 40));
        const int64_t place = mha_head_place(model, h.layer, h.head);
        if (place < 0)
            return cli_usage(s, "--gates must name heads of the model (got %d.%d)", (int)h.layer, (int)h.head);
        if (!isnan(gates[h.layer * heads + place])) return cli_head_twice(s, "--gates", "", h);
        gates[h.layer * heads + place] = gate;
    }
    for (int64_t n = 0; n < count; n++)
        if (isnan(gates[n])) gates[n] = 1;
    return CLI_DONE;
}

/* The pass that sums the outputs of the heads. */
typedef struct mean_pass {
    const mha_model_info *info;
    float *means;
} mean_pass;

static int add_means(void *user, const mha_model_activations *a)
{
    const mean_pass *m = user;
    const int64_t D = m->info->head_dim, width = a->heads * a->head_dim;
    float *means = m->means + a->layer * m->info->heads * D;
    for (int64_t column = 0; a->head_dim == D && column < width; column++) {
        double sum = 0;
        for (int64_t row = 0; row < a->rows; row++)
            sum += (double)a->context[row * width + column];
        means[column] = (float)(sum / (double)a->rows);
    }
    return 0;
}

static int measure_means(const cli_session *s, const mha_model *model, const cli_sequence *q, head_gates *g)
{
    mha_error error = {0};
    const mha_model_info *info = mha_model_describe(model);
    const size_t count = (size_t)(info->layers * info->heads * info->head_dim);
    g->means = calloc(count, sizeof *g->means);
    g->fills = calloc(count, sizeof *g->fills);
    if (!g->means || !g->fills) return cli_error(s, CLI_FAILED, "out of memory for the means of the heads");
    mean_pass m = {info, g->means};
    const mha_model_input in = {
        .size = sizeof in, .batch = 1, .length = q->count, .ids = q->pixels ? NULL : q->ids, .pixels = q->pixels};
    const mha_model_output out = {.size = sizeof out, .on_activations = add_means, .user = &m};
    if (mha_model_forward(model, &in, &out, &error) != MHA_OK) return cli_refuse(s, &error);
    for (int64_t n = 0; n < info->layers * info->heads; n++)
        head_gates_set(g, info, n, g->gates[n]);
    return CLI_DONE;
}

void head_gates_set(head_gates *g, const mha_model_info *info, int64_t head, float gate)
{
    const int64_t D = info->head_dim;
    g->gates[head] = gate;
    for (int64_t n = head * D; g->means && n < (head + 1) * D; n++)
        g->fills[n] = (1 - gate) * g->means[n];
}

int head_gates_read(const cli_session *s, const mha_model *model, const char *text, bool mean, bool settable,
                    const cli_sequence *q, head_gates *g)
{
    const mha_model_info *info = mha_model_describe(model);
    *g = (head_gates){0};
    if (!text && !settable) return CLI_DONE;
    if (info->encoder_decoder) return cli_usage(s, "--gates must not be given for an encoder-decoder");
    g->gates = malloc((size_t)(info->layers * info->heads) * sizeof *g->gates);
    if (!g->gates) return cli_error(s, CLI_FAILED, "out of memory for the gates");
    const int code = parse(s, model, text, g->gates);
    return code == CLI_DONE && mean ? measure_means(s, model, q, g) : code;
}

void head_gates_free(head_gates *g)
{
    free(g->gates);
    free(g->means);
    free(g->fills);
    *g = (head_gates){0};
}
