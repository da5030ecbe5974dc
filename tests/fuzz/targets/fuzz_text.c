/* fuzz_text.c - trains a tokenizer on the bytes after the third as text. The first byte selects the type, the second
 * the options, the third the size of the parts in which the text is added; the result must not depend on this size. The
 * tokenizer must encode the text, and byte-level BPE must decode the tokens to the same text.
 */
#include "base/utf8.h"
#include "fuzz.h"
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
    fuzz_check(valid || status == MHA_ERR_ARG, "text that is not UTF-8 must be rejected");
    if (status == MHA_OK) status = mha_tokenizer_trainer_run(t, &tokenizer, &err);
    fuzz_check((status == MHA_OK) == (tokenizer != NULL), "tokenizer must be set only on success");
    fuzz_check(status == MHA_OK || status == MHA_ERR_ARG, "status must be MHA_OK or MHA_ERR_ARG");
    mha_tokenizer_trainer_free(t);
    return tokenizer;
}

/* Checks that two tokenizers that were trained on the same text, split differently, have the same tokens. */
static void compare(const mha_tokenizer *a, const mha_tokenizer *b)
{
    fuzz_check(mha_tokenizer_size(a) == mha_tokenizer_size(b), "the result must not depend on how the text is split");
    for (int64_t id = 0; id < mha_tokenizer_size(a); id++)
        fuzz_check(strcmp(mha_tokenizer_token(a, (int32_t)id), mha_tokenizer_token(b, (int32_t)id)) == 0,
                   "the result must not depend on how the text is split");
}

/* Returns true if the text contains the special token, which is not decoded to the same text. */
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
    fuzz_check(mha_tokenizer_encode(t, text, n, NULL, 0, &plain, &e, &err) == MHA_OK,
               "encoding the training text must succeed");
    fuzz_check(mha_tokenizer_decode(t, e->ids, e->count, 0, &back, &length, &err) == MHA_OK,
               "decoding the tokens must succeed");
    fuzz_check(!exact || (length == n && memcmp(back, text, n) == 0), "byte-level BPE must decode to the same text");
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
    fuzz_check((whole != NULL) == (pieces != NULL), "the result must not depend on how the text is split");
    if (whole) {
        compare(whole, pieces);
        encode(whole, text, n, o.type == MHA_TOKENIZER_BPE && !has_special(text, n));
    }
    mha_tokenizer_free(whole);
    mha_tokenizer_free(pieces);
    return 0;
}
