/* fuzz_tokenize.c - any bytes as text. The first byte chooses a tokenizer (and the settings of BERT's normalizer); the
 * rest is the text. Places lie inside of it, at characters; the same text gives the same tokens when it is half of a
 * pair; what the tokens decode to is UTF-8, and the same as a stream, where that need not guess.
 */
#include "fuzz.h"

#include "base/utf8.h"
#include "text/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One of each sort; the first has a BertNormalizer. */
static const char *const folders[] = {"small-added",     "gpt2-tiny",         "llama-tiny",           "qwen3-tiny",
                                      "llama-yarn-tiny", "llama-linear-tiny", "gemma2-tiny",          "bpe-trim",
                                      "bpe-fused",       "bpe-first",         "bpe-digits",           "unigram",
                                      "unigram-bytes",   "bpe-ignore",        "bpe-split-contiguous", "bpe-silent"};
enum { FOLDERS = sizeof folders / sizeof folders[0] };

static mha_tokenizer *tokenizer(unsigned which)
{
    static mha_tokenizer *opened[FOLDERS]; /* as long as the program */
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
        fuzz_check(mha_tokenizer_token(t, e->ids[i]) != NULL, "every id has a token");
        fuzz_check(e->begin[i] >= 0 && e->begin[i] <= e->end[i] && (size_t)e->end[i] <= n, "places lie inside");
        fuzz_check(t->trim.wanted || e->begin[i] < e->end[i], "a token has a place");
        size_t length = (size_t)(e->end[i] - e->begin[i]);
        fuzz_check(mha__utf8_check(text + e->begin[i], length) == length, "places lie at characters");
    }
}

/* The stream's text, appended to `all`, which has room for the whole text; SIZE_MAX if it is longer. */
static size_t stream(const mha_tokenizer *t, const mha_encoding *e, char *all, size_t room)
{
    mha_text_stream *s;
    const char *part;
    size_t n;
    size_t used = 0;
    fuzz_check(mha_text_stream_create(t, 0, &s, NULL) == MHA_OK, "a stream is made");
    for (int64_t i = 0; i <= e->count && used != SIZE_MAX; i++) {
        mha_status status =
            i < e->count ? mha_text_stream_put(s, e->ids[i], &part, &n, NULL) : mha_text_stream_end(s, &part, &n, NULL);
        fuzz_check(status == MHA_OK, "a stream takes every token");
        fuzz_check(mha__utf8_check(part, n) == n, "a part is whole characters");
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
    fuzz_check(mha_tokenizer_decode(t, e->ids, e->count, 0, &whole, &n, NULL) == MHA_OK, "tokens of a text decode");
    fuzz_check(mha__utf8_check(whole, n) == n, "decoded text is UTF-8");
    if (!strstr(whole, "\xEF\xBF\xBD")) { /* else it may have replaced a run of bytes that a stream takes apart */
        char *all = malloc(n + 1);
        fuzz_check(all && stream(t, e, all, n) == n && memcmp(all, whole, n) == 0, "a stream is the whole text");
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
    fuzz_check(status == (valid ? MHA_OK : MHA_ERR_ARG), "UTF-8 is encoded, anything else refused");
    if (!e) return 0;
    check_places(t, e, text, n);
    fuzz_check(mha_tokenizer_encode(t, text, n, text, n, &plain, &both, &err) == MHA_OK, "a pair is encoded too");
    fuzz_check(both->count == 2 * e->count, "a pair has the tokens of both");
    size_t size = (size_t)e->count * sizeof *e->ids;
    fuzz_check(memcmp(both->ids, e->ids, size) == 0 && memcmp(both->ids + e->count, e->ids, size) == 0,
               "tokens do not depend on the other text");
    check_decoding(t, e);
    mha_encoding_free(e);
    mha_encoding_free(both);
    return 0;
}
