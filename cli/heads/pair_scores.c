/* pair_scores.c - see pair_scores.h. */
#include "heads/pair_scores.h"

#include "input/head_part.h"
#include "output.h"
#include "word_wrap.h"
#include <math.h>
#include <stdlib.h>

/* A head with its score. */
typedef struct scored {
    const head_part *part;
    int64_t layer, number; /* number of the head in the unpruned model */
    double value, low, high;
} scored;

static int by_value(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? 1 : -1;
    if (x->part != y->part) return x->part > y->part ? 1 : -1;
    if (x->layer != y->layer) return x->layer > y->layer ? 1 : -1;
    return (x->number > y->number) - (x->number < y->number);
}

/* Appends the heads of kind k to `to`; returns the end. `to` may be NULL to count them. */
static size_t list_kind(const head_part *part, const mha_importance *importance, int k, scored *to)
{
    mha_importance_heads h;
    size_t count = 0;
    mha_importance_kind(importance, (mha_head_kind)k, &h);
    for (int64_t n = 0; n < h.layers * h.heads; n++) {
        const int64_t layer = n / h.heads, number = head_part_number(&part[k], layer, n % h.heads);
        if (number < 0) continue;
        if (to) to[count] = (scored){&part[k], layer, number, h.values[n], h.low[n], h.high[n]};
        count++;
    }
    return count;
}

/* Lists the heads of all kinds, layer by layer; NULL if memory is exhausted. */
static scored *list_all(const head_part *part, const mha_importance *importance, size_t *count)
{
    *count = 0;
    for (int k = 0; k < MHA_HEAD_KINDS; k++)
        *count += list_kind(part, importance, k, NULL);
    scored *all = calloc(*count, sizeof *all), *at = all;
    for (int k = 0; all && k < MHA_HEAD_KINDS; k++)
        at += list_kind(part, importance, k, at);
    return all;
}

/* ---- table and CSV ---- */

enum { NAME = 16, SCORE = 10 };

static void put_number(FILE *out, double value)
{
    if (isnan(value))
        fprintf(out, " %*s", SCORE - 1, "-");
    else
        fprintf(out, " %*.3g", SCORE - 1, value);
}

static void put_table(const cli_session *s, scored *all, size_t count)
{
    char name[64];
    qsort(all, count, sizeof *all, by_value);
    fprintf(s->out, "%s%-*s %*s %*s %*s%s\n", cli_bold(s), NAME, "head", SCORE - 1, "import.", SCORE - 1, "95 % from",
            SCORE - 1, "to", cli_plain(s));
    for (size_t n = 0; n < count; n++) {
        snprintf(name, sizeof name, "%s.%lld.%lld", all[n].part->name, (long long)all[n].layer,
                 (long long)all[n].number);
        fprintf(s->out, "%-*s", NAME, name);
        put_number(s->out, all[n].value);
        put_number(s->out, all[n].low);
        put_number(s->out, all[n].high);
        fputc('\n', s->out);
    }
    fputc('\n', s->out);
}

static void put_csv(FILE *out, const scored *all, size_t count)
{
    fputs("kind,layer,head,importance,importance_low,importance_high\n", out);
    for (size_t n = 0; n < count; n++) {
        fprintf(out, "%s,%lld,%lld", all[n].part->name, (long long)all[n].layer, (long long)all[n].number);
        cli_next_csv_number(out, all[n].value);
        cli_next_csv_number(out, all[n].low);
        cli_next_csv_number(out, all[n].high);
        fputc('\n', out);
    }
}

/* ---- JSON ---- */

/* Returns {head_numbers, values, low, high}, each [layers][heads], of one kind; `all` lists its heads by layer. */
static json_t *kind_json(const scored *all, size_t count, int64_t layers)
{
    json_t *lists[] = {json_array(), json_array(), json_array(), json_array()};
    for (int64_t l = 0; l < layers; l++)
        for (int k = 0; k < 4; k++) {
            json_t *row = json_array();
            for (size_t n = 0; n < count; n++) {
                const double values[] = {0, all[n].value, all[n].low, all[n].high};
                if (all[n].layer != l) continue;
                json_array_append_new(row, k ? cli_real(values[k]) : json_integer(all[n].number));
            }
            json_array_append_new(lists[k], row);
        }
    return json_pack("{s:o, s:o, s:o, s:o}", "head_numbers", lists[0], "values", lists[1], "low", lists[2], "high",
                     lists[3]);
}

static json_t *scores_json(const head_part *part, const mha_importance *importance, const scored *all, size_t count,
                           mha_importance_score by)
{
    json_t *said = json_pack(
        "{s:s, s:o, s:I, s:o, s:b}", "by", mha_importance_score_key(by), "loss",
        cli_real(mha_importance_loss(importance)), "texts", (json_int_t)mha_importance_texts_used(importance), "halves",
        cli_real(mha_importance_halves(importance)), "saturated", mha_importance_saturated(importance));
    for (int k = 0; said && k < MHA_HEAD_KINDS; k++) {
        mha_importance_heads heads;
        size_t own = 0;
        mha_importance_kind(importance, (mha_head_kind)k, &heads);
        while (own < count && all[own].part == &part[k])
            own++;
        json_object_set_new(said, part[k].name, kind_json(all, own, heads.layers));
        all += own;
        count -= own;
    }
    return said;
}

/* ---- output ---- */

static void put_trust(const cli_session *s, const mha_importance *importance, mha_importance_score by, int64_t pairs)
{
    const double halves = mha_importance_halves(importance), loss = mha_importance_loss(importance);
    char text[96] = "", trust[96] = "at least two pairs are needed to measure the stability of the ranking";
    if (isfinite(loss)) snprintf(text, sizeof text, ", loss %.4g", loss);
    if (isfinite(halves))
        snprintf(trust, sizeof trust, "rank correlation between the halves of the pairs %.2f", halves);
    cli_put_prose(s, 0, 0, "Importance by %s on %lld of %lld pairs%s; %s.", mha_importance_score_key(by),
                  (long long)mha_importance_texts_used(importance), (long long)pairs, text, trust);
}

int pair_scores_put(cli_session *s, const mha_model *model, const mha_importance *importance, mha_importance_score by,
                    int64_t pairs)
{
    size_t count;
    int code = CLI_DONE;
    head_part part[MHA_HEAD_KINDS];
    head_parts_of(model, part);
    scored *all = list_all(part, importance, &count);
    if (!all) return cli_error(s, CLI_FAILED, "out of memory");
    if (s->options.json) {
        code = cli_put_json(s,
                            json_pack("{s:s, s:I, s:o}", "model", cli_shown(s->model_name), "texts", (json_int_t)pairs,
                                      "importance", scores_json(part, importance, all, count, by)),
                            false);
    } else if (s->options.csv) {
        put_csv(s->out, all, count);
    } else {
        put_table(s, all, count);
        put_trust(s, importance, by, pairs);
    }
    free(all);
    return code;
}
