/* fuzz_tokenizer.c - reads bytes as tokenizer.json. An accepted tokenizer must encode sample texts to ids of its
 * vocabulary, and decode these ids. */
#include "fuzz.h"
#include "mutate.h"
#include "text/tokenizer.h"
#include <string.h>

FUZZ_MUTATES_JSON

static const char *const texts[] = {
    "",
    "a b, ab [PAD] <l> <r> one",
    "e\xCC\x81\xCC\x96 na\xC3\xAFve \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x98\x80",
    " \xC2\xA0\t[SEP]x",
    "the 12 \xEF\xAC\x81\xCC\x81 don't\n\n \xE2\x96\x81  x",
};

static void use(const mha_tokenizer *t, const char *text, const char *pair, int stored)
{
    const mha_encode_options options = {.size = sizeof options, .stored_limits = stored};
    mha_encoding *e = NULL;
    mha_error err = {0};
    char *decoded = NULL;
    mha_status status = mha_tokenizer_encode(t, text, strlen(text), pair, pair ? strlen(pair) : 0, &options, &e, &err);
    fuzz_check((status == MHA_OK) == (e != NULL), "encoding must be set only on success");
    fuzz_check(status == MHA_OK || (stored && status == MHA_ERR_ARG) || status == MHA_ERR_UNSUPPORTED,
               "encoding must succeed unless a stored limit or a normalizer prevents it");
    if (!e) return;
    for (int64_t i = 0; i < e->count; i++)
        fuzz_check(mha_tokenizer_token(t, e->ids[i]) != NULL, "every id must have a token");
    status = mha_tokenizer_decode(t, e->ids, e->count, 0, &decoded, NULL, &err);
    fuzz_check(status == MHA_OK || status == MHA_ERR_UNSUPPORTED, "encoded text must decode unless it is too long");
    mha_tokenizer_text_free(t, decoded);
    mha_encoding_free(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    mha_tokenizer *t = NULL;
    mha_error err = {0};
    const mha_status status = mha__tokenizer_read(NULL, (const char *)bytes, n, &t, &err);
    fuzz_check((status == MHA_OK) == (t != NULL), "tokenizer must be set only on success");
    fuzz_refusal(status, &err, MHA__TOKENIZER_FILE);
    if (!t) return 0;
    fuzz_check(mha_tokenizer_size(t) <= (int64_t)(4 * n + 1024),
               "the size of the vocabulary must be limited by the size of the file");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        use(t, texts[i], NULL, 1);
        use(t, texts[i], texts[0], 0);
    }
    mha_tokenizer_free(t);
    return 0;
}
