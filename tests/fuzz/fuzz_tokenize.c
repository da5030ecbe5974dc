/* fuzz_tokenize.c - any bytes as text. The first byte sets the normalizer; the rest is the text, for a tokenizer
 * that has a token of every sort. Places lie inside the text, at characters, in order; and the same text gives the
 * same tokens when it is half of a pair.
 */
#include "fuzz.h"

#include "base/utf8.h"
#include "text/tokenizer.h"
#include <string.h>

static mha_tokenizer *tokenizer(void)
{
    static mha_tokenizer *t; /* as long as the program */
    mha_error err = {0};
    if (!t) mha_tokenizer_open(NULL, MHA_TEST_DATA "/tokenizer/small-added", &t, &err);
    fuzz_check(t != NULL, err.message);
    return t;
}

static void check_places(const mha_encoding *e, const char *text, size_t n)
{
    for (int64_t i = 0; i < e->count; i++) {
        fuzz_check(mha_tokenizer_token(tokenizer(), e->ids[i]) != NULL, "every id has a token");
        fuzz_check(e->begin[i] >= 0 && e->begin[i] < e->end[i] && (size_t)e->end[i] <= n, "places lie inside");
        size_t length = (size_t)(e->end[i] - e->begin[i]);
        fuzz_check(mha__utf8_check(text + e->begin[i], length) == length, "places lie at characters");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    mha_tokenizer *t = tokenizer();
    mha_encoding *e = NULL;
    mha_encoding *both = NULL;
    mha_error err = {0};
    uint8_t how = n ? bytes[0] : 0;
    const char *text = (const char *)bytes + (n > 0);
    n -= n > 0;
    t->normalizer.items[0].bert.clean_text = how & 1;
    t->normalizer.items[0].bert.chinese = how & 2;
    t->normalizer.items[0].bert.strip_accents = how & 4;
    t->normalizer.items[0].bert.lowercase = how & 8;
    bool valid = mha__utf8_check(text, n) == n;
    mha_status status = mha_tokenizer_encode(t, text, n, NULL, 0, NULL, &e, &err);
    fuzz_check(status == (valid ? MHA_OK : MHA_ERR_ARG), "UTF-8 is encoded, anything else refused");
    if (!e) return 0;
    check_places(e, text, n);
    fuzz_check(mha_tokenizer_encode(t, text, n, text, n, NULL, &both, &err) == MHA_OK, "a pair is encoded too");
    fuzz_check(both->count == 2 * e->count, "a pair has the tokens of both");
    size_t size = (size_t)e->count * sizeof *e->ids;
    fuzz_check(memcmp(both->ids, e->ids, size) == 0 && memcmp(both->ids + e->count, e->ids, size) == 0,
               "tokens do not depend on the other text");
    mha_encoding_free(e);
    mha_encoding_free(both);
    return 0;
}
