/* train_sample.c - samples text from the model during training. */
#include "input/tokens.h"
#include "memory.h"
#include "output.h"
#include "session.h"
#include "train/train_run.h"
#include <stdlib.h>
#include <string.h>

static int no_memory(const cli_session *s)
{
    return cli_error(s, CLI_FAILED, "out of memory for the samples");
}

/* ---- prompts ---- */

static int encode(train_run *run, train_prompt *p)
{
    const cli_session *s = run->s;
    const mha_train_data_options *form = &run->form.data;
    mha_error error = {0};
    if (mha_tokenizer_encode(form->tokenizer, p->text, strlen(p->text), NULL, 0, NULL, &p->tokens, &error) != MHA_OK)
        return cli_refuse(s, &error);
    const int code = cli_check_rows(s, form->tokenizer, p->tokens, form->vocab);
    if (code != CLI_DONE) return code;
    p->prompt = (mha_prompt){p->tokens->ids, p->tokens->count};
    if (p->prompt.count == 0) p->prompt = (mha_prompt){&form->end, 1};
    const int64_t room = mha_model_describe(mha_trainer_model(run->trainer))->max_positions - p->prompt.count;
    p->max = room < run->t.sample_tokens ? room : run->t.sample_tokens;
    if (room < 1)
        return cli_usage(s, "--sample \"%s\" must leave space for a new token in the model's context (got %lld tokens)",
                         cli_shown_start(p->text, 40), (long long)p->prompt.count);
    if (p->prompt.ids == &form->end && form->end < 0)
        return cli_usage(s, "--sample must not be empty: the model has no end token (got \"\")");
    return CLI_DONE;
}

int train_run_prompts(train_run *run)
{
    const train_list *texts = &run->t.sample;
    if (!texts->count) return CLI_DONE;
    if (!run->form.data.causal) return cli_usage(run->s, "--sample requires a decoder");
    if (!run->form.data.tokenizer) return cli_usage(run->s, "--sample requires a model with a tokenizer");
    run->prompts = calloc((size_t)texts->count, sizeof *run->prompts);
    run->samples = calloc((size_t)texts->count, sizeof *run->samples);
    if (!run->prompts || !run->samples) return no_memory(run->s);
    int code = CLI_DONE;
    for (int n = 0; n < texts->count && code == CLI_DONE; n++) {
        run->prompts[n].text = texts->item[n];
        code = encode(run, &run->prompts[n]);
    }
    return code;
}

static void free_samples(train_run *run)
{
    for (int n = 0; run->samples && n < run->t.sample.count; n++) {
        free((char *)run->samples[n].text);
        run->samples[n] = (mha_train_sample){0};
    }
}

void train_run_free_prompts(train_run *run)
{
    free_samples(run);
    for (int n = 0; run->prompts && n < run->t.sample.count; n++)
        mha_encoding_free(run->prompts[n].tokens);
    free(run->samples);
    free(run->prompts);
}

/* ---- text ---- */

static int take_text(void *user, int64_t prompt, const char *text, size_t bytes)
{
    (void)prompt;
    fwrite(text, 1, bytes, user);
    return 0;
}

/* Generates a continuation and stores it in *text, which the caller must free. */
static int write_on(const train_run *run, const train_prompt *p, int64_t step, char **text, size_t *bytes)
{
    mha_error error = {0};
    int64_t length;
    int32_t *ids = calloc((size_t)p->max, sizeof *ids);
    FILE *out = cli_memory_open(text, bytes);
    const uint64_t number = (uint64_t)step * (uint64_t)run->t.sample.count + (uint64_t)(p - run->prompts);
    const mha_generate_options o = {
        .size = sizeof o,
        .max_new = p->max,
        .sampling = {.temperature = run->t.temperature, .seed = (uint64_t)run->t.seed + number},
        .on_text = take_text,
        .user = out};
    int code = ids ? CLI_DONE : no_memory(run->s);
    if (ids && mha_model_generate(mha_trainer_model(run->trainer), &p->prompt, 1, &o, ids, &length, &error) != MHA_OK)
        code = cli_fail(run->s, &error);
    fclose(out);
    free(ids);
    return code;
}

static void show(const cli_session *s, const train_prompt *p, const char *text, size_t bytes)
{
    if (s->options.quiet) return;
    cli_progress_clear();
    fputs("  ", stderr);
    cli_put_running(stderr, p->text, strlen(p->text));
    cli_put_running(stderr, text, bytes);
    fputc('\n', stderr);
}

int train_run_sample(train_run *run, mha_train_record *r)
{
    const int64_t count = run->t.sample.count;
    int code = CLI_DONE;
    free_samples(run);
    for (int64_t n = 0; n < count && code == CLI_DONE && !cli_stopped(); n++) {
        char *text = NULL;
        size_t bytes = 0;
        code = write_on(run, &run->prompts[n], r->step, &text, &bytes);
        run->samples[n] = (mha_train_sample){.prompt = run->prompts[n].text, .text = text, .text_bytes = bytes};
        if (code == CLI_DONE) show(run->s, &run->prompts[n], text, bytes);
    }
    if (cli_stopped()) return code;
    r->samples = run->samples;
    r->sample_count = count;
    return code;
}
