/* text_maps.c - see text_maps.h. */
#include "heads/text_maps.h"

#include "heads/head_texts.h"
#include "input/images.h"
#include "model_name.h"
#include "output.h"

static int open_model(cli_session *s, text_maps *h)
{
    int code = cli_model_open(s, NULL, &h->opened);
    if (code == CLI_DONE) code = cli_model_check_text(s, h->opened);
    if (code != CLI_DONE) return code;
    h->model = cli_tower_of(s, h->opened, h->texts);
    if (!h->model) return CLI_USAGE;
    h->name = s->model_name;
    h->folder = cli_last_component(h->name);
    return CLI_DONE;
}

int text_maps_open(cli_session *s, text_maps *h)
{
    *h = (text_maps){.texts = &h->own};
    const int code = cli_texts_read(s, false, &h->own);
    return code == CLI_DONE ? open_model(s, h) : code;
}

int text_maps_other(cli_session *s, const char *model, const text_maps *first, text_maps *h)
{
    *h = (text_maps){.texts = first->texts};
    const char *given = s->options.model;
    s->options.model = model;
    const int code = open_model(s, h);
    s->options.model = given;
    return code;
}

int text_maps_at(cli_session *s, text_maps *h, int64_t i)
{
    const mha_heads_options options = {.size = sizeof options, .seed = (uint64_t)s->options.seed, .keep_maps = 1};
    mha_heads_free(h->heads);
    h->heads = NULL;
    h->text = h->texts->text[i];
    const cli_texts one = {
        .count = 1, .text = &h->text, .line = h->texts->line ? h->texts->line + i : NULL, .path = h->texts->path};
    if (one.line) cli_texts_number(&one); /* error messages then name the line, not "text 1 of 1" */
    const int code = head_texts_maps(s, h->model, h->text, &options, &h->heads);
    cli_texts_number(NULL);
    return code;
}

int text_maps_measure(cli_session *s, text_maps *h)
{
    *h = (text_maps){.texts = &h->own};
    int code = cli_texts_read(s, false, &h->own);
    if (code != CLI_DONE) return code;
    if (h->own.count != 1) return cli_usage(s, "exactly one text is required (got %lld)", (long long)h->own.count);
    code = open_model(s, h);
    if (code == CLI_DONE && mha_model_encoder(h->model))
        code = cli_usage(s, "%s is an encoder-decoder: mha report --source TEXT --target TEXT draws its attention maps",
                         cli_shown(h->name));
    return code == CLI_DONE ? text_maps_at(s, h, 0) : code;
}

void text_maps_free(text_maps *h)
{
    mha_heads_free(h->heads);
    mha_model_free(h->opened);
    cli_texts_free(&h->own);
}
