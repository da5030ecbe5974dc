/* heads_table.c - prints the measured heads of a model as a table and as CSV. */
#include "heads/heads_table.h"

#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Columns of the table, most useful first. Columns that do not fit the terminal are omitted. */
static const struct {
    mha_head_metric metric;
    const char *title;
} columns[] = {
    {MHA_HEAD_ENTROPY, "entropy"}, {MHA_HEAD_DISTANCE, "dist"},
    {MHA_HEAD_FIRST, "first"},     {MHA_HEAD_SEP, "sep"},
    {MHA_HEAD_PREV, "prev"},       {MHA_HEAD_NEXT, "next"},
    {MHA_HEAD_SELF, "self"},       {MHA_HEAD_PUNCT, "punct"},
    {MHA_HEAD_DUP_PROBE, "dup"},   {MHA_HEAD_INDUCTION_PROBE, "induc"},
    {MHA_HEAD_BROAD, "broad"},     {MHA_HEAD_VERTICAL, "vert"},
    {MHA_HEAD_WINDOW2, "win2"},    {MHA_HEAD_TOEPLITZ, "toepl"},
    {MHA_HEAD_OFFSET, "offset"},
};
enum { COLUMNS = sizeof columns / sizeof *columns, NAME_WIDTH = 16 };

static void put_number(FILE *out, int width, double value)
{
    if (isnan(value))
        fprintf(out, " %*s", width, "-");
    else
        fprintf(out, " %*.2f", width, value);
}

static int title_width(int column)
{
    int n = (int)strlen(columns[column].title);
    return n > 5 ? n : 5;
}

/* A head and its importance, which is 0 without --by. */
typedef struct ranked {
    int64_t layer, head;
    double value;
} ranked;

static int by_value(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? 1 : -1;
    return x->layer != y->layer ? (x->layer > y->layer) - (x->layer < y->layer)
                                : (x->head > y->head) - (x->head < y->head);
}

/* Returns all heads, most important first, or in the order of layers without --by; NULL if memory is exhausted. */
static ranked *rank_heads(const measured_heads *m, size_t *count)
{
    *count = 0;
    for (int64_t l = 0; l < mha_heads_layers(m->heads); l++)
        *count += (size_t)mha_heads_count(m->heads, l);
    ranked *all = malloc((*count + 1) * sizeof *all), *at = all;
    for (int64_t l = 0; all && l < mha_heads_layers(m->heads); l++)
        for (int64_t h = 0; h < mha_heads_count(m->heads, l); h++)
            *at++ = (ranked){l, h, m->importance ? mha_importance_value(m->importance, l, h) : 0};
    if (all && m->importance) qsort(all, *count, sizeof *all, by_value);
    return all;
}

enum { SCORE_WIDTH = 9 }; /* characters of an importance such as 1.234e-05 */

/* Prints the importance of a head and, if `shown` is 3, the bounds of its confidence interval. */
static void put_importance(FILE *out, const mha_importance *importance, const ranked *r, int shown)
{
    const double numbers[] = {r->value, mha_importance_low(importance, r->layer, r->head),
                              mha_importance_high(importance, r->layer, r->head)};
    for (int i = 0; i < shown; i++)
        if (isnan(numbers[i]))
            fprintf(out, " %*s", SCORE_WIDTH, "-");
        else
            fprintf(out, " %*.3g", SCORE_WIDTH, numbers[i]);
}

static void put_line(const cli_session *s, const measured_heads *m, const ranked *r, int scores, int shown)
{
    char name[48];
    snprintf(name, sizeof name, "%lld.%lld", (long long)r->layer,
             (long long)mha_head_number(m->model, r->layer, r->head));
    fprintf(s->out, "%-6s%-*s", name, NAME_WIDTH - 6, mha_head_label_key(mha_heads_label(m->heads, r->layer, r->head)));
    if (m->importance) put_importance(s->out, m->importance, r, scores);
    for (int c = 0; c < shown; c++)
        put_number(s->out, title_width(c), mha_heads_value(m->heads, r->layer, r->head, columns[c].metric));
    fputc('\n', s->out);
}

int heads_table_print(const cli_session *s, const measured_heads *m)
{
    static const char *const titles[] = {"import.", "95 % from", "to"};
    const int room = (s->columns - NAME_WIDTH) / (SCORE_WIDTH + 1), scores = !m->importance ? 0 : room < 3 ? 1 : 3;
    int shown = 0, used = NAME_WIDTH + scores * (SCORE_WIDTH + 1);
    for (; shown < COLUMNS && used + title_width(shown) + 1 <= s->columns; shown++)
        used += title_width(shown) + 1;
    size_t count;
    ranked *all = rank_heads(m, &count);
    if (!all) return cli_error(s, CLI_FAILED, "out of memory");
    fprintf(s->out, "%s%-6s%-*s", cli_bold(s), "head", NAME_WIDTH - 6, "label");
    for (int i = 0; i < scores; i++)
        fprintf(s->out, " %*s", SCORE_WIDTH, titles[i]);
    for (int c = 0; c < shown; c++)
        fprintf(s->out, " %*s", title_width(c), columns[c].title);
    fprintf(s->out, "%s\n", cli_plain(s));
    for (size_t i = 0; i < count; i++)
        put_line(s, m, &all[i], scores, shown);
    free(all);
    return CLI_DONE;
}

/* ---- CSV ---- */

void heads_table_csv(FILE *out, const measured_heads *m)
{
    fputs("layer,head,label", out);
    for (int k = 0; k < MHA_HEAD_METRICS; k++)
        fprintf(out, ",%s", mha_head_metric_key((mha_head_metric)k));
    if (m->importance) fputs(",importance,importance_low,importance_high", out);
    fputc('\n', out);
    for (int64_t l = 0; l < mha_heads_layers(m->heads); l++)
        for (int64_t h = 0; h < mha_heads_count(m->heads, l); h++) {
            fprintf(out, "%lld,%lld,%s", (long long)l, (long long)mha_head_number(m->model, l, h),
                    mha_head_label_key(mha_heads_label(m->heads, l, h)));
            for (int k = 0; k < MHA_HEAD_METRICS; k++)
                cli_next_csv_number(out, mha_heads_value(m->heads, l, h, (mha_head_metric)k));
            if (m->importance) {
                cli_next_csv_number(out, mha_importance_value(m->importance, l, h));
                cli_next_csv_number(out, mha_importance_low(m->importance, l, h));
                cli_next_csv_number(out, mha_importance_high(m->importance, l, h));
            }
            fputc('\n', out);
        }
}
