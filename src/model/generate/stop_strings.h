/* stop_strings.h - the text of one prompt, generated token by token until a stop string ends it. */
#ifndef MHA_MODEL_GENERATE_STOP_STRINGS_H
#define MHA_MODEL_GENERATE_STOP_STRINGS_H

#include "mha/generate.h"
#include <stdbool.h>

/* The streamed text of one prompt. A zeroed writer is valid input for mha__writer_begin and mha__writer_free. */
typedef struct mha__writer {
    mha_ctx *ctx;
    const mha_tokenizer *tokenizer;
    const char *const *stop; /* [stop_count] */
    int64_t stop_count;
    mha_text_stream *stream;
    char *text;        /* [room] the text that was last passed to the caller, followed by withheld text */
    size_t room, sure; /* sure: bytes of `text` that are final, valid until the next call */
    size_t bytes;      /* length of `text` */
    bool stopped;      /* a stop string was found */
} mha__writer;

/* Begins the text that continues a prompt; may be called again for another prompt. */
mha_status mha__writer_begin(mha__writer *w, const mha_prompt *prompt, mha_error *err);
/* Appends the next token. text[0 .. sure) is final afterwards. An id without a token has no text (a model may have more
 * ids than its tokenizer). */
mha_status mha__writer_put(mha__writer *w, int32_t id, mha_error *err);
/* Ends the text after the last token: withheld text becomes final. */
mha_status mha__writer_end(mha__writer *w, mha_error *err);
void mha__writer_free(mha__writer *w);

#endif
