/* head_diversity.c - writes the measures of mha/diversity.h as JSON. */
#include "heads/head_diversity.h"

#include "heads/heads_json.h"
#include "output.h"
#include <math.h>

/* Returns true for a divergence, which is 0 for identical heads and compares heads of all layers. All other measures
 * are similarities and compare heads of one layer. */
static bool is_distance(mha_diversity_kind what)
{
    return what == MHA_DIVERSITY_JS || what == MHA_DIVERSITY_JS_CLARK;
}

/* Rounds to six decimals to shorten the JSON: a matrix has thousands of elements, and the page only displays them. */
static json_t *rounded(double value)
{
    return cli_real(isfinite(value) && fabs(value) < 1e9 ? round(value * 1e6) / 1e6 : value);
}

/* Returns the values of a measure for all pairs of heads of layers `from` to `to` - 1. */
static json_t *block_json(const mha_diversity *d, const mha_heads *heads, mha_diversity_kind what, int64_t from,
                          int64_t to)
{
    json_t *block = json_array();
    for (int64_t la = from; la < to; la++)
        for (int64_t ha = 0; ha < mha_heads_count(heads, la); ha++)
            for (int64_t lb = la; lb < to; lb++)
                for (int64_t hb = lb == la ? ha : 0; block && hb < mha_heads_count(heads, lb); hb++)
                    block = heads_json_append(block, rounded(mha_diversity_value(d, what, la, ha, lb, hb)));
    return block;
}

static json_t *measure_json(const mha_diversity *d, const mha_heads *heads, mha_diversity_kind what)
{
    const int64_t layers = mha_heads_layers(heads), step = is_distance(what) ? layers : 1;
    json_t *blocks = json_array();
    for (int64_t l = 0; blocks && l < layers; l += step)
        blocks = heads_json_append(blocks, block_json(d, heads, what, l, l + step));
    return blocks ? json_pack("{s:o}", "blocks", blocks) : NULL;
}

/* Returns all measures except "unique", which has one value per head. */
static json_t *measures_json(const mha_diversity *d, const mha_heads *heads)
{
    json_t *all = json_object();
    for (mha_diversity_kind what = 0; all && what < MHA_DIVERSITIES; what++) {
        if (what == MHA_DIVERSITY_UNIQUE) continue;
        if (json_object_set_new(all, mha_diversity_key(what), measure_json(d, heads, what)) == 0) continue;
        json_decref(all);
        all = NULL;
    }
    return all;
}

static json_t *unique_item(const mha_heads *heads, int64_t layer, int64_t head, const void *arg)
{
    (void)heads;
    return rounded(mha_diversity_value(arg, MHA_DIVERSITY_UNIQUE, layer, head, layer, head));
}

static json_t *points_json(const mha_diversity *d)
{
    const double *xy = mha_diversity_map(d);
    json_t *points = json_array();
    for (int64_t i = 0; points && i < mha_diversity_heads(d); i++)
        points = heads_json_append(points, json_pack("[o, o]", rounded(xy[2 * i]), rounded(xy[2 * i + 1])));
    return points;
}

static json_t *merges_json(const mha_diversity *d)
{
    const mha_head_merge *merges = mha_diversity_merges(d);
    json_t *list = json_array();
    for (int64_t i = 0; list && i < mha_diversity_heads(d) - 1; i++)
        list = heads_json_append(list, json_pack("[I, I, o, I]", (json_int_t)merges[i].a, (json_int_t)merges[i].b,
                                                 rounded(merges[i].height), (json_int_t)merges[i].size));
    return list;
}

int head_diversity_measure(cli_session *s, const mha_model *model, const mha_head_data *data, const char *state,
                           mha_diversity **out)
{
    const mha_diversity_options options = {.size = sizeof options, .max_rows = HEAD_DIVERSITY_ROWS, .state = state};
    mha_error error = {0};
    return mha_diversity_measure(model, data, &options, out, &error) == MHA_OK ? CLI_DONE : cli_fail(s, &error);
}

json_t *head_diversity_json(const mha_diversity *d, const mha_heads *heads)
{
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "rows", (json_int_t)mha_diversity_rows(d), "measures",
                     measures_json(d, heads), "unique", heads_json_each(heads, unique_item, d), "xy", points_json(d),
                     "merges", merges_json(d));
}

json_t *head_diversity_help(void)
{
    json_t *help = json_object();
    for (mha_diversity_kind what = 0; help && what < MHA_DIVERSITIES; what++)
        json_object_set_new(help, mha_diversity_key(what), json_string(mha_diversity_help(what)));
    return help;
}

json_t *head_diversity_distances(void)
{
    json_t *list = json_array();
    for (mha_diversity_kind what = 0; list && what < MHA_DIVERSITIES; what++)
        if (is_distance(what)) list = heads_json_append(list, json_string(mha_diversity_key(what)));
    return list;
}
