/* cmd_score.c - `mha score`: computes the loss, the perplexity and the log-probability of each token. */
#include "commands.h"
#include "input/input.h"
#include "input/source_target.h"
#include "input/tokens.h"
#include "output.h"
#include "session.h"
#include <math.h>
#include <stdlib.h>

static struct {
    int tokens;
} given;

static const struct poptOption options[] = {
    {"tokens", 0, POPT_ARG_NONE, &given.tokens, 0, "also print each token's log-probability", NULL}, POPT_TABLEEND};

/* The tokens of a text and their scores. */
typedef struct scored {
    mha_encoding *tokens;
    float *logprob; /* [count - first] log-probabilities of the tokens from `first` on */
    double total;   /* sum of the log-probabilities */
    int64_t first;  /* 1; 0 for the target of an encoder-decoder, whose first token is predicted too */
} scored;

static int no_memory(const cli_session *s, int64_t count)
{
    return cli_error(s, CLI_FAILED, "out of memory for %lld tokens", (long long)count);
}

/* Scores the target of a text "SOURCE<tab>TARGET". */
static int score_target(const cli_session *s, const mha_model *model, const cli_texts *texts, int64_t n, scored *out)
{
    mha_error error = {0};
    cli_source_target pair;
    char where[CLI_WHERE];
    int code = cli_source_target_encode(s, model, mha_model_tokenizer(model), texts, n, &pair);
    *out = (scored){.tokens = pair.target};
    if (code == CLI_DONE && !pair.target)
        code = cli_error(s, CLI_REFUSED,
                         "%sa text for an encoder-decoder must be a source and a target, separated by one tab",
                         cli_texts_where(texts, n, where));
    pair.target = NULL;
    const int64_t count = code == CLI_DONE ? out->tokens->count : 0;
    out->logprob = count ? calloc((size_t)count, sizeof *out->logprob) : NULL;
    if (count && !out->logprob) code = no_memory(s, count);
    if (code == CLI_DONE && mha_model_score_target(model, pair.source->ids, pair.source->count, out->tokens->ids, count,
                                                   out->logprob, &error) != MHA_OK)
        code = cli_refuse(s, &error);
    for (int64_t i = 0; code == CLI_DONE && i < count; i++)
        out->total += (double)out->logprob[i];
    cli_source_target_free(&pair);
    return code;
}

static int score_text(const cli_session *s, const mha_model *model, const cli_texts *texts, int64_t n, scored *out)
{
    mha_error error = {0};
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    const mha_encode_options how = {.size = sizeof how, .max_tokens = mha_model_describe(model)->max_positions};
    *out = (scored){.first = 1};
    if (mha_tokenizer_encode(tokenizer, texts->text[n], texts->bytes[n], NULL, 0, &how, &out->tokens, &error) != MHA_OK)
        return cli_refuse(s, &error);
    char where[CLI_WHERE];
    if (out->tokens->truncated > 0)
        cli_say(s, "%s%lld tokens were truncated: the model accepts at most %lld", cli_texts_where(texts, n, where),
                (long long)out->tokens->truncated, (long long)how.max_tokens);
    const int64_t count = out->tokens->count;
    if (count < 2) return CLI_DONE;
    const int code = cli_check_rows(s, tokenizer, out->tokens, mha_model_describe(model)->vocab);
    if (code != CLI_DONE) return code;
    out->logprob = calloc((size_t)count - 1, sizeof *out->logprob);
    if (!out->logprob) return no_memory(s, count);
    const cli_shared_texts *shared = s->shared;
    const mha_status status = shared ? shared->score(shared->user, model, out->tokens->ids, count, out->logprob, &error)
                                     : mha_model_score(model, out->tokens->ids, count, out->logprob, &error);
    if (status != MHA_OK) return cli_refuse(s, &error);
    for (int64_t i = 0; i + 1 < count; i++)
        out->total += (double)out->logprob[i];
    return CLI_DONE;
}

static void free_scored(scored *text)
{
    mha_encoding_free(text->tokens);
    free(text->logprob);
}

/* ---- output ---- */

static int64_t predicted_tokens(const scored *text)
{
    return text->logprob ? text->tokens->count - text->first : 0;
}

static int check_loss(const cli_session *s, const cli_texts *texts, int64_t n, const scored *t)
{
    char where[CLI_WHERE];
    return cli_finite(s, cli_texts_where(texts, n, where), "the loss", -t->total);
}

static json_t *scored_json(const mha_tokenizer *tokenizer, const char *text, const scored *t)
{
    const int64_t n = predicted_tokens(t);
    json_t *tokens = json_array(), *ids = json_array(), *logprobs = json_array();
    for (int64_t i = 0; i < t->tokens->count; i++) {
        json_array_append_new(ids, json_integer(t->tokens->ids[i]));
        json_array_append_new(tokens, json_string(cli_token_text(tokenizer, t->tokens->ids[i])));
        json_array_append_new(logprobs, i >= t->first ? cli_real((double)t->logprob[i - t->first]) : json_null());
    }
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:I}", "text", text, "loss", cli_real(-t->total / (double)n),
                     "perplexity", cli_real(exp(-t->total / (double)n)), "ids", ids, "tokens", tokens, "logprobs",
                     logprobs, "truncated", (json_int_t)t->tokens->truncated);
}

/* Prints the totals of several texts as the last line. */
static int put_all(cli_session *s, int64_t texts, int64_t tokens, double total)
{
    const double loss = -total / (double)tokens;
    if (s->options.json)
        return cli_put_json(s,
                            json_pack("{s:I, s:I, s:o, s:o}", "texts", (json_int_t)texts, "predicted_tokens",
                                      (json_int_t)tokens, "loss", cli_real(loss), "perplexity", cli_real(exp(loss))),
                            false);
    if (tokens > 0) fprintf(s->out, "%4s %8.4f %12.4f %7lld\n", "all", loss, exp(loss), (long long)tokens);
    return CLI_DONE;
}

static void print_scored(const cli_session *s, const mha_tokenizer *tokenizer, const char *text, int64_t number,
                         const scored *t)
{
    const int64_t n = predicted_tokens(t);
    if (n > 0)
        fprintf(s->out, "%4lld %8.4f %12.4f %7lld  ", (long long)number, -t->total / (double)n,
                exp(-t->total / (double)n), (long long)n);
    else
        fprintf(s->out, "%4lld %8s %12s %7d  ", (long long)number, "-", "-", 0);
    fprintf(s->out, "%s%s%s\n", cli_dim(s), cli_shown_start(text, s->columns - 37), cli_plain(s));
    for (int64_t i = 0; given.tokens && i < n; i++)
        fprintf(s->out, "     %8.4f  %s\n", (double)t->logprob[i],
                cli_shown(cli_token_text(tokenizer, t->tokens->ids[i + t->first])));
}

static int put_text(cli_session *s, const mha_model *model, const cli_texts *texts, int64_t n, const scored *t)
{
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    if (s->options.json) return cli_put_json(s, scored_json(tokenizer, texts->text[n], t), false);
    if (n == 0) fprintf(s->out, "%4s %8s %12s %7s  text\n", "", "loss", "perplexity", "tokens");
    print_scored(s, tokenizer, texts->text[n], n + 1, t);
    return CLI_DONE;
}

/* ---- scoring ---- */

static int score(cli_session *s, const mha_model *model, const cli_texts *texts)
{
    double total = 0;
    int64_t tokens = 0;
    int code = CLI_DONE;
    for (int64_t n = 0; n < texts->count && code == CLI_DONE; n++) {
        scored t;
        cli_progress("score", n, texts->count);
        code = (mha_model_encoder(model) ? score_target : score_text)(s, model, texts, n, &t);
        if (code == CLI_DONE) code = check_loss(s, texts, n, &t);
        if (code == CLI_DONE) code = put_text(s, model, texts, n, &t);
        total += t.total;
        tokens += code == CLI_DONE ? predicted_tokens(&t) : 0;
        free_scored(&t);
        if (code == CLI_DONE) code = cli_stopped();
    }
    cli_progress_clear();
    return code == CLI_DONE && texts->count > 1 ? put_all(s, texts->count, tokens, total) : code;
}

static int run(cli_session *s)
{
    cli_texts texts;
    mha_model *model = NULL;
    int code = cli_texts_read(s, false, &texts);
    if (code != CLI_DONE) return code;
    code = cli_model_open(s, NULL, &model);
    if (code == CLI_DONE && !mha_model_describe(model)->causal)
        code = cli_error(s, CLI_REFUSED, "%s must be a decoder (got an encoder, %s)", cli_shown(s->model_name),
                         mha_model_describe(model)->family);
    if (code == CLI_DONE) code = cli_model_check_text(s, model);
    if (code == CLI_DONE) code = score(s, model, &texts);
    mha_model_free(model);
    cli_texts_free(&texts);
    return code;
}

const cli_command cli_score = {
    .name = "score",
    .summary = "score texts: loss, perplexity, log-probability per token",
    .usage = "TEXT... | -f FILE",
    .details =
        "The loss is the mean of -log p (natural logarithm) of each token, given the preceding tokens; "
        "the first token is not predicted. For an encoder-decoder, a text is a source and a target separated by a "
        "tab, and all tokens of the target are predicted. --json prints one line per text: {text, loss, perplexity, "
        "ids, "
        "tokens, logprobs, truncated}. truncated is the number of tokens removed because they exceed the "
        "model's context. With several texts, the last line is the total: {texts, predicted_tokens, loss, "
        "perplexity}.",
    .shared = CLI_MODEL | CLI_FILE | CLI_JSON | CLI_DTYPE,
    .options = options,
    .examples = "mha score \"The kite is in the barn.\"\n"
                "mha score -f notes.txt --json\n"
                "echo \"Good night, Clara.\" | mha score --tokens\n",
    .unshared = cli_unshared_stdin,
    .run = run,
};
