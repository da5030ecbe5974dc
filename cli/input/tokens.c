/* tokens.c - parses token ids, and prints tokens above their ids. */
#include "input/tokens.h"

#include "output.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *cli_token_text(const mha_tokenizer *tokenizer, int32_t id)
{
    const char *token = mha_tokenizer_token(tokenizer, id);
    return token ? token : "";
}

const char *cli_token_name(const mha_model *model, int32_t id, char digits[CLI_ID_DIGITS])
{
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    const mha_model_info *info = mha_model_describe(model);
    if (tokenizer) return cli_token_text(tokenizer, id);
    if (!info->image_channels) {
        snprintf(digits, CLI_ID_DIGITS, "%d", (int)id);
        return digits;
    }
    const int columns = (int)(info->image_width / info->patch_width), patch = (int)id - 1;
    if (id == 0) return "[class]";
    snprintf(digits, CLI_ID_DIGITS, "%hu,%hu", (unsigned short)(patch / columns), (unsigned short)(patch % columns));
    return digits;
}

static bool all_ascii(const char *text)
{
    while (*text && !(*text & 0x80))
        text++;
    return !*text;
}

/* The character that stands for a space in SentencePiece tokens; decoders drop it from the first word. */
#define SPACE_MARK "\xE2\x96\x81"

char *cli_token_words(const mha_tokenizer *tokenizer, int32_t id)
{
    const char *raw = tokenizer ? cli_token_text(tokenizer, id) : "";
    char *decoded = NULL, *words = NULL;
    if (all_ascii(raw) || mha_tokenizer_is_special(tokenizer, id)) return NULL;
    if (mha_tokenizer_decode(tokenizer, &id, 1, 0, &decoded, NULL, NULL) != MHA_OK) return NULL;
    const bool space = strncmp(raw, SPACE_MARK, strlen(SPACE_MARK)) == 0 && *decoded != ' ';
    const size_t bytes = strlen(decoded) + 2;
    const bool whole = !strstr(decoded, "\xEF\xBF\xBD") && (*decoded || space);
    if (whole && strcmp(decoded, raw) != 0 && (words = malloc(bytes)))
        snprintf(words, bytes, "%s%s", space ? " " : "", decoded);
    mha_tokenizer_text_free(tokenizer, decoded);
    return words;
}

char *cli_token_readable(const mha_tokenizer *tokenizer, int32_t id)
{
    char digits[CLI_ID_DIGITS];
    char *words = cli_token_words(tokenizer, id);
    snprintf(digits, sizeof digits, "%d", (int)id);
    return words ? words : strdup(tokenizer ? cli_token_text(tokenizer, id) : digits);
}

json_t *cli_token_json(const mha_tokenizer *tokenizer, int32_t id)
{
    char *text = cli_token_readable(tokenizer, id);
    json_t *token = json_string(text ? text : "");
    free(text);
    return token;
}

int cli_ids_read(const cli_session *session, const cli_texts *texts, int64_t n, int64_t vocab, int32_t *ids,
                 int64_t *count)
{
    const int wrong = texts->path ? CLI_REFUSED : CLI_USAGE;
    const char *text = texts->text[n];
    char where[CLI_WHERE];
    for (char *end;; text = end + 1) {
        errno = 0;
        const long long id = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : -1;
        if (id < 0 || errno || (*end && *end != ','))
            return cli_error(session, wrong,
                             "--ids: %stoken ids must be whole numbers separated by commas (got \"%s\")",
                             cli_texts_where(texts, n, where), cli_shown_start(text, 40));
        if (id >= vocab)
            return cli_error(session, wrong,
                             "--ids: %sa token id must be less than the model's vocab_size %lld (got %lld)",
                             cli_texts_where(texts, n, where), (long long)vocab, id);
        ids[(*count)++] = (int32_t)id;
        if (!*end) return CLI_DONE;
    }
}

int cli_check_rows(const cli_session *s, const mha_tokenizer *tokenizer, const mha_encoding *e, int64_t rows)
{
    for (int64_t i = 0; rows > 0 && i < e->count; i++)
        if (e->ids[i] >= rows)
            return cli_error(
                s, CLI_REFUSED,
                "%s/tokenizer.json: the id of token \"%s\" must be less than the model's vocab_size %lld (got %d)",
                cli_shown(s->model), cli_shown(cli_token_text(tokenizer, e->ids[i])), (long long)rows, (int)e->ids[i]);
    return CLI_DONE;
}

/* Returns the width of a token or its id in terminal columns, whichever is wider, plus one for a space. */
static int cell_width(const mha_tokenizer *tokenizer, int32_t id)
{
    const char *token = cli_token_text(tokenizer, id);
    int columns = cli_shown_columns(token, strlen(token)), digits = snprintf(NULL, 0, "%d", (int)id);
    return (columns > digits ? columns : digits) + 1;
}

static void put_token(const cli_session *session, const mha_tokenizer *tokenizer, int32_t id)
{
    const char *token = cli_token_text(tokenizer, id);
    bool special = mha_tokenizer_is_special(tokenizer, id);
    fputs(special ? cli_dim(session) : cli_bold(session), session->out);
    cli_put_shown(session->out, token, strlen(token));
    fputs(cli_plain(session), session->out);
    int columns = cli_shown_columns(token, strlen(token));
    fprintf(session->out, "%*s", cell_width(tokenizer, id) - columns, "");
}

void cli_put_tokens(const cli_session *session, const mha_tokenizer *tokenizer, const mha_encoding *e, int indent)
{
    for (int64_t begin = 0, end; begin < e->count; begin = end) {
        int used = indent;
        for (end = begin; end < e->count; end++) {
            int width = cell_width(tokenizer, e->ids[end]);
            if (end > begin && used + width > session->columns) break;
            used += width;
        }
        fprintf(session->out, "%*s", indent, "");
        for (int64_t i = begin; i < end; i++)
            put_token(session, tokenizer, e->ids[i]);
        fprintf(session->out, "\n%*s%s", indent, "", cli_dim(session));
        for (int64_t i = begin; i < end; i++)
            fprintf(session->out, "%-*d", cell_width(tokenizer, e->ids[i]), (int)e->ids[i]);
        fprintf(session->out, "%s\n", cli_plain(session));
    }
}
