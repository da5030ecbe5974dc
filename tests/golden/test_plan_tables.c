/* test_plan_tables.c - compares head plans with the results of the code of the walk-throughs (data/plan.json):
 * tables of head configurations and parameters, heads after pruning, and parameters of every layer. */
#include "mha/head_layouts.h"
#include "support/check.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *recorded;

static int64_t whole(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);
    if (!json_is_integer(value)) fail_msg("plan.json: %s must be an integer", key);
    return json_integer_value(value);
}

static int64_t whole_or_0(const json_t *o, const char *key)
{
    return json_object_get(o, key) ? whole(o, key) : 0;
}

static void variants_of(const mha_head_layout_options *model, mha_head_layout rows[MHA_HEAD_LAYOUT_VARIANTS])
{
    mha_error error;
    if (mha_head_layout_variants(model, rows, &error) != MHA_OK) fail_msg("%s", error.message);
}

/* Compares every number of every row, in the order of the sorted list. */
static void test_configurations(void **state)
{
    (void)state;
    const char *d_model;
    json_t *rows;
    int compared = 0;
    json_object_foreach(json_object_get(recorded, "optimize_head_configuration"), d_model, rows)
    {
        const mha_head_layout_options model = {.size = sizeof model, .d_model = atoll(d_model)};
        mha_head_layout ours[MHA_HEAD_LAYOUTS];
        int count;
        assert_int_equal(mha_head_layouts(&model, ours, &count, NULL), MHA_OK);
        assert_int_equal(count, json_array_size(rows));
        for (int i = 0; i < count; i++) {
            const mha_head_layout *r = &ours[i];
            const int64_t got[] = {r->heads, r->head_dim, r->kv_groups, r->kv_heads, r->weights.total};
            const json_t *const row = json_array_get(rows, (size_t)i);
            for (size_t c = 0; c < sizeof got / sizeof *got; c++)
                assert_int_equal(got[c], json_integer_value(json_array_get(row, c)));
            assert_true(r->reduction == json_number_value(json_array_get(row, 5)));
            compared++;
        }
    }
    assert_int_equal(compared, 22 + 22 + 29 + 22);
}

static void test_parameters(void **state)
{
    (void)state;
    size_t i;
    json_t *row;
    json_t *const rows = json_object_get(recorded, "analyze_mha_parameters");
    assert_int_equal(json_array_size(rows), 5);
    json_array_foreach(rows, i, row)
    {
        const int64_t E = whole(row, "d_model");
        const mha_head_layout_options model = {
            .size = sizeof model, .d_model = E, .heads = whole(row, "heads"), .parameters = 175000000000};
        mha_head_layout ours[MHA_HEAD_LAYOUT_VARIANTS];
        char share[16];
        variants_of(&model, ours);
        const mha_head_layout *r = &ours[MHA_HEAD_LAYOUT_MHA];
        assert_int_equal(r->head_dim, whole(row, "head_dim"));
        assert_int_equal(r->weights.q, whole(row, "q"));
        assert_int_equal(r->weights.k, whole(row, "k"));
        assert_int_equal(r->weights.v, whole(row, "v"));
        assert_int_equal(r->weights.out, whole(row, "out"));
        assert_int_equal(r->weights.total, whole(row, "total"));
        assert_int_equal(r->biases.total, 4 * E);
        snprintf(share, sizeof share, "%.2f", (double)r->weights.total / (double)model.parameters * 100);
        assert_string_equal(share, json_string_value(json_object_get(row, "share_of_175e9")));
    }
}

static void test_pruning(void **state)
{
    (void)state;
    size_t i;
    json_t *row;
    int compared = 0;
    json_array_foreach(json_object_get(recorded, "pruning_counts"), i, row)
    {
        const int64_t heads = whole(row, "heads"), kept = whole(row, "keep_heads");
        const int64_t left = heads - whole(row, "prune_heads_count");
        const double ratio = json_number_value(json_object_get(row, "prune_ratio"));
        if (ratio == 0 || ratio == 1) continue; /* a plan needs at least one removed head and one remaining head */
        const mha_head_layout_options model = {
            .size = sizeof model, .d_model = heads * 8, .heads = heads, .prune = ratio};
        mha_head_layout ours[MHA_HEAD_LAYOUT_VARIANTS];
        variants_of(&model, ours);
        const mha_head_layout *const dynamic = &ours[MHA_HEAD_LAYOUT_DYNAMIC], *const pruned =
                                                                                   &ours[MHA_HEAD_LAYOUT_PRUNED];
        assert_int_equal(dynamic->left_out ? 0 : dynamic->heads, kept);
        assert_int_equal(pruned->left_out ? 0 : pruned->heads, left);
        compared++;
    }
    assert_in_range(compared, 30, 100);
}

/* Returns the plan variant of a recorded layer. */
static mha_head_layout_variant variant_of(const char *name)
{
    static const struct {
        const char *prefix;
        mha_head_layout_variant variant;
    } layers[] = {{"s002_mha", MHA_HEAD_LAYOUT_MHA},
                  {"s002_moe_project", MHA_HEAD_LAYOUT_MOE},
                  {"s002_pruning", MHA_HEAD_LAYOUT_DYNAMIC},
                  {"s002_adaptive", MHA_HEAD_LAYOUT_ADAPTIVE}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        if (strncmp(name, layers[i].prefix, strlen(layers[i].prefix)) == 0) return layers[i].variant;
    return MHA_HEAD_LAYOUT_GQA;
}

/* Returns the plan row of a recorded layer. A grouped layer is a layout, found by its head counts; other layers are
 * variants. */
static mha_head_layout row_of(const json_t *layer)
{
    const char *const name = json_string_value(json_object_get(layer, "name"));
    const json_t *const config = json_object_get(layer, "config");
    const mha_head_layout_options model = {.size = sizeof model,
                                           .d_model = whole(config, "d_model"),
                                           .heads = whole_or_0(config, "heads"),
                                           .experts = whole_or_0(config, "experts"),
                                           .top_k = whole_or_0(config, "top_k"),
                                           .prune = json_number_value(json_object_get(config, "prune_ratio"))};
    mha_head_layout rows[MHA_HEAD_LAYOUTS];
    const mha_head_layout_variant variant = variant_of(name);
    if (variant != MHA_HEAD_LAYOUT_GQA) {
        variants_of(&model, rows);
        return rows[variant];
    }
    int count;
    assert_int_equal(mha_head_layouts(&model, rows, &count, NULL), MHA_OK);
    for (int i = 0; i < count; i++)
        if (rows[i].heads == model.heads && rows[i].kv_heads == whole(config, "kv_heads")) return rows[i];
    if (model.heads == 6) variants_of(&model, rows); /* no row of the table has 6 heads */
    return rows[MHA_HEAD_LAYOUT_GQA];
}

static void test_layers(void **state)
{
    (void)state;
    size_t i;
    json_t *layer;
    json_t *const layers = json_object_get(recorded, "layers");
    assert_int_equal(json_array_size(layers), 14);
    json_array_foreach(layers, i, layer)
    {
        const mha_head_layout row = row_of(layer);
        assert_null(row.left_out);
        assert_int_equal(row.weights.total, whole(layer, "weights"));
        if (whole(layer, "biases") > 0) assert_int_equal(row.biases.total, whole(layer, "biases"));
    }
}

static int load(void **state)
{
    (void)state;
    json_error_t e;
    recorded = json_load_file(MHA_TEST_DATA "/plan.json", 0, &e);
    if (!recorded) printf("plan.json: %s\n", e.text);
    return recorded ? 0 : -1;
}

static int drop(void **state)
{
    (void)state;
    json_decref(recorded);
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_configurations), cmocka_unit_test(test_parameters),
                                              cmocka_unit_test(test_pruning), cmocka_unit_test(test_layers)};
    return cmocka_run_group_tests(tests, load, drop);
}
