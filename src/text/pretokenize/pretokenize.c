/* pretokenize.c - loads the pre-tokenizer, which splits text into words: maps each pre-tokenizer type to its edits. */
#include "text/tokenizer.h"

static const mha__edit cut_spaces = {.run = mha__edit_cut,
                                     .cut = {.pattern = {.character = MHA__CHAR_SPACE}, .how = MHA__REMOVED}};
static const mha__edit cut_punctuation = {
    .run = mha__edit_cut, .cut = {.pattern = {.character = MHA__CHAR_PUNCTUATION}, .how = MHA__ISOLATED}};

static const mha__edit cut_words = {.run = mha__edit_cut,
                                    .cut = {.pattern = {.character = MHA__CHAR_WORD}, .how = MHA__CONTIGUOUS}};

static mha_status load_spaces(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    return mha__edit_add(t, json, list, &cut_spaces, err);
}

static mha_status load_bert(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    MHA__TRY(mha__edit_add(t, json, list, &cut_spaces, err));
    return mha__edit_add(t, json, list, &cut_punctuation, err);
}

static mha_status load_digits(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    mha__edit edit = {.run = mha__edit_cut, .cut = {.pattern = {.character = MHA__CHAR_DIGIT}}};
    bool alone = false;
    MHA__TRY(mha__json_bool(json, "individual_digits", MHA__REQUIRED, &alone, err));
    edit.cut.how = alone ? MHA__ISOLATED : MHA__CONTIGUOUS;
    return mha__edit_add(t, json, list, &edit, err);
}

/* Splits into runs of word characters and runs of other characters, without white space. */
static mha_status load_words(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    MHA__TRY(mha__edit_add(t, json, list, &cut_spaces, err));
    return mha__edit_add(t, json, list, &cut_words, err);
}

/* Reads "behavior" into *how, which is unchanged if the key is optional and absent. */
static mha_status load_behavior(const mha__json_obj *json, mha__need need, mha__cut_how *how, mha_error *err)
{
    static const char *const names[] = {"Removed",        "Isolated",   "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous", NULL};
    int index = (int)*how;
    MHA__TRY(mha__json_choice(json, "behavior", need, names,
                              "\"Removed\", \"Isolated\", \"MergedWithPrevious\", \"MergedWithNext\" or \"Contiguous\"",
                              &index, err));
    *how = (mha__cut_how)index;
    return MHA_OK;
}

static mha_status load_punctuation(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    mha__edit edit = cut_punctuation;
    MHA__TRY(load_behavior(json, MHA__OPTIONAL, &edit.cut.how, err)); /* old files have no behavior */
    return mha__edit_add(t, json, list, &edit, err);
}

static mha_status load_split(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    mha__edit edit = {.run = mha__edit_cut};
    MHA__TRY(mha__pattern_load(t->ctx, &t->regexes, json, &edit.cut.pattern, err));
    if (edit.cut.pattern.string)
        MHA__TRY(mha__copy_text(t, edit.cut.pattern.string, edit.cut.pattern.n, &edit.cut.pattern.string, err));
    MHA__TRY(load_behavior(json, MHA__REQUIRED, &edit.cut.how, err));
    MHA__TRY(mha__json_bool(json, "invert", MHA__REQUIRED, &edit.cut.inverted, err));
    return mha__edit_add(t, json, list, &edit, err);
}

/* Splits at a character, which is dropped. */
static mha_status load_delimiter(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    mha__edit edit = {.run = mha__edit_cut, .cut = {.how = MHA__REMOVED}};
    mha__pattern *delimiter = &edit.cut.pattern;
    MHA__TRY(mha__character_load(t, json, "delimiter", &delimiter->string, &delimiter->n, err));
    return mha__edit_add(t, json, list, &edit, err);
}

/* Splits into words of `length` characters; the last word may be shorter. */
static mha_status load_fixed_length(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    mha__edit edit = {.run = mha__edit_cut, .cut = {.how = MHA__ISOLATED}};
    int64_t length = 5; /* the default of the reference */
    MHA__TRY(mha__json_int(json, "length", MHA__OPTIONAL, 1, INT64_MAX, &length, err));
    edit.cut.pattern.length = length;
    return mha__edit_add(t, json, list, &edit, err);
}

/* Prepends a space, splits by GPT-2's pattern, and replaces bytes with characters; the first two steps are optional. */
static mha_status load_bytes(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    const mha__edit space = {.run = mha__edit_prefix, .rewrites = true, .prefix = {.text = " ", .n = 1, .once = true}};
    const mha__edit bytes = {.run = mha__edit_bytes, .rewrites = true};
    mha__edit cut = {.run = mha__edit_cut, .cut = {.how = MHA__ISOLATED}};
    bool prefix = true;
    bool regex = true; /* the default in files written before tokenizers 0.12 */
    MHA__TRY(mha__json_bool(json, "add_prefix_space", MHA__REQUIRED, &prefix, err));
    MHA__TRY(mha__json_bool(json, "use_regex", MHA__OPTIONAL, &regex, err));
    if (prefix) MHA__TRY(mha__edit_add(t, json, list, &space, err));
    if (regex) {
        MHA__TRY(mha__regex_make(t->ctx, &t->regexes, mha__regex_gpt2, &cut.cut.pattern.regex, err));
        MHA__TRY(mha__edit_add(t, json, list, &cut, err));
    }
    return mha__edit_add(t, json, list, &bytes, err);
}

/* Replaces each space with a visible character, prepends this character, and splits before each occurrence of it. */
static mha_status load_metaspace(mha_tokenizer *t, const mha__json_obj *json, void *list, mha_error *err)
{
    mha__metaspace m;
    MHA__TRY(mha__metaspace_load(t, json, &m, err));
    mha__pattern space = {.string = " ", .n = 1};
    mha__pattern mark = {.string = m.mark, .n = m.n};
    const mha__edit replace = {
        .run = mha__edit_replace, .rewrites = true, .replace = {.pattern = space, .with = m.mark, .n = m.n}};
    const mha__edit prefix = {
        .run = mha__edit_prefix, .rewrites = true, .prefix = {m.mark, m.n, true, m.scheme == MHA__PREPEND_FIRST}};
    const mha__edit cut = {.run = mha__edit_cut, .cut = {.pattern = mark, .how = MHA__MERGED_NEXT}};
    MHA__TRY(mha__edit_add(t, json, list, &replace, err));
    if (m.scheme != MHA__PREPEND_NEVER) MHA__TRY(mha__edit_add(t, json, list, &prefix, err));
    return m.split ? mha__edit_add(t, json, list, &cut, err) : MHA_OK;
}

static const mha__kind kinds[] = {
    {"BertPreTokenizer", load_bert},
    {"ByteLevel", load_bytes},
    {"CharDelimiterSplit", load_delimiter},
    {"Digits", load_digits},
    {"FixedLength", load_fixed_length},
    {"Metaspace", load_metaspace},
    {"Punctuation", load_punctuation},
    {"Split", load_split},
    {"Whitespace", load_words},
    {"WhitespaceSplit", load_spaces},
    {NULL, NULL},
};

mha_status mha__splitter_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err)
{
    static const mha__stage stage = {"pre_tokenizer", "pretokenizers", kinds};
    return mha__stage_load(t, root, &stage, &t->splitter, NULL, err);
}
