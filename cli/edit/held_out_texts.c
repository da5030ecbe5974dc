/* held_out_texts.c - see held_out_texts.h. */
#include "edit/held_out_texts.h"

#include <stdlib.h>
#include <string.h>

#include "heads/head_texts.h"
#include "output.h"

enum { FOURTH = 4 };

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Removes held-out texts that are also in `learn`. Returns the number of remaining texts; -1 if memory is exhausted. */
static int64_t drop_learned(const cli_texts *learn, cli_texts *held)
{
    const size_t bytes = (size_t)learn->count * sizeof *learn->text;
    const char **sorted = malloc(bytes);
    int64_t left = 0;
    if (!sorted) return -1;
    memcpy(sorted, learn->text, bytes);
    qsort(sorted, (size_t)learn->count, sizeof *sorted, by_text);
    for (int64_t i = 0; i < held->count; i++) {
        if (bsearch(&held->text[i], sorted, (size_t)learn->count, sizeof *sorted, by_text)) continue;
        if (held->line) held->line[left] = held->line[i];
        held->text[left++] = held->text[i];
    }
    free(sorted);
    return left;
}

/* Removes from `held` the texts that are also in `learn`, and tokenizes both lists. */
static int tokens_of_both(cli_session *s, const mha_model *model, held_texts *t, const cli_texts *learn,
                          cli_texts *held)
{
    int code = head_texts_data(s, model, learn, s->work, &t->learn);
    if (code != CLI_DONE) return code;
    const int64_t left = drop_learned(learn, held);
    if (left < 0) return cli_error(s, CLI_FAILED, "out of memory for the texts");
    if (left == 0)
        return cli_usage(
            s, "every evaluation text (%s) is also used to choose heads: give different texts with --test FILE",
            t->split);
    if (left < held->count)
        cli_say(s, "skipping %lld of %lld evaluation texts (%s), which are also used to choose heads",
                (long long)(held->count - left), (long long)held->count, t->split);
    held->count = left;
    return head_texts_data(s, model, held, s->work, &t->held);
}

/* Returns the new index of text i if the held-out texts are moved to the end. Every fourth of the `units` (texts or
 * pairs) is held out, so that both lists have the same mix of texts. `parts`: texts per unit, 1 or 2. */
static int64_t place_of(int64_t i, int64_t units, int64_t parts)
{
    const int64_t unit = i % units, part = i / units, held = units / FOURTH, learned = units - held;
    if (unit % FOURTH == FOURTH - 1) return parts * learned + part * held + unit / FOURTH;
    return part * learned + unit - unit / FOURTH;
}

/* Splits the texts of -f: `units` texts, or for pairs `units` first texts followed by `units` second texts. */
static int split(cli_session *s, const mha_model *model, held_texts *t, int64_t units)
{
    const int64_t count = t->texts.count, parts = count / units, learned = parts * (units - units / FOURTH);
    if (units < FOURTH)
        return cli_usage(s, "-f must have at least %d %s (got %lld), or give evaluation texts with --test FILE", FOURTH,
                         parts > 1 ? "pairs" : "texts", (long long)units);
    const char **text = malloc((size_t)count * sizeof *text);
    int64_t *line = malloc((size_t)count * sizeof *line);
    for (int64_t i = 0; text && line && i < count; i++) {
        text[place_of(i, units, parts)] = t->texts.text[i];
        line[place_of(i, units, parts)] = t->texts.line[i];
    }
    int code = CLI_FAILED;
    if (text && line) {
        const cli_texts learn = {.count = learned, .text = text, .line = line, .path = t->texts.path};
        cli_texts held = {
            .count = count - learned, .text = text + learned, .line = line + learned, .path = t->texts.path};
        code = tokens_of_both(s, model, t, &learn, &held);
    } else {
        cli_error(s, CLI_FAILED, "out of memory for the texts");
    }
    free(text);
    free(line);
    return code;
}

/* Reads -f and `test`; *units is the number of texts, or pairs, of -f. */
static int read_files(cli_session *s, const char *test, const importance_scores *scores, held_texts *t, int64_t *units)
{
    int code = CLI_DONE;
    if (s->options.file) code = cli_texts_read_file(s, s->options.file, &t->texts);
    *units = t->texts.count;
    if (code == CLI_DONE && test) code = cli_texts_read_file(s, test, &t->test);
    if (code == CLI_DONE && scores && t->texts.count) code = importance_scores_pair(s, scores, false, &t->texts);
    if (code == CLI_DONE && scores && t->test.count) code = importance_scores_pair(s, scores, true, &t->test);
    return code;
}

int held_texts_read(cli_session *s, const mha_model *model, const char *test, bool learns,
                    const importance_scores *scores, held_texts *t)
{
    int64_t units;
    *t = (held_texts){0};
    const int code = read_files(s, test, scores, t, &units);
    if (code != CLI_DONE) return code;
    if (t->test.count) {
        t->split = "--test";
        return learns ? tokens_of_both(s, model, t, &t->texts, &t->test)
                      : head_texts_data(s, model, &t->test, s->work, &t->held);
    }
    t->split = learns ? "every fourth text of -f" : "-f";
    if (!t->texts.count) return CLI_DONE;
    return learns ? split(s, model, t, units) : head_texts_data(s, model, &t->texts, s->work, &t->held);
}

void held_texts_free(held_texts *t)
{
    mha_head_data_free(t->learn);
    mha_head_data_free(t->held);
    cli_texts_free(&t->texts);
    cli_texts_free(&t->test);
}
