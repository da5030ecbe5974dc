/* gguf_pieces.c - writes BPE of SentencePiece, and WordPiece, as tokenizer.json. */
#include "base/ctx.h"
#include "text/gguf/gguf_translation.h"
#include <math.h>
#include <string.h>

static void put_replace(mha__gguf_translation *t, const char *from, const char *to)
{
    mha__gguf_begin(t, NULL, "Replace");
    mha__json_key(&t->w, "pattern");
    mha__json_open(&t->w, '{');
    mha__gguf_put_text(t, "String", from);
    mha__gguf_end(t);
    mha__gguf_put_text(t, "content", to);
    mha__gguf_end(t);
}

static mha_status read_scores(const mha__gguf_translation *t, float *scores)
{
    const mha__gguf_value *v = NULL;
    MHA__TRY(mha__gguf_array(t->file, MHA__GGUF_KEY("scores"), MHA__GGUF_F32, &v, t->err));
    if (!v) return mha__gguf_refuse(t->file, MHA__GGUF_KEY("scores"), "an array of f32", t->err);
    MHA__TRY(mha__gguf_check_count(t, MHA__GGUF_KEY("scores"), v));
    memcpy(scores, v->data, (size_t)t->words.count * sizeof *scores);
    for (int64_t i = 0; i < t->words.count; i++)
        if (!isfinite(scores[i])) return mha__gguf_refuse(t->file, MHA__GGUF_KEY("scores"), "finite", t->err);
    return MHA_OK;
}

static mha_status put_scored_merges(mha__gguf_translation *t, const float *scores)
{
    mha__gguf_merge *merges = NULL;
    int64_t count = 0;
    MHA__TRY(mha__gguf_merges(&t->words, scores, &merges, &count, t->err));
    mha__gguf_begin_list(t, "merges");
    for (int64_t i = 0; i < count; i++) {
        mha__json_open(&t->w, '[');
        mha__gguf_put_word(t, merges[i].left_id);
        mha__gguf_put_word(t, merges[i].right_id);
        mha__gguf_end_list(t);
    }
    mha__gguf_end_list(t);
    mha__free(t->words.ctx, merges);
    return MHA_OK;
}

/* Writes the steps around the model: spaces become U+2581, and one is added before the text if add_space_prefix is true
 * or absent. */
static void put_spaces(mha__gguf_translation *t, bool prefix)
{
    mha__gguf_begin(t, "normalizer", "Sequence");
    mha__gguf_begin_list(t, "normalizers");
    if (prefix) {
        mha__gguf_begin(t, NULL, "Prepend");
        mha__gguf_put_text(t, "prepend", MHA__GGUF_MARK);
        mha__gguf_end(t);
    }
    put_replace(t, " ", MHA__GGUF_MARK);
    mha__gguf_end_list(t);
    mha__gguf_end(t);
    mha__gguf_begin(t, "decoder", "Sequence");
    mha__gguf_begin_list(t, "decoders");
    put_replace(t, MHA__GGUF_MARK, " ");
    mha__gguf_begin(t, NULL, "ByteFallback");
    mha__gguf_end(t);
    mha__gguf_begin(t, NULL, "Fuse");
    mha__gguf_end(t);
    if (prefix) {
        mha__gguf_begin(t, NULL, "Strip");
        mha__gguf_put_text(t, "content", " ");
        mha__json_key(&t->w, "start");
        mha__json_put_int(&t->w, 1);
        mha__json_key(&t->w, "stop");
        mha__json_put_int(&t->w, 0);
        mha__gguf_end(t);
    }
    mha__gguf_end_list(t);
    mha__gguf_end(t);
}

mha_status mha__gguf_put_sentencepiece(mha__gguf_translation *t)
{
    bool prefix = true;
    int64_t unknown;
    MHA__TRY(mha__gguf_bool(t->file, MHA__GGUF_KEY("add_space_prefix"), &prefix, t->err));
    MHA__TRY(mha__gguf_token_id(t, MHA__GGUF_KEY("unknown_token_id"), &unknown));
    float *scores = mha__calloc(t->words.ctx, (size_t)t->words.count, sizeof *scores);
    if (!scores) return mha__no_memory(t->err, (size_t)t->words.count * sizeof *scores, "the scores of tokens");
    put_spaces(t, prefix);
    mha__gguf_begin(t, "model", "BPE");
    if (unknown >= 0) {
        mha__json_key(&t->w, "unk_token");
        mha__gguf_put_word(t, unknown);
    }
    mha__gguf_put_bool(t, "fuse_unk", true);
    mha__gguf_put_bool(t, "byte_fallback", true);
    mha__gguf_put_vocab(t);
    mha_status status = read_scores(t, scores);
    if (status == MHA_OK) status = put_scored_merges(t, scores);
    mha__free(t->words.ctx, scores);
    mha__gguf_end(t);
    return status;
}

/* Undoes the form in which files store WordPiece: U+2581 before the start of a word, and no "##" within a word. */
static mha_status put_pieces(mha__gguf_translation *t)
{
    const size_t mark = strlen(MHA__GGUF_MARK);
    mha__json_key(&t->w, "vocab");
    mha__json_open(&t->w, '{');
    for (int64_t i = 0; i < t->words.count; i++) {
        const char *text = t->words.text[i];
        const size_t n = t->words.bytes[i];
        char piece[512] = "##";
        const bool starts = n > mark && memcmp(text, MHA__GGUF_MARK, mark) == 0;
        const bool special = n > 1 && text[0] == '[' && text[n - 1] == ']';
        if (t->type[i] == MHA__GGUF_TOKEN_UNUSED) continue;
        if (n > sizeof piece - 3)
            return mha__fail(
                t->err, MHA_ERR_FORMAT, "%s: " MHA__GGUF_KEY("tokens") "[%lld] must have at most %zu bytes (got %zu)",
                mha__quote(&(mha__quoted){0}, t->file->path, strlen(t->file->path)), (long long)i, sizeof piece - 3, n);
        if (n) memcpy(piece + 2, text, n);
        if (starts)
            mha__json_key_bytes(&t->w, text + mark, n - mark);
        else
            mha__json_key_bytes(&t->w, special ? text : piece, special ? n : n + 2);
        mha__json_put_int(&t->w, i);
    }
    mha__gguf_end(t);
    return MHA_OK;
}

mha_status mha__gguf_put_wordpiece(mha__gguf_translation *t)
{
    int64_t unknown;
    bool lowercase = true;
    MHA__TRY(mha__gguf_token_id(t, MHA__GGUF_KEY("unknown_token_id"), &unknown));
    MHA__TRY(mha__gguf_bool(t->file, MHA__GGUF_KEY("normalizer.lowercase"), &lowercase, t->err));
    bool strip = lowercase;
    MHA__TRY(mha__gguf_bool(t->file, MHA__GGUF_KEY("normalizer.strip_accents"), &strip, t->err));
    mha__gguf_begin(t, "normalizer", "BertNormalizer");
    mha__gguf_put_bool(t, "clean_text", true);
    mha__gguf_put_bool(t, "handle_chinese_chars", true);
    mha__gguf_put_bool(t, "lowercase", lowercase);
    mha__gguf_put_bool(t, "strip_accents", strip);
    mha__gguf_end(t);
    mha__gguf_begin(t, "pre_tokenizer", "BertPreTokenizer");
    mha__gguf_end(t);
    mha__gguf_begin(t, "decoder", "WordPiece");
    mha__gguf_put_text(t, "prefix", "##");
    mha__gguf_put_bool(t, "cleanup", true);
    mha__gguf_end(t);
    mha__gguf_begin(t, "model", "WordPiece");
    mha__json_key(&t->w, "unk_token");
    if (unknown >= 0)
        mha__gguf_put_word(t, unknown);
    else
        mha__json_put_text(&t->w, "[UNK]");
    mha__gguf_put_text(t, "continuing_subword_prefix", "##");
    mha__json_key(&t->w, "max_input_chars_per_word");
    mha__json_put_int(&t->w, 100);
    MHA__TRY(put_pieces(t));
    mha__gguf_end(t);
    return MHA_OK;
}
