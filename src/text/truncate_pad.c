/* truncate_pad.c - computes truncation and padding from the limits of the caller or, if requested, the limits stored in
 * tokenizer.json. */
#include "text/truncate_pad.h"

#include "base/size.h"
#include <string.h>

/* Maximum padded length that a file may request, which limits the memory use. */
enum { PADDED_MAX = 1 << 20 };

/* ---- loading stored limits ---- */

static mha_status load_left(const mha__json_obj *json, mha__need need, bool *left, mha_error *err)
{
    static const char *const directions[] = {"Right", "Left", NULL};
    int index = 0;
    MHA__TRY(mha__json_choice(json, "direction", need, directions, "\"Right\" or \"Left\"", &index, err));
    *left = index == 1;
    return MHA_OK;
}

/* Reads {"max_length": 128, "strategy": "LongestFirst", "stride": 0}; "direction" was added in tokenizers 0.11. */
static mha_status load_truncation(const mha__json_obj *json, mha__stored_limits *limits, mha_error *err)
{
    static const char *const strategies[] = {"LongestFirst", "OnlyFirst", "OnlySecond", NULL};
    int64_t stride = 0; /* overlap of the parts of a truncated text; unused, because only the first part is kept */
    int strategy = 0;
    MHA__TRY(mha__json_int(json, "max_length", MHA__REQUIRED, 0, INT64_MAX, &limits->max_tokens, err));
    MHA__TRY(mha__json_int(json, "stride", MHA__OPTIONAL, 0, INT64_MAX, &stride, err));
    MHA__TRY(mha__json_choice(json, "strategy", MHA__REQUIRED, strategies,
                              "\"LongestFirst\", \"OnlyFirst\" or \"OnlySecond\"", &strategy, err));
    limits->cut = (mha__cut)strategy;
    return load_left(json, MHA__OPTIONAL, &limits->cut_left, err);
}

/* Reads "strategy": "BatchLongest" or {"Fixed": 128}. BatchLongest sets *pad_to to -1: a call encodes one text, which
 * is the longest of its batch. */
static mha_status load_padding_strategy(const mha__json_obj *json, int64_t *pad_to, mha_error *err)
{
    static const char *const strategies[] = {"BatchLongest", NULL};
    const char *want = "\"BatchLongest\" or {\"Fixed\": length}";
    int ignored;
    *pad_to = -1;
    mha__json_obj fixed = {mha__json_get(json->json, "strategy"), json->file, "padding.strategy"};
    if (mha__json_is(fixed.json, MHA__JSON_OBJECT))
        return mha__json_int(&fixed, "Fixed", MHA__REQUIRED, 0, PADDED_MAX, pad_to, err);
    return mha__json_choice(json, "strategy", MHA__REQUIRED, strategies, want, &ignored, err);
}

static mha_status load_padding(const mha_tokenizer *t, const mha__json_obj *json, mha__stored_limits *limits,
                               mha_error *err)
{
    int64_t id;
    int64_t type_id;
    MHA__TRY(load_padding_strategy(json, &limits->pad_to, err));
    MHA__TRY(mha__json_int(json, "pad_to_multiple_of", MHA__OPTIONAL, 0, PADDED_MAX, &limits->pad_multiple, err));
    MHA__TRY(mha__json_int(json, "pad_id", MHA__REQUIRED, 0, INT32_MAX, &id, err));
    MHA__TRY(mha__json_int(json, "pad_type_id", MHA__REQUIRED, 0, INT32_MAX, &type_id, err));
    if (!mha__token_text(t, (int32_t)id)) return mha__json_refuse(json, "pad_id", "the id of a token", err);
    limits->pad_id = (int32_t)id;
    limits->pad_type_id = (int32_t)type_id;
    return load_left(json, MHA__REQUIRED, &limits->pad_left, err);
}

mha_status mha__limits_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err)
{
    mha__json_obj json;
    MHA__TRY(mha__json_object(root, "truncation", MHA__OPTIONAL, &json, err));
    t->limits.truncate = json.json != NULL;
    if (json.json) MHA__TRY(load_truncation(&json, &t->limits, err));
    MHA__TRY(mha__json_object(root, "padding", MHA__OPTIONAL, &json, err));
    t->limits.pad = json.json != NULL;
    return json.json ? load_padding(t, &json, &t->limits, err) : MHA_OK;
}

/* ---- limits of one call ---- */

mha_status mha__fit_resolve(const mha_tokenizer *t, const mha_encode_options *options, mha__fit *fit, mha_error *err)
{
    *fit = (mha__fit){.limited = options->max_tokens > 0, .max_tokens = options->max_tokens};
    if (options->max_tokens < 0)
        return mha__fail(err, MHA_ERR_ARG, "max_tokens must be at least 0; 0 means no limit (got %lld)",
                         (long long)options->max_tokens);
    if (!options->stored_limits || !t->limits.truncate) return MHA_OK;
    if (!fit->limited || t->limits.max_tokens < fit->max_tokens) fit->max_tokens = t->limits.max_tokens;
    fit->limited = true;
    fit->cut = t->limits.cut;
    fit->cut_left = t->limits.cut_left;
    return MHA_OK;
}

/* Truncates the longer text to the length of the shorter text, then both to half of `room` (the second text gets the
 * odd token). */
static void cut_longest(int64_t room, int64_t *first, int64_t *second)
{
    int64_t *small = *first <= *second ? first : second;
    int64_t *large = *first <= *second ? second : first;
    *large = mha__max64(*small, room - *small);
    if (*small + *large <= room) return;
    *small = room / 2;
    *large = room - room / 2;
}

mha_status mha__fit_cut(const mha__fit *fit, int64_t specials, mha__token_range *kept, int texts, mha_error *err)
{
    int64_t count[2] = {(int64_t)kept[0].count, texts == 2 ? (int64_t)kept[1].count : 0};
    if (!fit->limited || count[0] + count[1] + specials <= fit->max_tokens) return MHA_OK;
    int64_t room = fit->max_tokens - specials;
    if (room < 0)
        return mha__fail(err, MHA_ERR_ARG, "max_tokens must be at least the %lld special tokens (got %lld)",
                         (long long)specials, (long long)fit->max_tokens);
    int one = fit->cut == MHA__CUT_SECOND; /* index of the text to truncate, if only one may be truncated */
    if (room == 0) { /* without space for any token, the reference removes both texts, whichever may be truncated */
        count[0] = count[1] = 0;
    } else if (fit->cut == MHA__CUT_LONGEST && texts == 2) {
        cut_longest(room, &count[0], &count[1]);
    } else {
        int64_t other = texts == 2 ? count[!one] : 0;
        if (fit->cut != MHA__CUT_LONGEST && (one >= texts || room <= other))
            return mha__fail(
                err, MHA_ERR_ARG,
                "max_tokens must leave space for the %s text, the only one that may be truncated (got %lld)",
                one ? "second" : "first", (long long)fit->max_tokens);
        count[one] = room - other;
    }
    for (int i = 0; i < texts; i++) {
        if (fit->cut_left) kept[i].begin += kept[i].count - (size_t)count[i];
        kept[i].count = (size_t)count[i];
    }
    return MHA_OK;
}

int64_t mha__fit_padded(const mha__stored_limits *limits, int64_t count)
{
    int64_t length = limits->pad_to < 0 ? count : limits->pad_to;
    if (limits->pad_multiple > 0) length = mha__round_up(length, limits->pad_multiple);
    return mha__max64(count, length);
}
