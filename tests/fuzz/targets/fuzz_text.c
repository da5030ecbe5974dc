/* fuzz_text.c - any bytes as text that a tokenizer is trained on. The first byte chooses the type, the second its
 * settings, the third the places where the text is cut into puts, which change nothing. What was trained encodes the
 * text, and byte-level BPE gives it back.
 */
#include "fuzz.h"

#include "base/utf8.h"
#include "mha/text_train.h"
#include <stdlib.h>
#include <string.h>

static mha_status put_all(mha_tokenizer_trainer *t, const char *text, size_t n, size_t step, mha_error *err)
{
    mha_status status = MHA_OK;
    for (size_t at = 0; at < n && status == MHA_OK; at += step)
        status = mha_tokenizer_trainer_put(t, text + at, n - at < step ? n - at : step, err);
    return status == MHA_OK ? mha_tokenizer_trainer_end(t, err) : status;
}

static mha_tokenizer *train(const mha_tokenizer_train_options *o, const char *text, size_t n, size_t step)
{
    mha_tokenizer_trainer *t = NULL;
    mha_tokenizer *tokenizer = NULL;
    mha_error err = {0};
    fuzz_check(mha_tokenizer_trainer_create(fuzz_ctx(), o, &t, &err) == MHA_OK, err.message);
    mha_status status = put_all(t, text, n, step, &err);
    const int valid = mha__utf8_check(text, n) == n;
    fuzz_check(valid || status == MHA_ERR_ARG, "what is no UTF-8 is refused");
    if (status == MHA_OK) status = mha_tokenizer_trainer_run(t, &tokenizer, &err);
    fuzz_check((status == MHA_OK) == (tokenizer != NULL), "a tokenizer comes with success, and only then");
    fuzz_check(status == MHA_OK || status == MHA_ERR_ARG, "only text or options can be wrong");
    mha_tokenizer_trainer_free(t);
    return tokenizer;
}

/* The other tokenizer, of the same text in other pieces, has the same tokens. */
static void compare(const mha_tokenizer *a, const mha_tokenizer *b)
{
    fuzz_check(mha_tokenizer_size(a) == mha_tokenizer_size(b), "pieces change nothing");
    for (int64_t id = 0; id < mha_tokenizer_size(a); id++)
        fuzz_check(strcmp(mha_tokenizer_token(a, (int32_t)id), mha_tokenizer_token(b, (int32_t)id)) == 0,
                   "pieces change nothing");
}

/* The special token is one token wherever it stands, and decodes to nothing. */
static int has_special(const char *text, size_t n)
{
    static const char special[] = "<|endoftext|>";
    for (size_t at = 0; at + sizeof special - 1 <= n; at++)
        if (memcmp(text + at, special, sizeof special - 1) == 0) return 1;
    return 0;
}

static void encode(const mha_tokenizer *t, const char *text, size_t n, int exact)
{
    const mha_encode_options plain = {.size = sizeof plain, .no_special = 1};
    mha_encoding *e = NULL;
    mha_error err = {0};
    char *back = NULL;
    size_t length = 0;
    fuzz_check(mha_tokenizer_encode(t, text, n, NULL, 0, &plain, &e, &err) == MHA_OK, "the text has tokens");
    fuzz_check(mha_tokenizer_decode(t, e->ids, e->count, 0, &back, &length, &err) == MHA_OK, "tokens are a text");
    fuzz_check(!exact || (length == n && memcmp(back, text, n) == 0), "of bytes it is the same text");
    mha_tokenizer_text_free(t, back);
    mha_encoding_free(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n < 3) return 0;
    const mha_tokenizer_train_options o = {.size = sizeof o,
                                           .type = bytes[0] & 1 ? MHA_TOKENIZER_WORDPIECE : MHA_TOKENIZER_BPE,
                                           .vocab_size = bytes[0] & 1 ? 2 + bytes[1] : 257 + bytes[1] / 4,
                                           .min_frequency = 1 + (bytes[0] >> 1 & 1),
                                           .lowercase = bytes[0] & 1 && bytes[0] & 4,
                                           .alphabet = bytes[0] & 1 ? bytes[0] >> 5 : 0};
    const char *text = (const char *)bytes + 3;
    n -= 3;
    mha_tokenizer *whole = train(&o, text, n, n + 1), *pieces = train(&o, text, n, 1 + bytes[2] % 16);
    fuzz_check((whole != NULL) == (pieces != NULL), "pieces change nothing");
    if (whole) {
        compare(whole, pieces);
        encode(whole, text, n, o.type == MHA_TOKENIZER_BPE && !has_special(text, n));
    }
    mha_tokenizer_free(whole);
    mha_tokenizer_free(pieces);
    return 0;
}
