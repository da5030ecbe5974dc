/* source_target.c - encodes the source and the target of a text for an encoder-decoder. */
#include "input/source_target.h"

#include "input/tokens.h"
#include "output.h"
#include <stdlib.h>
#include <string.h>

static int encode(const cli_session *s, const mha_model *model, const mha_tokenizer *tokenizer, const char *text,
                  size_t bytes, mha_encoding **out)
{
    mha_error error = {0};
    if (mha_tokenizer_encode(tokenizer, text, bytes, NULL, 0, NULL, out, &error) != MHA_OK)
        return cli_refuse(s, &error);
    return cli_check_rows(s, tokenizer, *out, mha_model_describe(model)->vocab);
}

int cli_source_target_encode(const cli_session *s, const mha_model *model, const mha_tokenizer *tokenizer,
                             const cli_texts *texts, int64_t n, cli_source_target *pair)
{
    const char *text = texts->text[n], *tab = memchr(text, '\t', texts->bytes[n]);
    const size_t bytes = tab ? (size_t)(tab - text) : texts->bytes[n];
    char where[CLI_WHERE];
    *pair = (cli_source_target){0};
    int code = encode(s, mha_model_encoder(model), tokenizer, text, bytes, &pair->source);
    if (code == CLI_DONE && pair->source->count == 0)
        code = cli_error(s, CLI_REFUSED, "%sthe source must have at least one token", cli_texts_where(texts, n, where));
    if (code == CLI_DONE && tab)
        code = encode(s, model, tokenizer, tab + 1, texts->bytes[n] - bytes - 1, &pair->target);
    return code;
}

void cli_source_target_free(cli_source_target *pair)
{
    mha_encoding_free(pair->source);
    mha_encoding_free(pair->target);
}

/* ---- lists of pairs ---- */

bool cli_texts_are_pairs(const cli_texts *texts)
{
    return texts->count > 0 && strchr(texts->text[0], '\t');
}

static int make_room(const cli_session *s, const cli_texts *texts, cli_pairs *pairs)
{
    size_t room = 1;
    for (int64_t n = 0; n < texts->count; n++)
        room += strlen(texts->text[n]) + 1;
    pairs->memory = malloc(room);
    pairs->source = pairs->target = (cli_texts){.count = texts->count, .line = texts->line, .path = texts->path};
    pairs->source.text = calloc((size_t)texts->count, sizeof *texts->text);
    pairs->target.text = calloc((size_t)texts->count, sizeof *texts->text);
    if (pairs->memory && pairs->source.text && pairs->target.text) return CLI_DONE;
    return cli_error(s, CLI_FAILED, "out of memory for the texts");
}

int cli_pairs_split(const cli_session *s, const cli_texts *texts, cli_pairs *pairs)
{
    char where[CLI_WHERE];
    *pairs = (cli_pairs){.memory = NULL};
    const int code = make_room(s, texts, pairs);
    char *at = pairs->memory;
    for (int64_t n = 0; n < texts->count && code == CLI_DONE; n++) {
        const size_t bytes = strlen(texts->text[n]) + 1;
        memcpy(at, texts->text[n], bytes);
        char *tab = strchr(at, '\t');
        if (!tab || strchr(tab + 1, '\t'))
            return cli_error(s, texts->path ? CLI_REFUSED : CLI_USAGE,
                             "%sa text for an encoder-decoder must be a source and a target, separated by one tab",
                             cli_texts_where(texts, n, where));
        *tab = '\0';
        pairs->source.text[n] = at;
        pairs->target.text[n] = tab + 1;
        at += bytes;
    }
    return code;
}

void cli_pairs_free(cli_pairs *pairs)
{
    free(pairs->source.text);
    free(pairs->target.text);
    free(pairs->memory);
}

const mha_model *cli_encoder_of(const mha_model *model)
{
    const mha_model *encoder = mha_model_encoder(model);
    return encoder ? encoder : model;
}
