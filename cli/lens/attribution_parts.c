/* attribution_parts.c - the parts of a logit: maps by component, head and source token, and a ranking. */
#include "lens/attribution_parts.h"

#include <math.h>
#include <stdlib.h>

enum { STRONGEST = 10 }; /* heads in the map of source tokens */

double attribution_head(const attribution *x, int64_t layer, int64_t head)
{
    return x->a->heads[(x->target * x->a->layers + layer) * x->a->head_count + head];
}

double attribution_source(const attribution *x, int64_t layer, int64_t head, int64_t token)
{
    const int64_t n = (x->target * x->a->layers + layer) * x->a->head_count + head;
    return x->a->sources[n * x->a->tokens + token];
}

int64_t attribution_heads(const attribution *x, int64_t layer)
{
    return mha_model_describe(x->model)->heads_per_layer[layer];
}

static void put_component(json_t *map, const char *name, double value)
{
    circuit_map_row(map, json_string(name));
    circuit_map_cell(map, value, NULL, NULL);
    circuit_map_cell(map, NAN, NULL, NULL);
    circuit_map_cell(map, NAN, NULL, NULL);
}

static json_t *component_map(const attribution *x)
{
    const mha_logit_attribution *a = x->a;
    json_t *map = circuit_map("Parts by component", "Embeddings and biases are in the first column.", "signed", "layer",
                              "component");
    static const char *const names[] = {"heads", "bias", "mlp"};
    for (int i = 0; i < 3; i++)
        circuit_map_column(map, json_string(names[i]));
    put_component(map, "embed", a->embed[x->target]);
    if (a->pos_embed[x->target] != 0) put_component(map, "position", a->pos_embed[x->target]);
    for (int64_t l = 0; l < a->layers; l++) {
        double heads = 0;
        for (int64_t h = 0; h < attribution_heads(x, l); h++)
            heads += attribution_head(x, l, h);
        circuit_map_row(map, json_sprintf("%lld", (long long)l));
        circuit_map_cell(map, heads, NULL, NULL);
        circuit_map_cell(map, a->attn_bias[x->target * a->layers + l], NULL, NULL);
        circuit_map_cell(map, a->mlps[x->target * a->layers + l], NULL, NULL);
    }
    if (a->norm_bias[x->target] != 0) put_component(map, "norm bias", a->norm_bias[x->target]);
    if (a->logit_bias[x->target] != 0) put_component(map, "logit bias", a->logit_bias[x->target]);
    return map;
}

static json_t *head_map(const attribution *x)
{
    json_t *map =
        circuit_map("Parts by head", "What each head writes directly to the logit.", "signed", "layer", "head");
    const int64_t numbers = mha_model_describe(x->model)->original_heads;
    for (int64_t n = 0; n < numbers; n++)
        circuit_map_column(map, json_sprintf("%lld", (long long)n));
    for (int64_t l = 0; l < x->a->layers; l++) {
        circuit_map_row(map, json_sprintf("%lld", (long long)l));
        for (int64_t n = 0; n < numbers; n++) {
            const int64_t head = mha_head_place(x->model, l, n);
            circuit_map_cell(map, head < 0 ? NAN : attribution_head(x, l, head), NULL, NULL);
        }
    }
    return map;
}

static int by_size(const void *a, const void *b)
{
    const attribution_part *x = a, *y = b;
    return (fabs(x->value) < fabs(y->value)) - (fabs(x->value) > fabs(y->value));
}

attribution_part *attribution_rank(const attribution *x, bool mlps, int64_t *count)
{
    *count = 0;
    attribution_part *all = calloc((size_t)(x->a->layers * (x->a->head_count + 1)) + 1, sizeof *all);
    for (int64_t l = 0; all && l < x->a->layers; l++) {
        for (int64_t h = 0; h < attribution_heads(x, l); h++)
            all[(*count)++] = (attribution_part){l, h, attribution_head(x, l, h)};
        if (mlps) all[(*count)++] = (attribution_part){l, -1, x->a->mlps[x->target * x->a->layers + l]};
    }
    if (all) qsort(all, (size_t)*count, sizeof *all, by_size);
    return all;
}

static json_t *source_map(const attribution *x)
{
    int64_t count;
    attribution_part *all = attribution_rank(x, false, &count);
    json_t *map =
        all ? circuit_map("Parts by source token", "The strongest heads; what each token contributes through them.",
                          "signed", "head", "source")
            : NULL;
    for (int64_t t = 0; all && t < x->a->tokens; t++)
        circuit_map_column(map, circuit_token(&x->prompt, x->prompt.ids[t]));
    for (int64_t n = 0; all && n < count && n < STRONGEST; n++) {
        circuit_map_row(map, circuit_head(x->model, all[n].layer, all[n].head));
        for (int64_t t = 0; t < x->a->tokens; t++)
            circuit_map_cell(map, attribution_source(x, all[n].layer, all[n].head, t), NULL, NULL);
    }
    free(all);
    return map;
}

json_t *attribution_map(const attribution *x, int by)
{
    return by == BY_COMPONENT ? component_map(x) : by == BY_HEAD ? head_map(x) : source_map(x);
}
