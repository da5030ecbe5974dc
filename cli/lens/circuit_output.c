/* circuit_output.c - prints the circuits that `mha circuit` measures: as tables, JSON, CSV and maps of a page. */
#include "lens/circuit_output.h"

#include "lens/lens_page.h"
#include "output.h"
#include "word_wrap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STRONGEST = 10 };

static bool defined(const circuits *x, mha_circuit_kind what)
{
    return !mha_weight_circuits_reason(x->c, what);
}

/* ---- a table of heads ---- */

static const struct {
    const char *title, *key;
} columns[] = {{"copying", "copying_centred"},    {"copying, uncentered", "copying"}, {"trace", "trace"},
               {"qk max", "qk_largest"},          {"qk directions", "qk_directions"}, {"ov max", "ov_largest"},
               {"ov directions", "ov_directions"}};
enum { COLUMNS = sizeof columns / sizeof *columns };

static double largest(const circuits *x, mha_circuit_kind what, int64_t layer, int64_t head)
{
    const double *s = mha_weight_circuits_singular(x->c, what, layer, head, NULL);
    return s ? s[0] : NAN;
}

static double column_value(const circuits *x, int column, int64_t layer, int64_t head)
{
    switch (column) {
    case 0:
        return mha_weight_circuits_copying(x->c, layer, head, 1);
    case 1:
        return mha_weight_circuits_copying(x->c, layer, head, 0);
    case 2:
        return mha_weight_circuits_trace(x->c, layer, head);
    case 3:
        return largest(x, MHA_CIRCUIT_QK, layer, head);
    case 4:
        return mha_weight_circuits_directions(x->c, MHA_CIRCUIT_QK, layer, head);
    case 5:
        return largest(x, MHA_CIRCUIT_OV, layer, head);
    default:
        return mha_weight_circuits_directions(x->c, MHA_CIRCUIT_OV, layer, head);
    }
}

static json_t *copying_map(const circuits *x)
{
    json_t *map = circuit_map("Copying score",
                              "1 = the head increases the logits of the tokens that it attends to, -1 = it "
                              "decreases them; the mean logit over the vocabulary is subtracted.",
                              "signed", "layer", "head");
    for (int64_t n = 0; n < x->info->original_heads; n++)
        circuit_map_column(map, json_sprintf("%lld", (long long)n));
    for (int64_t l = 0; l < x->info->layers; l++) {
        circuit_map_row(map, json_sprintf("%lld", (long long)l));
        for (int64_t n = 0; n < x->info->original_heads; n++)
            circuit_map_cell(map, mha_weight_circuits_copying(x->c, l, mha_head_place(x->model, l, n), 1), NULL, NULL);
    }
    return map;
}

/* The columns of the printed table, which has fewer than the CSV. */
static const struct {
    const char *title;
    int column;
} shown[] = {{"copying", 0}, {"qk max", 3}, {"qk dirs", 4}, {"ov max", 5}, {"ov dirs", 6}};
enum { SHOWN = sizeof shown / sizeof *shown };

static void print_row(const cli_session *s, const circuits *x, int64_t layer, int64_t head)
{
    char name[48];
    snprintf(name, sizeof name, "%lld.%lld", (long long)layer, (long long)mha_head_number(x->model, layer, head));
    fprintf(s->out, "%-8s", name);
    for (int i = 0; i < SHOWN; i++) {
        const double value = column_value(x, shown[i].column, layer, head);
        if (isnan(value))
            fprintf(s->out, " %9s", "-");
        else
            fprintf(s->out, i == 0 ? " %+9.2f" : " %9.2f", value);
    }
    fputc('\n', s->out);
}

static void print_table(const cli_session *s, const circuits *x)
{
    fprintf(s->out, "%s%-8s", cli_bold(s), "head");
    for (int i = 0; i < SHOWN; i++)
        fprintf(s->out, " %9s", shown[i].title);
    fprintf(s->out, "%s\n", cli_plain(s));
    for (int64_t l = 0; l < x->info->layers; l++)
        for (int64_t h = 0; h < x->info->heads_per_layer[l]; h++)
            print_row(s, x, l, h);
}

/* ---- composition ---- */

typedef struct pair {
    int64_t from_layer, from, layer, head;
    double excess; /* above the baseline */
} pair;

static int by_excess(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    return (x->excess < y->excess) - (x->excess > y->excess);
}

/* Returns all pairs of heads of different layers, the strongest first; NULL if memory is exhausted. */
static pair *rank_pairs(const circuits *x, int64_t *count)
{
    const int64_t H = x->info->heads, all = x->info->layers * H;
    pair *pairs = calloc((size_t)(all * all) + 1, sizeof *pairs);
    *count = 0;
    for (int64_t n = 0; pairs && n < all * all; n++) {
        const int64_t s = n / all, t = n % all;
        if (s / H >= t / H) continue;
        const double ratio = mha_weight_circuits_composition(x->c, x->compose, s / H, s % H, t / H, t % H);
        if (isfinite(ratio))
            pairs[(*count)++] = (pair){s / H, s % H, t / H, t % H, ratio - mha_weight_circuits_baseline(x->c)};
    }
    if (pairs) qsort(pairs, (size_t)*count, sizeof *pairs, by_excess);
    return pairs;
}

static const char *compose_name(const circuits *x)
{
    return mha_circuit_key(x->compose) + strlen("compose_");
}

static int print_pairs(const cli_session *s, const circuits *x)
{
    int64_t count;
    pair *pairs = rank_pairs(x, &count);
    if (!pairs) return cli_error(s, CLI_FAILED, "out of memory for the pairs of heads");
    fprintf(s->out, "\n%sstrongest %s-composition%s (random heads: %.3f)\n", cli_bold(s), compose_name(x), cli_plain(s),
            mha_weight_circuits_baseline(x->c));
    for (int64_t n = 0; n < count && n < STRONGEST; n++)
        fprintf(s->out, "  %lld.%lld -> %lld.%lld  %.3f  %+.3f\n", (long long)pairs[n].from_layer,
                (long long)mha_head_number(x->model, pairs[n].from_layer, pairs[n].from), (long long)pairs[n].layer,
                (long long)mha_head_number(x->model, pairs[n].layer, pairs[n].head),
                pairs[n].excess + mha_weight_circuits_baseline(x->c), pairs[n].excess);
    free(pairs);
    return CLI_DONE;
}

static json_t *composition_map(const circuits *x, mha_circuit_kind what)
{
    char title[40];
    const int64_t H = x->info->heads, all = x->info->layers * H;
    snprintf(title, sizeof title, "%s-composition above random heads", mha_circuit_key(what) + strlen("compose_"));
    title[0] = (char)(title[0] - 'a' + 'A');
    json_t *map = circuit_map(title, mha_circuit_help(what), "signed", "sender", "receiver");
    for (int64_t t = H; t < all; t++)
        if (t % H < x->info->heads_per_layer[t / H]) circuit_map_column(map, circuit_head(x->model, t / H, t % H));
    for (int64_t s = 0; s < all - H; s++) {
        if (s % H >= x->info->heads_per_layer[s / H]) continue;
        circuit_map_row(map, circuit_head(x->model, s / H, s % H));
        for (int64_t t = H; t < all; t++) {
            const double ratio = mha_weight_circuits_composition(x->c, what, s / H, s % H, t / H, t % H);
            if (t % H >= x->info->heads_per_layer[t / H]) continue;
            circuit_map_cell(map, s / H < t / H ? ratio - mha_weight_circuits_baseline(x->c) : NAN, NULL, NULL);
        }
    }
    return map;
}

/* ---- JSON and CSV ---- */

static json_t *singular_json(const circuits *x, mha_circuit_kind what)
{
    json_t *layers = json_array();
    for (int64_t l = 0; l < x->info->layers; l++) {
        json_t *heads = json_array();
        for (int64_t h = 0; h < x->info->heads_per_layer[l]; h++) {
            int64_t count;
            const double *s = mha_weight_circuits_singular(x->c, what, l, h, &count);
            json_t *values = json_array();
            for (int64_t i = 0; i < count; i++)
                json_array_append_new(values, cli_real(s[i]));
            json_array_append_new(heads, values);
        }
        json_array_append_new(layers, heads);
    }
    return layers;
}

static json_t *column_json(const circuits *x, int column)
{
    json_t *layers = json_array();
    for (int64_t l = 0; l < x->info->layers; l++) {
        json_t *heads = json_array();
        for (int64_t h = 0; h < x->info->heads_per_layer[l]; h++)
            json_array_append_new(heads, cli_real(column_value(x, column, l, h)));
        json_array_append_new(layers, heads);
    }
    return layers;
}

/* Returns the composition of all heads that exist, [senders][receivers], in the order of "heads". */
static json_t *composition_json(const circuits *x, mha_circuit_kind what)
{
    const int64_t H = x->info->heads, all = x->info->layers * H;
    json_t *rows = json_array();
    for (int64_t s = 0; s < all; s++) {
        if (s % H >= x->info->heads_per_layer[s / H]) continue;
        json_t *row = json_array();
        for (int64_t t = 0; t < all; t++)
            if (t % H < x->info->heads_per_layer[t / H])
                json_array_append_new(
                    row, cli_real(mha_weight_circuits_composition(x->c, what, s / H, s % H, t / H, t % H)));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *heads_json(const circuits *x)
{
    json_t *names = json_array();
    for (int64_t l = 0; l < x->info->layers; l++)
        for (int64_t h = 0; h < x->info->heads_per_layer[l]; h++)
            json_array_append_new(names, circuit_head(x->model, l, h));
    return names;
}

static json_t *circuits_json(const cli_session *s, const circuits *x)
{
    json_t *singular = json_object(), *composition = json_object(), *undefined = json_object();
    for (int k = 0; k < MHA_CIRCUITS; k++) {
        const mha_circuit_kind what = (mha_circuit_kind)k;
        const char *reason = mha_weight_circuits_reason(x->c, what), *key = mha_circuit_key(what);
        if (reason)
            json_object_set_new(undefined, key, json_string(reason));
        else if (k <= MHA_CIRCUIT_OV)
            json_object_set_new(singular, key, singular_json(x, what));
        else if (k >= MHA_CIRCUIT_COMPOSE_Q)
            json_object_set_new(composition, key, composition_json(x, what));
    }
    json_t *all = json_pack("{s:s, s:b, s:o, s:o, s:o, s:o, s:o}", "model", cli_shown(s->model_name), "raw", x->raw,
                            "heads", heads_json(x), "baseline", cli_real(mha_weight_circuits_baseline(x->c)),
                            "singular", singular, "composition", composition, "undefined", undefined);
    for (int c = 0; all && c < 3 && defined(x, MHA_CIRCUIT_COPYING); c++)
        json_object_set_new(all, columns[c].key, column_json(x, c));
    return all;
}

static void put_csv(const cli_session *s, const circuits *x)
{
    fputs("layer,head", s->out);
    for (int c = 0; c < COLUMNS; c++)
        fprintf(s->out, ",%s", columns[c].key);
    fputc('\n', s->out);
    for (int64_t l = 0; l < x->info->layers; l++)
        for (int64_t h = 0; h < x->info->heads_per_layer[l]; h++) {
            fprintf(s->out, "%lld,%lld", (long long)l, (long long)mha_head_number(x->model, l, h));
            for (int c = 0; c < COLUMNS; c++)
                cli_next_csv_number(s->out, column_value(x, c, l, h));
            fputc('\n', s->out);
        }
}

/* ---- output ---- */

/* Prints the measures that are not defined for the model, with the reason. */
static void put_undefined(const cli_session *s, const circuits *x)
{
    for (int k = 0; k < MHA_CIRCUITS; k++) {
        const char *reason = mha_weight_circuits_reason(x->c, (mha_circuit_kind)k);
        if (reason)
            cli_put_prose(s, 0, 2, "%s: not defined for %s: %s", mha_circuit_key((mha_circuit_kind)k), x->info->family,
                          reason);
    }
}

static void put_singular(const cli_session *s, const circuits *x)
{
    for (int k = 0; x->singular.layer >= 0 && k <= MHA_CIRCUIT_OV; k++) {
        int64_t count;
        const double *values =
            mha_weight_circuits_singular(x->c, (mha_circuit_kind)k, x->singular.layer, x->singular.head, &count);
        if (!values) continue;
        fprintf(s->out, "\n%s%s of head %d.%lld%s", cli_bold(s), mha_circuit_key((mha_circuit_kind)k),
                (int)x->singular.layer, (long long)mha_head_number(x->model, x->singular.layer, x->singular.head),
                cli_plain(s));
        const int per_line = s->columns / 9 > 1 ? s->columns / 9 : 1;
        for (int64_t i = 0; i < count; i++)
            fprintf(s->out, "%s%9.4f", i % per_line == 0 ? "\n" : "", values[i]);
        fputc('\n', s->out);
    }
}

static int put_page(const cli_session *s, const circuits *x)
{
    json_t *maps = json_array(), *lines = json_array();
    json_array_append_new(
        lines, json_sprintf("%s, %s", x->info->family, x->raw ? "weights as stored" : "norms folded into the weights"));
    json_array_append_new(lines, json_sprintf("Composition of random heads: %.4f", mha_weight_circuits_baseline(x->c)));
    if (defined(x, MHA_CIRCUIT_COPYING)) json_array_append_new(maps, copying_map(x));
    for (int k = MHA_CIRCUIT_COMPOSE_Q; k < MHA_CIRCUITS; k++)
        if (defined(x, (mha_circuit_kind)k)) json_array_append_new(maps, composition_map(x, (mha_circuit_kind)k));
    return lens_page_write(s, "Circuits from weights", lines, maps);
}

int circuits_put(cli_session *s, const circuits *x)
{
    int code = s->options.out ? put_page(s, x) : CLI_DONE;
    if (code != CLI_DONE) return code;
    if (s->options.json) return cli_put_json(s, circuits_json(s, x), false);
    if (s->options.csv) {
        put_csv(s, x);
        return CLI_DONE;
    }
    if (s->options.out) return CLI_DONE;
    print_table(s, x);
    if (defined(x, x->compose)) code = print_pairs(s, x);
    put_singular(s, x);
    fputc('\n', s->out);
    put_undefined(s, x);
    return code;
}
