/* demo_copy.c - measures how well the model copies with some heads ablated. */
#include "run/demo_copy.h"

#include "output.h"
#include "word_wrap.h"
#include <math.h>

enum { LISTED = 6 }; /* maximum number of heads named in a line */

/* Returns log p of the token `next`, where p = softmax(logits). */
static double log_chance(const float *logits, int64_t vocab, int32_t next)
{
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < vocab; i++)
        max = fmax(max, (double)logits[i]);
    for (int64_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - max);
    return (double)logits[next] - max - log(sum);
}

/* Computes the geometric mean of the probabilities of the second copy's tokens, except the first, which cannot be
 * predicted. `gates` [layers, heads] multiply the heads. Returns an exit code. */
static int measure(const cli_session *s, const demo_copy *c, const float *gates, double *chance)
{
    const mha_encoding *tokens = mha_heads_tokens(c->heads);
    const int64_t n = tokens->count, vocab = mha_model_describe(c->model)->vocab;
    float *logits = mha_alloc(s->ctx, (size_t)(n * vocab) * sizeof *logits);
    if (!logits) return cli_error(s, CLI_FAILED, "out of memory for %lld rows of logits", (long long)n);
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = n, .ids = tokens->ids, .gates = gates};
    const mha_model_output out = {.size = sizeof out, .logits = logits};
    mha_error error = {0};
    const mha_status status = mha_model_forward(c->model, &in, &out, &error);
    double sum = 0;
    for (int64_t i = c->again; status == MHA_OK && i + 1 < n; i++)
        sum += log_chance(logits + i * vocab, vocab, tokens->ids[i + 1]);
    *chance = exp(sum / (double)(n - 1 - c->again));
    mha_free(s->ctx, logits);
    return status == MHA_OK ? CLI_DONE : cli_refuse(s, &error);
}

/* ---- selection of the ablated heads ---- */

typedef struct choice {
    const char *words;
    bool (*takes)(const mha_heads *heads, int64_t layer, int64_t head);
} choice;

static bool is_induction(const mha_heads *heads, int64_t l, int64_t h)
{
    return mha_heads_label(heads, l, h) == MHA_LABEL_INDUCTION;
}

static bool is_previous(const mha_heads *heads, int64_t l, int64_t h)
{
    return mha_heads_label(heads, l, h) == MHA_LABEL_PREV;
}

/* Returns true for a head that is not an induction head, in a layer that has induction heads. */
static bool is_beside(const mha_heads *heads, int64_t l, int64_t h)
{
    bool any = false;
    for (int64_t other = 0; other < mha_heads_count(heads, l); other++)
        any |= is_induction(heads, l, other);
    return any && !is_induction(heads, l, h);
}

static const choice choices[] = {{"the induction heads", is_induction},
                                 {"the previous-token heads", is_previous},
                                 {"other heads of layers with induction heads", is_beside}};
enum { CHOICES = sizeof choices / sizeof *choices };
_Static_assert(CHOICES + 1 == DEMO_ROWS, "one row per choice, and one with all heads");

/* Sets the gates of the selected heads to 0 and all other gates to 1, and writes the names of the selected heads to
 * `row`. Returns the number of selected heads. */
static int64_t close_gates(const demo_copy *c, const choice *what, float *gates, demo_row *row)
{
    const int64_t layers = mha_heads_layers(c->heads), heads = mha_model_describe(c->model)->heads;
    int64_t closed = 0;
    size_t used = 0;
    for (int64_t at = 0; at < layers * heads; at++) {
        const int64_t l = at / heads, h = at % heads;
        char name[48];
        gates[at] = 1;
        if (!what->takes(c->heads, l, h)) continue;
        gates[at] = 0;
        closed++;
        snprintf(name, sizeof name, "%lld.%lld", (long long)l, (long long)h);
        json_array_append_new(row->heads, json_string(name));
        if (closed <= LISTED + 1)
            used +=
                (size_t)snprintf(row->names + used, sizeof row->names - used, " %s", closed > LISTED ? "..." : name);
    }
    return closed;
}

/* ---- table of probabilities ---- */

static bool is_none(const mha_heads *heads, int64_t l, int64_t h)
{
    (void)heads, (void)l, (void)h;
    return false;
}

static int measure_row(const cli_session *s, const demo_copy *c, const choice *what, float *gates, demo_table *table)
{
    demo_row *row = &table->row[table->count];
    *row = (demo_row){.heads = json_array()};
    if (!row->heads) return cli_error(s, CLI_FAILED, "out of memory for the names of heads");
    table->count++;
    if (close_gates(c, what, gates, row) > 0)
        snprintf(row->words, sizeof row->words, "without %s", what->words);
    else
        snprintf(row->words, sizeof row->words, "with all %lld heads",
                 (long long)(mha_heads_layers(c->heads) * mha_model_describe(c->model)->heads));
    return measure(s, c, gates, &row->chance);
}

static bool has_any(const demo_copy *c, const choice *what)
{
    const int64_t layers = mha_heads_layers(c->heads), heads = mha_model_describe(c->model)->heads;
    bool any = false;
    for (int64_t at = 0; at < layers * heads; at++)
        any |= what->takes(c->heads, at / heads, at % heads);
    return any;
}

int demo_copy_measure(const cli_session *s, const demo_copy *c, demo_table *table)
{
    static const choice nothing = {"nothing", is_none};
    const int64_t total = mha_heads_layers(c->heads) * mha_model_describe(c->model)->heads;
    float *gates = mha_alloc(s->ctx, (size_t)total * sizeof *gates);
    *table = (demo_table){0};
    if (!gates) return cli_error(s, CLI_FAILED, "out of memory for %lld gates", (long long)total);
    int code = measure_row(s, c, &nothing, gates, table);
    for (int i = 0; code == CLI_DONE && i < CHOICES; i++)
        if (has_any(c, &choices[i])) code = measure_row(s, c, &choices[i], gates, table);
    mha_free(s->ctx, gates);
    return code;
}

void demo_table_put(const cli_session *s, const demo_table *table, int indent)
{
    for (int i = 0; i < table->count; i++) {
        const demo_row *row = &table->row[i];
        fprintf(s->out, "%*s%s%5.1f %%%s  ", indent, "", cli_bold(s), 100 * row->chance, cli_plain(s));
        cli_put_prose(s, indent + 9, indent + 9, "%s%s%s", row->words, *row->names ? ":" : "", row->names);
    }
}

json_t *demo_table_json(const demo_table *table)
{
    json_t *all = json_array();
    for (int i = 0; i < table->count; i++)
        json_array_append_new(all, json_pack("{s:s, s:O, s:f}", "words", table->row[i].words, "heads",
                                             table->row[i].heads, "chance", table->row[i].chance));
    return all;
}

void demo_table_free(demo_table *table)
{
    for (int i = 0; i < table->count; i++)
        json_decref(table->row[i].heads);
}
