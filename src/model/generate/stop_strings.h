/* stop_strings.h - the new text of one prompt as its tokens come, up to the string that ends it. */
#ifndef MHA_MODEL_GENERATE_STOP_STRINGS_H
#define MHA_MODEL_GENERATE_STOP_STRINGS_H

#include "mha/generate.h"
#include <stdbool.h>

/* Zeroed, it is ready for mha__writer_begin, and mha__writer_free takes it as it is. */
typedef struct mha__writer {
    mha_ctx *ctx;
    const mha_tokenizer *tokenizer;
    const char *const *stop; /* [stop_count] */
    int64_t stop_count;
    mha_text_stream *stream;
    char *text;        /* [room] what was not handed out yet, after what was last */
    size_t room, sure; /* bytes of `text` that may be handed out: until the next call */
    size_t bytes;      /* in it */
    bool stopped;      /* a stop string was met */
} mha__writer;

/* Starts a text that continues the prompt's; may be called again. */
mha_status mha__writer_begin(mha__writer *w, const mha_prompt *prompt, mha_error *err);
/* Takes the next token. text[0 .. sure) is certain afterwards. An id without a token (a model may have more rows than
 * the tokenizer) has no text. */
mha_status mha__writer_put(mha__writer *w, int32_t id, mha_error *err);
/* After the last token: what was kept back becomes certain. */
mha_status mha__writer_end(mha__writer *w, mha_error *err);
void mha__writer_free(mha__writer *w);

#endif
