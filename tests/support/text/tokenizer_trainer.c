/* tokenizer_trainer.c - implements tokenizer_trainer.h. */
#include "support/text/tokenizer_trainer.h"

#include "support/check.h"
#include <stdlib.h>
#include <string.h>

const char trainer_small[] = "the head that looks at the token before it, the head that looks at the first\n\n"
                             "na\xC3\xAFve \xE6\x97\xA5\xE6\x9C\xAC and \xF0\x9F\x98\x80 \xF0\x9F\x98\x80\n"
                             "the heads, the tokens; the last line has no end";
const size_t trainer_small_bytes = sizeof trainer_small - 1;

const mha_tokenizer_train_options trainer_bpe = {
    .size = sizeof trainer_bpe, .type = MHA_TOKENIZER_BPE, .vocab_size = 300, .min_frequency = 1};
const mha_tokenizer_train_options trainer_wordpiece = {
    .size = sizeof trainer_wordpiece, .type = MHA_TOKENIZER_WORDPIECE, .vocab_size = 90, .min_frequency = 1};

mha_tokenizer_trainer *trainer_create(mha_ctx *ctx, const mha_tokenizer_train_options *o)
{
    mha_tokenizer_trainer *t;
    mha_error err = {0};
    if (mha_tokenizer_trainer_create(ctx, o, &t, &err) != MHA_OK) fail_msg("%s", err.message);
    return t;
}

void trainer_put(mha_tokenizer_trainer *t, const char *text, size_t n)
{
    mha_error err = {0};
    if (mha_tokenizer_trainer_put(t, text, n, &err) != MHA_OK) fail_msg("%s", err.message);
}

mha_tokenizer *trainer_learn(mha_tokenizer_trainer *t)
{
    mha_tokenizer *tokenizer;
    mha_error err = {0};
    if (mha_tokenizer_trainer_run(t, &tokenizer, &err) != MHA_OK) fail_msg("%s", err.message);
    return tokenizer;
}

void trainer_same(const mha_tokenizer *a, const mha_tokenizer *b)
{
    assert_int_equal(mha_tokenizer_size(a), mha_tokenizer_size(b));
    for (int32_t i = 0; i < mha_tokenizer_size(a); i++)
        assert_string_equal(mha_tokenizer_token(a, i), mha_tokenizer_token(b, i));
}

char *trainer_text(size_t bytes, unsigned line)
{
    static const char *const pieces[] = {"word",
                                         "wor",
                                         "ds",
                                         "na\xC3\xAFve",
                                         "\xE6\x97\xA5\xE6\x9C\xAC",
                                         "don't",
                                         "12",
                                         "...",
                                         "e\xCC\x81",
                                         "\xC2\xA0",
                                         "\xE3\x80\x80",
                                         "\t",
                                         "\xE2\x80\xA8",
                                         "_-_",
                                         "\xCE\xA3\xCE\xA3",
                                         "x"};
    char *text = malloc(bytes + 16);
    uint64_t random = 1;
    size_t n = 0;
    assert_non_null(text);
    while (n < bytes) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const char *piece = pieces[random >> 60];
        memcpy(text + n, piece, strlen(piece));
        n += strlen(piece);
        const unsigned kind = random >> 40 & 7;
        if (line && (random >> 20 & 0xFFFF) % line == 0)
            text[n++] = '\n';
        else if (kind < 4)
            text[n++] = ' ';
        else if (kind == 4)
            text[n++] = '\r';
    }
    text[n] = '\0';
    return text;
}
