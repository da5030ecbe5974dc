/* held_out_texts.c - see held_out_texts.h. */
#include "edit/held_out_texts.h"

#include "heads/head_texts.h"
#include "input/text_reader.h"
#include "output.h"
#include <stdlib.h>

/* Removes held-out texts that are also in `learn`. */
static int drop_learned(cli_session *s, const cli_texts *learn, cli_texts *held)
{
    mha_error error = {0};
    int64_t left = 0, *kept = calloc((size_t)held->count, sizeof *kept);
    if (!kept) return cli_error(s, CLI_FAILED, "out of memory for the texts");
    const mha_status status =
        mha_held_out_distinct(NULL, learn->text, learn->count, held->text, held->count, kept, &left, &error);
    for (int64_t n = 0; n < left; n++) {
        if (held->line) held->line[n] = held->line[kept[n]];
        held->text[n] = held->text[kept[n]];
    }
    held->count = left;
    free(kept);
    return status == MHA_OK ? CLI_DONE : cli_fail(s, &error);
}

/* Removes from `held` the texts that are also in `learn`, and tokenizes both lists. */
static int tokens_of_both(cli_session *s, const mha_model *model, held_texts *t, const cli_texts *learn,
                          cli_texts *held)
{
    int code = head_texts_data(s, model, learn, s->work, &t->learn);
    if (code != CLI_DONE) return code;
    const int64_t count = held->count;
    code = drop_learned(s, learn, held);
    if (code != CLI_DONE) return code;
    if (held->count == 0)
        return cli_usage(
            s, "every evaluation text (%s) is also used to choose heads: give different texts with --test FILE",
            t->split);
    if (held->count < count)
        cli_say(s, "skipping %lld of %lld evaluation texts (%s), which are also used to choose heads",
                (long long)(count - held->count), (long long)count, t->split);
    return head_texts_data(s, model, held, s->work, &t->held);
}

/* Lists the learning texts, then the held-out texts. The caller frees to->text and to->line, also after an error. */
static int reorder(cli_session *s, const cli_texts *texts, bool pairs, cli_texts *to, int64_t *learned)
{
    mha_error error = {0};
    const size_t count = (size_t)texts->count;
    int64_t *order = calloc(count, sizeof *order);
    *to = (cli_texts){.count = texts->count,
                      .text = calloc(count, sizeof *to->text),
                      .line = calloc(count, sizeof *to->line),
                      .path = texts->path};
    int code = order && to->text && to->line ? CLI_DONE : cli_error(s, CLI_FAILED, "out of memory for the texts");
    if (code == CLI_DONE && mha_held_out_split(texts->count, pairs, order, learned, &error) != MHA_OK)
        code = cli_fail(s, &error);
    for (size_t n = 0; n < count && code == CLI_DONE; n++) {
        to->text[n] = texts->text[order[n]];
        to->line[n] = texts->line[order[n]];
    }
    free(order);
    return code;
}

/* Splits the texts of -f: `units` texts, or for pairs `units` first texts followed by `units` second texts. */
static int split(cli_session *s, const mha_model *model, held_texts *t, int64_t units)
{
    const bool pairs = t->texts.count > units;
    if (units < MHA_HELD_OUT_PART)
        return cli_usage(s, "-f must have at least %d %s (got %lld), or give evaluation texts with --test FILE",
                         MHA_HELD_OUT_PART, pairs ? "pairs" : "texts", (long long)units);
    cli_texts all;
    int64_t learned = 0;
    int code = reorder(s, &t->texts, pairs, &all, &learned);
    if (code == CLI_DONE) {
        const cli_texts learn = {.count = learned, .text = all.text, .line = all.line, .path = all.path};
        cli_texts held = {
            .count = all.count - learned, .text = all.text + learned, .line = all.line + learned, .path = all.path};
        code = tokens_of_both(s, model, t, &learn, &held);
    }
    free(all.text);
    free(all.line);
    return code;
}

/* Reads -f and `test`; *units is the number of texts, or pairs, of -f. */
static int read_files(cli_session *s, const char *test, const importance_scores *scores, held_texts *t, int64_t *units)
{
    int code = s->options.file || test ? CLI_DONE : cli_documents_unused(s);
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
