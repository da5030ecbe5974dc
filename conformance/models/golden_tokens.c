/* golden_tokens.c - compares a tokenizer: ids, token strings, offsets and decoded text must match exactly. */
#include "conformance/models/golden_model.h"
#include "output.h"
#include <math.h>
#include <string.h>

/* Returns the number of different or missing elements; infinity if `want` is not an array. */
static double differing(const int32_t *ids, int64_t count, const json_t *want)
{
    int64_t expected = (int64_t)json_array_size(want), wrong = expected > count ? expected - count : count - expected;
    for (int64_t n = 0; n < count && n < expected; n++) {
        const json_t *value = json_array_get(want, (size_t)n);
        if (!json_is_integer(value) || json_integer_value(value) != ids[n]) wrong++;
    }
    return json_is_array(want) ? (double)wrong : INFINITY;
}

/* True if `text` matches a special token. The recording may have the matched text instead: the token with adjacent
 * spaces, or, for the unknown token, a text that is not a token. */
static bool matches_special(const mha_tokenizer *tokenizer, const char *token, const char *text)
{
    const size_t n = strlen(token), before = strspn(text, " ");
    const bool equal =
        strncmp(text + before, token, n) == 0 && text[before + n + strspn(text + before + n, " ")] == '\0';
    return equal || mha_tokenizer_id(tokenizer, text) < 0;
}

static double differing_tokens(const mha_tokenizer *tokenizer, const mha_encoding *e, const json_t *want)
{
    double wrong = fabs((double)json_array_size(want) - (double)e->count);
    for (int64_t n = 0; n < e->count; n++) {
        const char *token = mha_tokenizer_token(tokenizer, e->ids[n]);
        const char *expected = json_string_value(json_array_get(want, (size_t)n));
        if (!expected || (token && strcmp(token, expected) == 0)) continue;
        if (!token || !mha_tokenizer_is_special(tokenizer, e->ids[n]) || !matches_special(tokenizer, token, expected))
            wrong++;
    }
    return wrong;
}

/* Returns the number of characters before byte `end` of UTF-8 text. */
static int64_t characters(const char *text, int64_t end)
{
    int64_t count = 0;
    for (int64_t n = 0; n < end; n++)
        count += ((unsigned char)text[n] & 0xC0) != 0x80;
    return count;
}

/* Returns the number of different offsets. Recorded offsets are in characters, and the library's offsets are in
 * bytes. */
static double differing_offsets(const char *text, const mha_encoding *e, const json_t *want)
{
    double wrong = fabs((double)json_array_size(want) - (double)e->count);
    for (int64_t n = 0; n < e->count; n++) {
        const json_t *pair = json_array_get(want, (size_t)n);
        if (!pair) break;
        if (json_integer_value(json_array_get(pair, 0)) != characters(text, e->begin[n]) ||
            json_integer_value(json_array_get(pair, 1)) != characters(text, e->end[n]))
            wrong++;
    }
    return wrong;
}

static void check_decoded(verify_case *c, const mha_tokenizer *tokenizer, const mha_encoding *e, bool skip_special,
                          const char *what, const json_t *want)
{
    char *text = NULL;
    size_t bytes = 0;
    mha_error error = {0};
    if (!want || c->broken || c->refused) return;
    if (mha_tokenizer_decode(tokenizer, e->ids, e->count, skip_special, &text, &bytes, &error) != MHA_OK) {
        verify_stopped(c, &error);
        return;
    }
    bool same = bytes == json_string_length(want) && memcmp(text, json_string_value(want), bytes) == 0;
    verify_measured(c, what, same ? 0 : 1, 0);
    mha_tokenizer_text_free(tokenizer, text);
}

static void check_encoding(verify_case *c, const mha_tokenizer *tokenizer, const json_t *row, bool special)
{
    const json_t *text = json_object_get(row, "text");
    mha_encode_options options = {.size = sizeof options, .no_special = !special};
    mha_encoding *e = NULL;
    mha_error error = {0};
    if (mha_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), NULL, 0, &options, &e,
                             &error) != MHA_OK) {
        verify_stopped(c, &error);
        return;
    }
    const char *ids = special ? "ids" : "ids_plain";
    verify_measured(c, ids, differing(e->ids, e->count, json_object_get(row, ids)), 0);
    const json_t *tokens = json_object_get(row, "tokens"), *offsets = json_object_get(row, "offsets_plain");
    if (special && tokens) verify_measured(c, "tokens", differing_tokens(tokenizer, e, tokens), 0);
    if (!special && offsets)
        verify_measured(c, "offsets_plain", differing_offsets(json_string_value(text), e, offsets), 0);
    const char *decoded = special ? "decoded_skip_special" : "decoded";
    check_decoded(c, tokenizer, e, special, decoded, json_object_get(row, decoded));
    mha_encoding_free(e);
}

static void check_pair(verify_case *c, const mha_tokenizer *tokenizer, const json_t *row)
{
    const json_t *a = json_object_get(row, "a"), *b = json_object_get(row, "b");
    mha_encoding *e = NULL;
    mha_error error = {0};
    if (mha_tokenizer_encode(tokenizer, json_string_value(a), json_string_length(a), json_string_value(b),
                             json_string_length(b), NULL, &e, &error) != MHA_OK) {
        verify_stopped(c, &error);
        return;
    }
    verify_measured(c, "ids", differing(e->ids, e->count, json_object_get(row, "ids")), 0);
    verify_measured(c, "type_ids", differing(e->type_ids, e->count, json_object_get(row, "type_ids")), 0);
    mha_encoding_free(e);
}

/* Reads an entry of "strings" or "pairs"; its members `keys` must be strings. */
static mha_status check_rows(const verify_entry *model, const json_t *rows, bool pairs, const mha_tokenizer *tokenizer,
                             verify_log *log)
{
    size_t n;
    json_t *row;
    json_array_foreach(rows, n, row)
    {
        char name[200];
        verify_case outcome;
        snprintf(name, sizeof name, "%s %s/%02zu", model->name, pairs ? "pair" : "tok", n);
        verify_entry e = {row, name, model->error};
        verify_text(&e, pairs ? "a" : "text");
        if (pairs) verify_text(&e, "b");
        if (e.error->status != MHA_OK) return e.error->status;
        verify_begin(&outcome, model->name, name);
        if (pairs) {
            check_pair(&outcome, tokenizer, row);
        } else {
            check_encoding(&outcome, tokenizer, row, true);
            if (!outcome.broken && !outcome.refused) check_encoding(&outcome, tokenizer, row, false);
        }
        verify_end(log, &outcome);
    }
    return MHA_OK;
}

mha_status verify_tokens(const verify_entry *model, const json_t *record, const mha_tokenizer *tokenizer,
                         verify_log *log)
{
    mha_status status = check_rows(model, json_object_get(record, "strings"), false, tokenizer, log);
    if (status != MHA_OK) return status;
    return check_rows(model, json_object_get(record, "pairs"), true, tokenizer, log);
}

void verify_ids(verify_case *c, const mha_tokenizer *tokenizer, int64_t max, const json_t *text, const int64_t *ids,
                const int64_t *types, int64_t count)
{
    const json_t *first = json_is_array(text) ? json_array_get(text, 0) : text, *second = json_array_get(text, 1);
    mha_encode_options options = {.size = sizeof options, .max_tokens = max};
    mha_encoding *e = NULL;
    mha_error error = {0};
    if (mha_tokenizer_encode(tokenizer, json_string_value(first), json_string_length(first), json_string_value(second),
                             json_string_length(second), &options, &e, &error) != MHA_OK) {
        verify_stopped(c, &error);
        return;
    }
    int64_t wrong = e->count > count ? e->count - count : count - e->count, wrong_types = wrong;
    for (int64_t n = 0; n < count && n < e->count; n++) {
        wrong += e->ids[n] != ids[n];
        wrong_types += types && e->type_ids[n] != types[n];
    }
    verify_measured(c, "input_ids", (double)wrong, 0);
    if (types) verify_measured(c, "token_type_ids", (double)wrong_types, 0);
    mha_encoding_free(e);
}
