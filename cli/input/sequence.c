/* sequence.c - reads one sequence of tokens, and the tokens and positions that options name. */
#include "input/sequence.h"

#include "input/images.h"
#include "output.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void cli_sequence_free(cli_sequence *q)
{
    mha_encoding_free(q->encoding);
    cli_source_target_free(&q->pair);
    mha_tokenizer_free(q->tokenizer);
    json_decref(q->config);
    free(q->pixels);
    free(q->listed);
}

/* ---- input ---- */

static int read_ids(const cli_session *s, const cli_texts *texts, int64_t vocab, cli_sequence *q)
{
    q->listed = calloc(texts->bytes[0] / 2 + 1, sizeof *q->listed);
    if (!q->listed) return cli_error(s, CLI_FAILED, "out of memory for the ids");
    q->ids = q->listed;
    return cli_ids_read(s, texts, 0, vocab, q->listed, &q->count);
}

static int encode_text(const cli_session *s, const cli_texts *texts, int64_t vocab, cli_sequence *q)
{
    mha_error error = {0};
    if (mha_tokenizer_encode(q->tokenizer, texts->text[0], texts->bytes[0], NULL, 0, NULL, &q->encoding, &error) !=
        MHA_OK)
        return cli_refuse(s, &error);
    q->ids = q->encoding->ids;
    q->count = q->encoding->count;
    if (q->count == 0) return cli_error(s, CLI_REFUSED, "the text must have at least one token");
    return cli_check_rows(s, q->tokenizer, q->encoding, vocab);
}

/* Returns the number of tokens of a target without the tokens that the template adds after the text. The decoder reads
 * those before the text, such as <s> of BART, but predicts the others. */
static int64_t open_count(const mha_encoding *target)
{
    int64_t count = target ? target->count : 0;
    while (count > 0 && target->sequence[count - 1] < 0)
        count--;
    return count;
}

/* Encodes the source of an encoder-decoder. The decoder reads its first token and, after a tab, the target. */
static int encode_pair(const cli_session *s, const mha_model *model, const cli_texts *texts, cli_sequence *q)
{
    const int64_t start = mha_model_describe(model)->decoder_start;
    if (s->options.ids) return cli_usage(s, "--ids must not be given for an encoder-decoder");
    if (start < 0) return cli_error(s, CLI_REFUSED, "%s has no decoder_start_token_id", cli_shown(s->model_name));
    const int code = cli_source_target_encode(s, model, q->tokenizer, texts, 0, &q->pair);
    if (code != CLI_DONE) return code;
    const int64_t count = open_count(q->pair.target);
    q->listed = calloc((size_t)count + 1, sizeof *q->listed);
    if (!q->listed) return cli_error(s, CLI_FAILED, "out of memory for the ids");
    q->listed[0] = (int32_t)start;
    if (count) memcpy(q->listed + 1, q->pair.target->ids, (size_t)count * sizeof *q->listed);
    q->ids = q->listed;
    q->count = count + 1;
    q->source = (mha_model_input){
        .size = sizeof q->source, .batch = 1, .length = q->pair.source->count, .ids = q->pair.source->ids};
    return CLI_DONE;
}

/* Reads an image. Its tokens are the class token and the patches. */
static int read_image(const cli_session *s, const mha_model *model, const cli_texts *texts, cli_sequence *q)
{
    const char *config = mha_model_config_json(model);
    if (s->options.ids) return cli_usage(s, "--ids must not be given for a model that reads images");
    if (!cli_names_image(texts->text[0]))
        return cli_usage(s, "%s reads images: the argument must be a PNG or JPEG file (got \"%s\")",
                         cli_shown(s->model_name), cli_shown_start(texts->text[0], 40));
    q->count = mha_model_describe(model)->max_positions;
    q->listed = calloc((size_t)q->count, sizeof *q->listed);
    if (!q->listed) return cli_error(s, CLI_FAILED, "out of memory for the tokens");
    for (int64_t i = 0; i < q->count; i++)
        q->listed[i] = (int32_t)i;
    q->ids = q->listed;
    const int code = cli_json_parse(s, "config.json", 1, config, strlen(config), &q->config);
    return code == CLI_DONE ? cli_images_read(s, model, texts->text, 1, &q->pixels) : code;
}

int cli_sequence_read(cli_session *s, const mha_model *model, cli_sequence *q)
{
    mha_error error = {0};
    cli_texts texts;
    const int checked = cli_model_check_text(s, model);
    if (checked != CLI_DONE) return checked;
    const int64_t vocab = mha_model_describe(model)->vocab;
    const bool images = mha_model_describe(model)->image_channels > 0;
    const mha_status status = images ? MHA_OK : mha_tokenizer_open(s->ctx, s->model, &q->tokenizer, &error);
    if (status != MHA_OK && !(s->options.ids && status == MHA_ERR_IO)) return cli_refuse(s, &error);
    int code = cli_texts_read(s, false, &texts);
    if (code != CLI_DONE) return code;
    if (texts.count == 1) cli_texts_where(&texts, 0, q->where);
    if (texts.count != 1)
        code = cli_usage(s, "exactly one text is required (got %lld)", (long long)texts.count);
    else if (images)
        code = read_image(s, model, &texts, q);
    else if (mha_model_encoder(model))
        code = encode_pair(s, model, &texts, q);
    else
        code = s->options.ids ? read_ids(s, &texts, vocab, q) : encode_text(s, &texts, vocab, q);
    cli_texts_free(&texts);
    return code;
}

/* ---- tokens that options name ---- */

const char *cli_sequence_token(const cli_sequence *q, int64_t id)
{
    static char digits[CLI_CLASS_DIGITS];
    if (q->pixels) return cli_class_name(q->config, id, digits);
    return q->tokenizer ? cli_token_text(q->tokenizer, (int32_t)id) : "";
}

/* Parses a whole number, which may be negative. Returns false for any other text. */
static bool whole(const char *text, long long *value)
{
    char *end;
    const char *digits = *text == '-' ? text + 1 : text;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return *digits >= '0' && *digits <= '9' && !*end && !errno;
}

int cli_sequence_answer(const cli_session *s, const mha_model *model, const cli_sequence *q, const char *option,
                        const char *text, int32_t *id)
{
    const mha_encode_options how = {.size = sizeof how, .no_special = 1};
    const int64_t vocab = mha_model_describe(model)->vocab;
    mha_encoding *e = NULL;
    mha_error error = {0};
    long long number = -1;
    if (q->pixels) return cli_usage(s, "%s must not be given for a model that reads images", option);
    if (s->options.ids) {
        if (!whole(text, &number) || number < 0 || number >= vocab)
            return cli_usage(s, "%s must be a token id from 0 to %lld (got \"%s\")", option, (long long)vocab - 1,
                             cli_shown(text));
        *id = (int32_t)number;
        return CLI_DONE;
    }
    if (mha_tokenizer_encode(q->tokenizer, text, strlen(text), NULL, 0, &how, &e, &error) != MHA_OK)
        return cli_refuse(s, &error);
    const int64_t count = e->count;
    if (count == 1) *id = e->ids[0];
    const int code = count == 1 ? cli_check_rows(s, q->tokenizer, e, vocab) : CLI_DONE;
    char first[200], *readable = count ? cli_token_readable(q->tokenizer, e->ids[0]) : NULL;
    snprintf(first, sizeof first, "%s", readable ? cli_shown_start(readable, 40) : "");
    free(readable);
    mha_encoding_free(e);
    if (count == 1) return code;
    return cli_usage(s, "%s must be one token, with its leading space (got \"%s\", %lld tokens, the first is \"%s\")",
                     option, cli_shown(text), (long long)count, first);
}

int cli_sequence_position(const cli_session *s, const cli_sequence *q, const char *option, const char *text,
                          int64_t *position)
{
    long long at;
    int64_t found = 0;
    if (!text) return CLI_DONE;
    if (whole(text, &at)) {
        if (at < -q->count || at >= q->count)
            return cli_usage(s, "%s must be from %lld to %lld (got %lld)", option, -(long long)q->count,
                             (long long)q->count - 1, at);
        *position = at < 0 ? at + q->count : at;
        return CLI_DONE;
    }
    if (q->pixels)
        return cli_usage(s, "%s must be an index for a model that reads images (got \"%s\")", option, cli_shown(text));
    for (int64_t t = 0; t < q->count; t++) {
        char *words = cli_token_words(q->tokenizer, q->ids[t]);
        const char *token = words ? words : cli_sequence_token(q, q->ids[t]);
        if (strcmp(token, text) == 0 || (*token == ' ' && strcmp(token + 1, text) == 0)) {
            *position = t;
            found++;
        }
        free(words);
    }
    if (found == 1) return CLI_DONE;
    return cli_usage(s, "%s must be an index, or a token that occurs once (got \"%s\", which occurs %lld times)",
                     option, cli_shown(text), (long long)found);
}
