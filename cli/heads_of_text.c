/* heads_of_text.c - the common beginning of `mha report` and `mha draw`. */
#include "heads_of_text.h"

#include "head_texts.h"
#include "output.h"

/* Where the last part of a path begins; slashes at its end stay. */
static const char *last_part(const char *path)
{
    const char *last = path;
    for (const char *c = path; *c; c++)
        if (*c == '/' && c[1] && c[1] != '/') last = c + 1;
    return last;
}

static int measure(cli_session *s, heads_of_text *h)
{
    int code = cli_model_open(s, NULL, &h->model);
    if (code != CLI_DONE) return code;
    h->name = s->model_name;
    h->folder = last_part(h->name);
    mha_heads_options options = {.size = sizeof options, .seed = (uint64_t)s->options.seed, .keep_maps = 1};
    return head_texts_maps(s, h->model, h->text, &options, &h->heads);
}

int heads_of_text_measure(cli_session *s, heads_of_text *h)
{
    *h = (heads_of_text){0};
    int code = cli_texts_read(s, false, &h->texts);
    if (code != CLI_DONE) return code;
    if (h->texts.count != 1) return cli_usage(s, "one text at a time; %lld were given", (long long)h->texts.count);
    h->text = h->texts.text[0];
    return measure(s, h);
}

int heads_of_text_again(cli_session *s, const char *model, const heads_of_text *first, heads_of_text *h)
{
    *h = (heads_of_text){.text = first->text};
    const char *given = s->options.model;
    s->options.model = model;
    int code = measure(s, h);
    s->options.model = given;
    return code;
}

void heads_of_text_free(heads_of_text *h)
{
    mha_heads_free(h->heads);
    mha_model_free(h->model);
    cli_texts_free(&h->texts);
}
