/* report_page.c - collects the data of the page and writes the page. */
#include "report/report_page.h"

#include "heads/head_diversity.h"
#include "heads/heads_json.h"
#include "input/tokens.h"
#include "output.h"
#include "page/page_data.h"
#include "page/page_file.h"
#include "report/report_live.h"
#include "report/report_maps.h"
#include <stdlib.h>

/* Returns the readable text of a token and, if different, its spelling in the tokenizer. */
static json_t *token_json(const mha_model *model, int32_t id)
{
    char digits[CLI_ID_DIGITS];
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    const char *raw = cli_token_name(model, id, digits);
    char *words = cli_token_words(tokenizer, id);
    const bool special = tokenizer && mha_tokenizer_is_special(tokenizer, id);
    json_t *token = words ? json_pack("{s:s, s:s, s:b}", "text", words, "raw", raw, "special", special)
                          : json_pack("{s:s, s:b}", "text", raw, "special", special);
    free(words);
    return token;
}

json_t *report_tokens_json(const mha_model *model, const int32_t *ids, int64_t count)
{
    json_t *array = json_array();
    for (int64_t i = 0; array && i < count; i++)
        array = heads_json_append(array, token_json(model, ids[i]));
    return array;
}

static json_t *metric_help_json(void)
{
    json_t *help = json_object();
    for (mha_head_metric m = 0; m < MHA_HEAD_METRICS; m++)
        json_object_set_new(help, mha_head_metric_key(m), json_string(mha_head_metric_help(m)));
    return help;
}

static json_t *label_help_json(void)
{
    json_t *help = json_object();
    for (mha_head_label label = 0; label < MHA_HEAD_LABELS; label++)
        json_object_set_new(help, mha_head_label_key(label), json_string(mha_head_label_help(label)));
    return help;
}

static json_t *score_help_json(void)
{
    json_t *help = json_object();
    for (mha_importance_score score = 0; score < MHA_IMPORTANCE_SCORES; score++)
        json_object_set_new(help, mha_importance_score_key(score), json_string(mha_importance_score_help(score)));
    return help;
}

static json_t *model_json(const report_model *r, size_t exact_bytes)
{
    const mha_encoding *tokens = mha_heads_tokens(r->heads);
    return json_pack("{s:s, s:b, s:I, s:o, s:o, s:o, s:o, s:o}", "model", cli_shown(r->name), "causal",
                     mha_model_describe(r->model)->causal, "cut", (json_int_t)tokens->truncated, "tokens",
                     report_tokens_json(r->model, tokens->ids, tokens->count), "heads",
                     heads_json_numbers(r->model, r->heads), "metrics", heads_json_metrics(r->heads), "labels",
                     heads_json_labels(r->heads), "maps", report_maps_json(r->heads, exact_bytes));
}

bool report_add(report *r, const char *text, const report_model models[], int count)
{
    json_t *list = json_array();
    for (int i = 0; list && i < count; i++) {
        r->weights += report_maps_weights(models[i].heads);
        list = heads_json_append(list, model_json(&models[i], REPORT_EXACT_BYTES / (size_t)r->planned));
    }
    return report_add_models(r, text, list);
}

bool report_add_models(report *r, const char *text, json_t *models)
{
    if (!r->texts) r->texts = json_array();
    json_t *item = models ? json_pack("{s:s, s:o}", "text", text, "models", models) : NULL;
    return json_array_append_new(r->texts, item) == 0;
}

bool report_measured(report *r, json_t *importance, json_t *diversity, json_t *curve)
{
    if (!r->measured) r->measured = json_array();
    json_t *all = json_pack("{s:O*, s:O*, s:O*}", "importance", importance, "diversity", diversity, "curve", curve);
    return json_array_append_new(r->measured, all) == 0;
}

void report_free(report *r)
{
    json_decref(r->texts);
    json_decref(r->measured);
    json_decref(r->demo);
    json_decref(r->live);
}

static json_t *page_data(const report *r)
{
    return json_pack("{s:s, s:O, s:O, s:O*, s:O*, s:o, s:o, s:o, s:o, s:o, s:o}", "mha", mha_version(), "texts",
                     r->texts, "measured", r->measured, "demo", r->demo, "live", r->live, "metric_help",
                     metric_help_json(), "label_help", label_help_json(), "score_help", score_help_json(),
                     "diversity_help", head_diversity_help(), "diversity_distance", head_diversity_distances(), "ramp",
                     page_color_ramp());
}

int report_page_save(cli_session *session, const report *r)
{
    char *before = r->live ? report_live_allow(report_page_before) : NULL;
    const int code = page_file_save(session, before ? (const unsigned char *)before : report_page_before, page_data(r),
                                    report_page_after);
    free(before);
    return code;
}
