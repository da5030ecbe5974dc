/* golden_tables.c - compares tables of counts: parameters, head configurations, and heads kept by pruning. */
#include "conformance/walkthroughs/golden_seeds.h"
#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns a column of a row, which is an object, or an array in the order of the table's columns. */
static double number(const json_t *table, const json_t *row, const char *column)
{
    size_t n;
    json_t *name;
    if (json_is_object(row)) return json_number_value(json_object_get(row, column));
    json_array_foreach(json_object_get(table, "columns"), n, name)
    {
        const char *text = json_string_value(name);
        if (text && strcmp(text, column) == 0) return json_number_value(json_array_get(row, n));
    }
    return 0;
}

static void same(verify_case *outcome, const char *what, double got, double want, double limit)
{
    verify_measured(outcome, what, fabs(got - want), limit);
}

/* Frees a layer and returns its parameter count; -1 if the layer could not be created. */
static int64_t parameters_of(mha_variant *layer)
{
    const int64_t count = layer ? mha_variant_parameter_count(layer) : -1;
    mha_variant_free(layer);
    return count;
}

/* Compares a parameter count. The published counts omit the four biases of the published class. */
static void check_parameters(mha_ctx *ctx, const json_t *table, const json_t *row, verify_case *outcome)
{
    mha_variant *layer = NULL;
    const int64_t d = (int64_t)number(table, row, "d_model");
    const mha_standard_mha_options o = {
        .size = sizeof o, .d_model = d, .num_heads = (int64_t)number(table, row, "heads")};
    mha_standard_mha_create(ctx, &o, &layer, NULL);
    same(outcome, "total", (double)(parameters_of(layer) - 4 * d), number(table, row, "total"), 0);
}

static void check_configuration(mha_ctx *ctx, const json_t *table, const json_t *row, int64_t d, verify_case *outcome)
{
    mha_variant *layer = NULL;
    const int64_t heads = (int64_t)number(table, row, "num_heads"), groups = (int64_t)number(table, row, "kv_groups");
    const mha_grouped_query_options o = {.size = sizeof o, .d_model = d, .num_heads = heads, .kv_groups = groups};
    mha_grouped_query_create(ctx, &o, &layer, NULL);
    const int64_t biases = groups ? 2 * d + 2 * d / groups : 0;
    const double count = (double)(parameters_of(layer) - biases), square = 4 * (double)d * (double)d;
    same(outcome, "param_count", count, number(table, row, "param_count"), 0);
    same(outcome, "param_reduction", 1 - count / square, number(table, row, "param_reduction"), 1e-12);
    same(outcome, "kv_heads", groups ? (double)(heads / groups) : -1, number(table, row, "kv_heads"), 0);
}

/* Compares the number of kept heads: runs one token through a layer with heads of width 1. */
static void check_kept(mha_ctx *ctx, const json_t *table, const json_t *row, verify_case *outcome)
{
    enum { MAX = 256 };
    mha_variant *layer = NULL;
    mha_trace *trace = NULL;
    float x[MAX] = {0}, y[MAX];
    int64_t kept = -1;
    const int64_t heads = (int64_t)number(table, row, "heads");
    const mha_head_pruning_options o = {
        .size = sizeof o, .d_model = heads, .num_heads = heads, .prune_ratio = number(table, row, "prune_ratio")};
    const mha_variant_input in = {.size = sizeof in, .batch = 1, .q_len = 1, .query = x};
    if (heads > 0 && heads <= MAX && mha_head_pruning_create(ctx, &o, &layer, NULL) == MHA_OK &&
        mha_variant_init(layer, NULL, NULL) == MHA_OK && mha_variant_update(layer, NULL) == MHA_OK &&
        mha_trace_create(ctx, &trace, NULL) == MHA_OK && mha_variant_forward(layer, &in, y, trace, NULL) == MHA_OK)
        mha_trace_chosen(trace, 0, &kept);
    same(outcome, "keep_heads", (double)kept, number(table, row, "keep_heads"), 0);
    mha_trace_free(trace);
    mha_variant_free(layer);
}

static void check_rows(mha_ctx *ctx, const json_t *table, const json_t *rows, int64_t d, verify_case *outcome)
{
    size_t n;
    json_t *row;
    const char *name = json_string_value(json_object_get(table, "name"));
    json_array_foreach(rows, n, row)
    {
        if (strstr(name, "parameters"))
            check_parameters(ctx, table, row, outcome);
        else if (strstr(name, "configurations"))
            check_configuration(ctx, table, row, d, outcome);
        else
            check_kept(ctx, table, row, outcome);
    }
}

mha_status verify_tables(mha_ctx *ctx, const json_t *tables, verify_log *log, mha_error *error)
{
    size_t n;
    json_t *table, *rows;
    const char *width;
    json_array_foreach(tables, n, table)
    {
        const verify_entry entry = {table, "tables", error};
        verify_case outcome;
        verify_begin(&outcome, "tables", verify_text(&entry, "name"));
        if (error->status != MHA_OK) return error->status;
        check_rows(ctx, table, json_object_get(table, "rows"), 0, &outcome);
        json_object_foreach(json_object_get(table, "d_model"), width, rows)
            check_rows(ctx, table, rows, strtoll(width, NULL, 10), &outcome);
        verify_end(log, &outcome);
    }
    return MHA_OK;
}
