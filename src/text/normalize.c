/* normalize.c - rewriting text before it is split; BertNormalizer.
 *
 * Everything BERT does happens character by character, so one pass over the text does it all: drop or blank
 * (clean_text), set Chinese characters apart, decompose and drop marks (strip_accents), lower case. The one step
 * that looks at neighbours is canonical order: characters with a combining class wait in `run` until the next one
 * without, and leave it sorted.
 */
#include "text/tokenizer.h"
#include "text/unicode.h"

#include "base/ctx.h"

/* ---- canonical order ---- */

static bool run_in_order(const mha__pending *run, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (run[i - 1].order > run[i].order) return false;
    return true;
}

/* pass->sorted = pass->run in ascending order, stable. By counting: linear, however long the run. */
static mha_status sort_run(mha__pass *pass)
{
    size_t begin[256] = {0};
    size_t n = pass->run_count;
    MHA__TRY(mha__pass_grow(pass, &pass->sorted, &pass->sorted_room, n, sizeof *pass->sorted));
    for (size_t i = 0; i < n; i++)
        if (pass->run[i].order < 255) begin[pass->run[i].order + 1]++;
    for (int k = 1; k < 256; k++)
        begin[k] += begin[k - 1];
    for (size_t i = 0; i < n; i++)
        pass->sorted[begin[pass->run[i].order]++] = pass->run[i];
    return MHA_OK;
}

/* Characters move, places do not: the reference lines up the characters of the sorted run with those of the text one by
 * one, in the order of the text; what a decomposition inserted stays with the character before it. */
static void place_run(mha__pass *pass)
{
    size_t next = 0;
    uint32_t from = pass->run[0].from;
    for (size_t i = 0; i < pass->run_count; i++) {
        if (!pass->sorted[i].inserted) {
            while (pass->run[next].inserted)
                next++;
            from = pass->run[next++].from;
        }
        pass->sorted[i].from = from;
    }
}

/* ---- BertNormalizer ---- */

static mha_status bert_lower(const mha_tokenizer *t, mha__pass *pass, uint32_t code, uint32_t from)
{
    uint32_t lower[2] = {code, 0};
    int n = t->bert.lowercase ? mha__char_lower(code, lower) : 1;
    for (int i = 0; i < n; i++)
        MHA__TRY(mha__aligned_put(pass, &pass->normal, lower[i], from));
    return MHA_OK;
}

/* Sends the run on, without its marks. */
static mha_status bert_flush(const mha_tokenizer *t, mha__pass *pass)
{
    const mha__pending *run = pass->run;
    if (!run_in_order(run, pass->run_count)) {
        MHA__TRY(sort_run(pass));
        place_run(pass);
        run = pass->sorted;
    }
    for (size_t i = 0; i < pass->run_count; i++)
        if (!mha__char_is(MHA__CHAR_MARK, run[i].code)) MHA__TRY(bert_lower(t, pass, run[i].code, run[i].from));
    pass->run_count = 0;
    return MHA_OK;
}

static mha_status bert_strip(const mha_tokenizer *t, mha__pass *pass, uint32_t code, uint32_t from)
{
    uint32_t parts[MHA__DECOMPOSED_MAX];
    int n = mha__char_decompose(code, parts);
    for (int i = 0; i < n; i++) {
        uint8_t order = (uint8_t)mha__char_order(parts[i]);
        if (order == 0) MHA__TRY(bert_flush(t, pass));
        MHA__TRY(mha__pass_grow(pass, &pass->run, &pass->run_room, pass->run_count + 1, sizeof *pass->run));
        pass->run[pass->run_count++] = (mha__pending){parts[i], from, order, i > 0};
    }
    return MHA_OK;
}

static mha_status bert_char(const mha_tokenizer *t, mha__pass *pass, uint32_t code, uint32_t from)
{
    if (t->bert.clean_text) {
        if (mha__char_is(MHA__CHAR_REMOVED, code)) return MHA_OK;
        if (mha__char_is(MHA__CHAR_SPACE, code)) code = ' ';
    }
    mha_status (*put)(const mha_tokenizer *, mha__pass *, uint32_t, uint32_t) =
        t->bert.strip_accents ? bert_strip : bert_lower;
    bool apart = t->bert.chinese && mha__char_is(MHA__CHAR_CHINESE, code);
    if (apart) MHA__TRY(put(t, pass, ' ', from));
    MHA__TRY(put(t, pass, code, from));
    return apart ? put(t, pass, ' ', from) : MHA_OK;
}

static mha_status bert_apply(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in)
{
    pass->run_count = 0;
    for (size_t at = 0, length; at < in->n; at += length) {
        uint32_t code = mha__slice_next(in, at, &length);
        MHA__TRY(bert_char(t, pass, code, mha__slice_from(in, at)));
    }
    return pass->run_count ? bert_flush(t, pass) : MHA_OK;
}

static mha_status bert_load(mha_tokenizer *t, const mha__json_obj *json, mha_error *err)
{
    MHA__TRY(mha__json_bool(json, "clean_text", MHA__REQUIRED, &t->bert.clean_text, err));
    MHA__TRY(mha__json_bool(json, "handle_chinese_chars", MHA__REQUIRED, &t->bert.chinese, err));
    MHA__TRY(mha__json_bool(json, "lowercase", MHA__REQUIRED, &t->bert.lowercase, err));
    t->bert.strip_accents = t->bert.lowercase;
    return mha__json_bool(json, "strip_accents", MHA__OPTIONAL, &t->bert.strip_accents, err);
}

static const mha__normalizer_kind bert = {{"BertNormalizer", bert_load}, bert_apply};

/* ---- the stage ---- */

mha_status mha__normalizer_load(mha_tokenizer *t, const mha__json_obj *root, mha_error *err)
{
    static const mha__kind *const kinds[] = {&bert.kind, NULL};
    const mha__kind *kind = NULL;
    MHA__TRY(mha__stage_load(t, root, "normalizer", kinds, &kind, err));
    t->normalizer = (const mha__normalizer_kind *)kind;
    return MHA_OK;
}

mha_status mha__normalize(const mha_tokenizer *t, mha__pass *pass, const mha__slice *in, mha__slice *out)
{
    *out = *in;
    if (!t->normalizer) return MHA_OK;
    pass->normal.n = 0;
    pass->normal.limit = MHA__NORMALIZED_BYTES(in->n);
    MHA__TRY(t->normalizer->apply(t, pass, in));
    *out = mha__aligned_slice(&pass->normal);
    return MHA_OK;
}
