/* held_texts.c - see held_texts.h. */
#include "held_texts.h"

#include <stdlib.h>
#include <string.h>

#include "head_texts.h"
#include "output.h"

enum { FOURTH = 4 };

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Drops those of held[count] that are among learn[learned] too: what was learned from judges nothing. Returns how
 * many are left; -1 without memory. */
static int64_t drop_learned(const char *const *learn, int64_t learned, const char **held, int64_t count)
{
    const size_t bytes = (size_t)learned * sizeof *learn;
    const char **sorted = malloc(bytes);
    int64_t left = 0;
    if (!sorted) return -1;
    memcpy(sorted, learn, bytes);
    qsort(sorted, (size_t)learned, sizeof *sorted, by_text);
    for (int64_t i = 0; i < count; i++)
        if (!bsearch(&held[i], sorted, (size_t)learned, sizeof *sorted, by_text)) held[left++] = held[i];
    free(sorted);
    return left;
}

/* The tokens of both, without what they share. */
static int tokens_of_both(cli_session *s, const mha_model *model, held_texts *t, const char *const *learn,
                          int64_t learned, const char **held, int64_t count)
{
    int code = head_texts_data(s, model, learn, learned, &t->learn);
    if (code != CLI_DONE) return code;
    const int64_t left = drop_learned(learn, learned, held, count);
    if (left < 0) return cli_error(s, CLI_FAILED, "out of memory for the texts");
    if (left == 0)
        return cli_usage(s, "every text to judge by (%s) is one that is learned from: give others with --test FILE",
                         t->split);
    if (left < count)
        cli_say(s, "%lld of the %lld texts to judge by (%s) are learned from as well: left out",
                (long long)(count - left), (long long)count, t->split);
    return head_texts_data(s, model, held, left, &t->held);
}

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
    const int code = tokens_of_both(s, model, t, parts, learned, parts + learned, count - learned);
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
        return learns ? tokens_of_both(s, model, t, (const char *const *)t->texts.text, t->texts.count,
                                       (const char **)t->test.text, t->test.count)
                      : head_texts_data(s, model, t->test.text, t->test.count, &t->held);
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
