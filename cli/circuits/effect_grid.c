/* effect_grid.c - collects the values of an intervention over pairs of prompts: means, normalized values and intervals.
 * */
#include "circuits/effect_grid.h"

#include "circuits/head_numbers.h"
#include "input/tokens.h"
#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- heads by number ---- */

/* Returns whether axis `axis` lists heads of several layers, numbered layer * heads + head. */
static bool lists_heads(const effect_grid *g, int axis)
{
    return axis < 2 && g->heads[axis] > 0;
}

static mha_site site_on(const effect_grid *g, int axis)
{
    return strcmp(g->axes[axis], "sender") == 0 ? MHA_SITE_Z : g->head_site;
}

/* Sets the element of each measured value. `places` [rank] and `heads` are shape and heads of the grid by position. */
static void map_elements(effect_grid *g, const int64_t *places, const int64_t *heads)
{
    for (int64_t n = 0; n < g->measured; n++) {
        int64_t index[3] = {0}, rest = n, element = 0;
        for (int axis = g->rank - 1; axis >= 0; rest /= places[axis--])
            index[axis] = rest % places[axis];
        for (int axis = 0; element >= 0 && axis < g->rank; axis++) {
            const bool lists = lists_heads(g, axis), head = strcmp(g->axes[axis], "head") == 0;
            const int64_t layer = lists ? index[axis] / heads[axis] : index[0];
            int64_t at = lists ? index[axis] % heads[axis] : index[axis];
            if (lists || head) at = head_number(g->model, site_on(g, axis), layer, at);
            element = at < 0 ? -1 : element * g->shape[axis] + (lists ? layer * g->heads[axis] : 0) + at;
        }
        g->element[n] = element;
        if (element >= 0) g->absent[element] = false;
    }
}

bool effect_grid_open(effect_grid *grid, int rank, const int64_t *shape)
{
    const int64_t heads[2] = {grid->heads[0], grid->heads[1]};
    grid->rank = rank;
    grid->count = grid->measured = 1;
    for (int n = 0; n < rank; n++) {
        const bool lists = lists_heads(grid, n), by_head = lists || strcmp(grid->axes[n], "head") == 0;
        const int64_t columns = by_head ? head_columns(grid->model, site_on(grid, n)) : shape[n];
        grid->shape[n] = lists ? shape[n] / heads[n] * columns : columns;
        if (lists) grid->heads[n] = columns;
        grid->count *= grid->shape[n];
        grid->measured *= shape[n];
    }
    grid->change = calloc((size_t)grid->count * 5, sizeof *grid->change);
    grid->element = calloc((size_t)grid->measured, sizeof *grid->element);
    grid->absent = malloc((size_t)grid->count * sizeof *grid->absent);
    if (!grid->change || !grid->element || !grid->absent) return false;
    grid->squares = grid->change + grid->count;
    grid->value = grid->squares + grid->count;
    grid->half = grid->value + grid->count;
    grid->mean = grid->half + grid->count;
    memset(grid->absent, true, (size_t)grid->count);
    map_elements(grid, shape, heads);
    return true;
}

void effect_grid_free(effect_grid *grid)
{
    free(grid->change);
    free(grid->element);
    free(grid->absent);
    free(grid->edges);
    *grid = (effect_grid){0};
}

/* ---- values ---- */

/* Updates the mean and the squared deviations for each pair (Welford 1962): a difference of sums of squares would lose
 * the digits of a deviation that is small compared with the mean. */
void effect_grid_add(effect_grid *grid, const double *values, double base, double clean, double corrupted)
{
    grid->pairs++;
    for (int64_t k = 0; k < grid->measured; k++) {
        const int64_t n = grid->element[k];
        if (n < 0) continue;
        const double change = values[k] - base, step = change - grid->change[n];
        grid->change[n] += step / (double)grid->pairs;
        grid->squares[n] += step * (change - grid->change[n]);
    }
    grid->base += base;
    grid->clean += clean;
    grid->corrupted += corrupted;
}

void effect_grid_finish(effect_grid *grid, bool raw)
{
    const double pairs = (double)grid->pairs;
    grid->base /= pairs;
    grid->clean /= pairs;
    grid->corrupted /= pairs;
    const double unit = grid->clean - grid->corrupted;
    grid->raw = raw || isnan(mha_patch_normalized(0, grid->clean, grid->corrupted));
    for (int64_t n = 0; n < grid->count; n++) {
        grid->mean[n] = grid->absent[n] ? NAN : grid->base + grid->change[n];
        grid->value[n] = grid->raw ? grid->mean[n] : (grid->mean[n] - grid->corrupted) / unit;
        grid->half[n] = grid->pairs > 1
                            ? mha_student_quantile(grid->pairs - 1) * sqrt(grid->squares[n] / (pairs - 1) / pairs) /
                                  (grid->raw ? 1 : fabs(unit))
                            : 0;
        if (grid->absent[n]) grid->half[n] = NAN;
    }
}

double effect_grid_change(const effect_grid *grid, int64_t n)
{
    const double unit = grid->clean - grid->corrupted;
    return grid->value[n] - (grid->raw ? grid->base : (grid->base - grid->corrupted) / unit);
}

int64_t effect_grid_next(const effect_grid *grid, bool *taken)
{
    int64_t best = -1;
    for (int64_t n = 0; n < grid->count; n++)
        if (!taken[n] && !grid->absent[n] &&
            (best < 0 || fabs(effect_grid_change(grid, n)) > fabs(effect_grid_change(grid, best))))
            best = n;
    if (best >= 0) taken[best] = true;
    return best;
}

void effect_grid_index(const effect_grid *g, int axis, int64_t n, char text[EFFECT_INDEX])
{
    const int64_t heads = axis < 2 ? g->heads[axis] : 0;
    if (heads)
        snprintf(text, EFFECT_INDEX, "%lld.%lld", (long long)(n / heads), (long long)(n % heads));
    else
        snprintf(text, EFFECT_INDEX, "%lld", (long long)n);
}

/* ---- edges ---- */

static const char *const edge_inputs[] = {"q", "k", "v", "logits", "mlp"};

/* Writes the name of a node: its head by number, "mlp" with its layer, or `end` for a node without layer. */
static const char *node_name(int64_t layer, int64_t number, const char *end, char text[EFFECT_INDEX])
{
    if (layer < 0) return end;
    if (number < 0)
        snprintf(text, EFFECT_INDEX, "mlp %lld", (long long)layer);
    else
        snprintf(text, EFFECT_INDEX, "%lld.%lld", (long long)layer, (long long)number);
    return text;
}

static const char *sender_name(const effect_grid *g, const mha_path_edge *e, char text[EFFECT_INDEX])
{
    const int64_t number = e->from_head < 0 ? -1 : head_number(g->model, MHA_SITE_Z, e->from_layer, e->from_head);
    return node_name(e->from_layer, number, "embedding", text);
}

/* Returns the number of the receiving head; -1 for feed-forward parts and logits. */
static int64_t receiver_number(const effect_grid *g, const mha_path_edge *e)
{
    static const mha_site sites[] = {MHA_SITE_Q, MHA_SITE_K, MHA_SITE_V};
    return e->to_head < 0 ? -1 : head_number(g->model, sites[e->to], e->to_layer, e->to_head);
}

static const char *receiver_name(const effect_grid *g, const mha_path_edge *e, char text[EFFECT_INDEX])
{
    return node_name(e->to_layer, receiver_number(g, e), "logits", text);
}

static const char *edge_name(const effect_grid *g, const mha_path_edge *e, char text[EFFECT_PART])
{
    char from[EFFECT_INDEX], to[EFFECT_INDEX];
    snprintf(text, EFFECT_PART, "%s -> %s%s%s", sender_name(g, e, from), receiver_name(g, e, to),
             e->to_head < 0 ? "" : " ", e->to_head < 0 ? "" : edge_inputs[e->to]);
    return text;
}

const char *effect_grid_part(const effect_grid *grid, const prompt_case *one, int64_t n, char text[EFFECT_PART])
{
    int64_t index[3] = {0};
    char token[PROMPT_TOKEN], name[EFFECT_INDEX], *at = text;
    for (int axis = grid->rank - 1; axis >= 0; axis--) {
        index[axis] = n % grid->shape[axis];
        n /= grid->shape[axis];
    }
    *at = '\0';
    if (grid->edges) return edge_name(grid, &grid->edges[index[0]], text);
    for (int axis = 0; axis < grid->rank; axis++) {
        const size_t room = EFFECT_PART - (size_t)(at - text);
        if (strcmp(grid->axes[axis], "position") == 0 || strcmp(grid->axes[axis], "key") == 0)
            at += snprintf(at, room, "%s@%lld \"%s\"", axis ? " " : "", (long long)index[axis],
                           prompt_token(grid->model, one->clean[index[axis]], token));
        else {
            effect_grid_index(grid, axis, index[axis], name);
            at += snprintf(at, room, "%s%s", !axis ? "" : grid->heads[0] ? " -> " : ".", name);
        }
    }
    return text;
}

/* ---- JSON and CSV ---- */

/* Returns a list of numbers; null for NaN. */
static json_t *row_json(const double *values, int64_t count)
{
    json_t *row = json_array();
    for (int64_t n = 0; n < count; n++)
        json_array_append_new(row, cli_real(values[n]));
    return row;
}

static json_t *table_json(const double *values, int64_t rows, int64_t columns)
{
    json_t *table = json_array();
    for (int64_t n = 0; n < rows; n++)
        json_array_append_new(table, row_json(values + n * columns, columns));
    return table;
}

/* Returns nested lists in the shape of the grid. */
static json_t *nested(const effect_grid *g, const double *values)
{
    if (g->rank == 1) return row_json(values, g->count);
    if (g->rank == 2) return table_json(values, g->shape[0], g->shape[1]);
    json_t *layers = json_array();
    for (int64_t n = 0; n < g->shape[0]; n++)
        json_array_append_new(layers, table_json(values + n * g->shape[1] * g->shape[2], g->shape[1], g->shape[2]));
    return layers;
}

/* Returns [{from, to, input}]: names of nodes, and what the receiver reads. */
static json_t *edges_json(const effect_grid *g)
{
    json_t *list = json_array();
    for (int64_t n = 0; n < g->count; n++) {
        const mha_path_edge *e = &g->edges[n];
        char from[EFFECT_INDEX], to[EFFECT_INDEX];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "from", sender_name(g, e, from), "to",
                                              receiver_name(g, e, to), "input", edge_inputs[e->to]));
    }
    return list;
}

json_t *effect_grid_json(const effect_grid *g)
{
    json_t *axes = json_array();
    for (int n = 0; n < g->rank; n++)
        json_array_append_new(axes, json_string(g->axes[n]));
    const bool divided = !isnan(mha_patch_normalized(0, g->clean, g->corrupted));
    double *normalized = calloc((size_t)g->count, sizeof *normalized);
    for (int64_t n = 0; normalized && n < g->count; n++)
        normalized[n] = mha_patch_normalized(g->mean[n], g->clean, g->corrupted);
    json_t *object = json_pack("{s:s, s:s, s:s*, s:s, s:b, s:s*, s:o, s:o, s:o}", "site", g->site, "by", g->by,
                               "direction", g->direction, "metric", g->metric, "exact", g->estimate == NULL, "estimate",
                               g->estimate, "axes", axes, "raw", nested(g, g->mean), "normalised",
                               divided && normalized ? nested(g, normalized) : json_null());
    if (g->pairs > 1) json_object_set_new(object, "interval", nested(g, g->half));
    if (*g->sender) json_object_set_new(object, "sender", json_string(g->sender));
    if (g->heads[0])
        json_object_set_new(object, "heads", json_pack("[I, I]", (json_int_t)g->heads[0], (json_int_t)g->heads[1]));
    if (g->edges) json_object_set_new(object, "edges", edges_json(g));
    free(normalized);
    return object;
}

void effect_grid_csv_head(FILE *out)
{
    fputs("site,by,direction,metric,estimate,sender,layer,head,position,raw,normalised,interval\n", out);
}

/* Returns the index of element n on an axis; -1 if the grid does not have the axis. */
static int64_t index_on(const effect_grid *g, const char *axis, int64_t n)
{
    int64_t each = 1;
    for (int k = g->rank - 1; k >= 0; k--) {
        if (strcmp(g->axes[k], axis) == 0) return n / each % g->shape[k];
        each *= g->shape[k];
    }
    return -1;
}

/* Writes an index, or nothing if it is negative. */
static void put_index(FILE *out, int64_t index)
{
    if (index >= 0) fprintf(out, "%lld", (long long)index);
    fputc(',', out);
}

/* Writes the sender of a path, and the layer, head and position of the part; for paths, of the receiver. */
static void put_part(FILE *out, const effect_grid *g, int64_t n)
{
    if (g->edges) {
        char from[EFFECT_INDEX];
        fprintf(out, "%s,", sender_name(g, &g->edges[n], from));
        put_index(out, g->edges[n].to_layer);
        put_index(out, receiver_number(g, &g->edges[n]));
        put_index(out, -1);
        return;
    }
    char sender[EFFECT_INDEX] = "";
    const int64_t from = index_on(g, "sender", n), to = index_on(g, "receiver", n), key = index_on(g, "key", n);
    if (from >= 0) effect_grid_index(g, 0, from, sender);
    fprintf(out, "%s,", *g->sender ? g->sender : sender);
    put_index(out, to >= 0 ? to / g->heads[1] : index_on(g, "layer", n));
    put_index(out, to >= 0 ? to % g->heads[1] : index_on(g, "head", n));
    put_index(out, key >= 0 ? key : index_on(g, "position", n));
}

void effect_grid_csv(FILE *out, const effect_grid *g)
{
    for (int64_t n = 0; n < g->count; n++) {
        if (g->absent[n]) continue;
        const double normalized = mha_patch_normalized(g->mean[n], g->clean, g->corrupted);
        const char *site = g->edges ? edge_inputs[g->edges[n].to] : g->site;
        fprintf(out, "%s,%s,%s,%s,%s,", site, g->by, g->direction ? g->direction : "", g->metric,
                g->estimate ? g->estimate : "exact");
        put_part(out, g, n);
        fprintf(out, "%.9g,", g->mean[n]);
        if (!isnan(normalized)) fprintf(out, "%.9g", normalized);
        if (g->pairs > 1)
            fprintf(out, ",%.9g\n", g->half[n]);
        else
            fputs(",\n", out);
    }
}
