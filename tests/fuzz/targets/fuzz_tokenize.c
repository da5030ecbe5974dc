/* fuzz_tokenize.c - encodes bytes as text. The first byte selects a tokenizer (and the options of BERT's normalizer).
 * Offsets must be inside the text, at character boundaries. A text must have the same tokens alone and in a pair. The
 * decoded text must be UTF-8 and, unless the tokens form invalid UTF-8, equal the text of a stream.
 */
#include "base/utf8.h"
#include "fuzz.h"
#include "text/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The folders of one tokenizer of each kind; the first tokenizer has a BertNormalizer. */
static const char *const folders[] = {"small-added",     "gpt2-tiny",         "llama-tiny",           "qwen3-tiny",
                                      "llama-yarn-tiny", "llama-linear-tiny", "gemma2-tiny",          "bpe-trim",
                                      "bpe-fused",       "bpe-first",         "bpe-digits",           "unigram",
                                      "unigram-bytes",   "bpe-ignore",        "bpe-split-contiguous", "bpe-silent"};
enum { FOLDERS = sizeof folders / sizeof folders[0] };

static mha_tokenizer *tokenizer(unsigned which)
{
    static mha_tokenizer *opened[FOLDERS]; /* never freed */
    char folder[64];
    mha_error err = {0};
    snprintf(folder, sizeof folder, "tokenizer/%s", folders[which]);
    if (!opened[which]) mha_tokenizer_open(NULL, fuzz_data(folder), &opened[which], &err);
    fuzz_check(opened[which] != NULL, err.message);
    return opened[which];
}

static void check_places(const mha_tokenizer *t, const mha_encoding *e, const char *text, size_t n)
{
    for (int64_t i = 0; i < e->count; i++) {
        fuzz_check(mha_tokenizer_token(t, e->ids[i]) != NULL, "every id must have a token");
        fuzz_check(e->begin[i] >= 0 && e->begin[i] <= e->end[i] && (size_t)e->end[i] <= n,
                   "offsets must be inside the text");
        fuzz_check(t->trim.wanted || e->begin[i] < e->end[i], "the offsets of a token must not be empty");
        size_t length = (size_t)(e->end[i] - e->begin[i]);
        fuzz_check(mha__utf8_check(text + e->begin[i], length) == length, "offsets must be at character boundaries");
    }
}

/* Decodes the tokens with a stream and writes its text to `all`, which has space for `room` bytes. Returns the length
 * of the text, or SIZE_MAX if the text is longer. */
static size_t stream(const mha_tokenizer *t, const mha_encoding *e, char *all, size_t room)
{
    mha_text_stream *s;
    const char *part;
    size_t n;
    size_t used = 0;
    fuzz_check(mha_text_stream_create(t, 0, &s, NULL) == MHA_OK, "creating a stream must succeed");
    for (int64_t i = 0; i <= e->count && used != SIZE_MAX; i++) {
        mha_status status =
            i < e->count ? mha_text_stream_put(s, e->ids[i], &part, &n, NULL) : mha_text_stream_end(s, &part, &n, NULL);
        fuzz_check(status == MHA_OK, "a stream must accept every token");
        fuzz_check(mha__utf8_check(part, n) == n, "a part must consist of whole characters");
        if (n > room - used) {
            used = SIZE_MAX;
        } else {
            memcpy(all + used, part, n);
            used += n;
        }
    }
    mha_text_stream_free(s);
    return used;
}

static void check_decoding(const mha_tokenizer *t, const mha_encoding *e)
{
    char *whole;
    size_t n;
    fuzz_check(mha_tokenizer_decode(t, e->ids, e->count, 0, &whole, &n, NULL) == MHA_OK,
               "decoding the tokens of a text must succeed");
    fuzz_check(mha__utf8_check(whole, n) == n, "decoded text must be UTF-8");
    if (!strstr(whole, "\xEF\xBF\xBD")) { /* for invalid UTF-8, a stream may decode differently */
        char *all = malloc(n + 1);
        fuzz_check(all && stream(t, e, all, n) == n && memcmp(all, whole, n) == 0,
                   "a stream must return the text decoded in one call");
        free(all);
    }
    mha_tokenizer_text_free(t, whole);
}

static void use_settings(mha_tokenizer *t, unsigned how)
{
    mha__edit *bert = &t->normalizer.items[0];
    bert->bert.clean_text = how & 1;
    bert->bert.chinese = how & 2;
    bert->bert.strip_accents = how & 4;
    bert->bert.lowercase = how & 8;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const mha_encode_options plain = {.size = sizeof plain, .no_special = 1};
    mha_encoding *e = NULL;
    mha_encoding *both = NULL;
    mha_error err = {0};
    uint8_t how = n ? bytes[0] : 0;
    const char *text = (const char *)bytes + (n > 0);
    n -= n > 0;
    mha_tokenizer *t = tokenizer(how >> 4);
    if (how >> 4 == 0) use_settings(t, how);
    bool valid = mha__utf8_check(text, n) == n;
    mha_status status = mha_tokenizer_encode(t, text, n, NULL, 0, &plain, &e, &err);
    fuzz_check(status == (valid ? MHA_OK : MHA_ERR_ARG),
               "UTF-8 text must be encoded, and invalid UTF-8 must be rejected");
    if (!e) return 0;
    check_places(t, e, text, n);
    fuzz_check(mha_tokenizer_encode(t, text, n, text, n, &plain, &both, &err) == MHA_OK,
               "encoding a pair must succeed");
    fuzz_check(both->count == 2 * e->count, "a pair must have the tokens of both texts");
    size_t size = (size_t)e->count * sizeof *e->ids;
    fuzz_check(memcmp(both->ids, e->ids, size) == 0 && memcmp(both->ids + e->count, e->ids, size) == 0,
               "tokens must not depend on the other text of the pair");
    check_decoding(t, e);
    mha_encoding_free(e);
    mha_encoding_free(both);
    return 0;
}
