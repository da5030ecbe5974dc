/* held_texts.c - see held_texts.h. */
#include "held_texts.h"

#include <stdlib.h>

#include "head_texts.h"
#include "output.h"

enum { FOURTH = 4 };

/* Every fourth text is held out, so that both parts are alike. */
static int split(cli_session *s, const mha_model *model, held_texts *t)
{
    const int64_t count = t->texts.count;
    if (count < FOURTH)
        return cli_usage(s, "-f has %lld texts: with fewer than %d, give others with --test FILE", (long long)count,
                         FOURTH);
    const char **parts = malloc((size_t)count * sizeof *parts);
    if (!parts) return cli_error(s, CLI_FAILED, "out of memory for the texts");
    const int64_t learned = count - count / FOURTH;
    for (int64_t i = 0; i < count; i++)
        parts[i % FOURTH == FOURTH - 1 ? learned + i / FOURTH : i - i / FOURTH] = t->texts.text[i];
    int code = head_texts_data(s, model, parts, learned, &t->learn);
    if (code == CLI_DONE) code = head_texts_data(s, model, parts + learned, count - learned, &t->held);
    free(parts);
    return code;
}

int held_texts_read(cli_session *s, const mha_model *model, const char *test, bool learns, held_texts *t)
{
    int code = CLI_DONE;
    *t = (held_texts){0};
    if (s->options.file) code = cli_texts_read_file(s, s->options.file, &t->texts);
    if (code == CLI_DONE && test) code = cli_texts_read_file(s, test, &t->test);
    if (code != CLI_DONE) return code;
    if (t->test.count) {
        t->split = "--test";
        code = head_texts_data(s, model, t->test.text, t->test.count, &t->held);
        return code == CLI_DONE && learns ? head_texts_data(s, model, t->texts.text, t->texts.count, &t->learn) : code;
    }
    t->split = learns ? "every fourth of -f" : "-f";
    if (!t->texts.count) return CLI_DONE;
    return learns ? split(s, model, t) : head_texts_data(s, model, t->texts.text, t->texts.count, &t->held);
}

void held_texts_free(held_texts *t)
{
    mha_head_data_free(t->learn);
    mha_head_data_free(t->held);
    cli_texts_free(&t->texts);
    cli_texts_free(&t->test);
}
