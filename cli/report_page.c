/* report_page.c - puts the data into the page. */
#include "report_page.h"

#include <stdlib.h>

#include "colour.h"
#include "head_diversity.h"
#include "heads_json.h"
#include "output.h"
#include "page_data.h"
#include "report_maps.h"
#include "tokens.h"

static json_t *tokens_json(const report_model *r)
{
    const mha_tokenizer *tokenizer = mha_model_tokenizer(r->model);
    const mha_encoding *tokens = mha_heads_tokens(r->heads);
    char digits[CLI_ID_DIGITS];
    json_t *array = json_array();
    for (int64_t i = 0; i < tokens->count; i++)
        json_array_append_new(array, json_pack("{s:s, s:b}", "text", cli_token_name(tokenizer, tokens->ids[i], digits),
                                               "special", mha_tokenizer_is_special(tokenizer, tokens->ids[i])));
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
    for (mha_head_score score = 0; score < MHA_HEAD_SCORES; score++)
        json_object_set_new(help, mha_head_score_key(score), json_string(mha_head_score_help(score)));
    return help;
}

static json_t *ramp_json(void)
{
    json_t *ramp = json_array();
    for (int i = 0; i < COLOUR_STOPS; i++)
        json_array_append_new(ramp, json_pack("[i,i,i]", colour_stops[i].r, colour_stops[i].g, colour_stops[i].b));
    return ramp;
}

/* What was not measured is left out: the page says so. */
static json_t *model_json(const report_model *r)
{
    json_t *all = json_pack("{s:s, s:b, s:I, s:o, s:o, s:o, s:o, s:o}", "model", r->name, "causal",
                            mha_model_describe(r->model)->causal, "cut",
                            (json_int_t)mha_heads_tokens(r->heads)->truncated, "tokens", tokens_json(r), "heads",
                            heads_json_numbers(r->model, r->heads), "metrics", heads_json_metrics(r->heads), "labels",
                            heads_json_labels(r->heads), "maps", report_maps_json(r->heads));
    const struct {
        const char *name;
        json_t *value;
    } parts[] = {{"importance", r->importance}, {"diversity", r->diversity}, {"curve", r->curve}};
    for (size_t i = 0; all && i < sizeof parts / sizeof *parts; i++)
        if (parts[i].value) json_object_set(all, parts[i].name, parts[i].value);
    return all;
}

static json_t *page_data(const report *r)
{
    json_t *models = json_array();
    for (int i = 0; models && i < r->count; i++)
        models = heads_json_append(models, model_json(&r->models[i]));
    return models ? json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "mha", mha_version(), "text", r->text,
                              "models", models, "metric_help", metric_help_json(), "label_help", label_help_json(),
                              "score_help", score_help_json(), "diversity_help", head_diversity_help(),
                              "diversity_distance", head_diversity_distances(), "ramp", ramp_json())
                  : NULL;
}

/* False when memory is short: the page is then not whole. */
static bool write_page(const report *r, FILE *out)
{
    fputs((const char *)report_page_before, out);
    const bool whole = page_data_write(page_data(r), out);
    fputs((const char *)report_page_after, out);
    return whole && !ferror(out);
}

int report_page_save(cli_session *session, const report *r)
{
    char *page = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&page, &bytes);
    bool whole = memory && write_page(r, memory);
    if (memory && fclose(memory) != 0) whole = false;
    const int code =
        whole ? cli_write_file(session, page, bytes)
              : cli_fail(session, &(mha_error){.status = MHA_ERR_MEMORY, .message = "no memory for the page"});
    if (code == CLI_DONE)
        cli_say(session, "%s: %.1f KB; open it in a browser", cli_out_name(session), (double)bytes / 1e3);
    free(page);
    return code;
}
