/* train_text.c - texts as one row of tokens, read one after another: what is kept are the tokens. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "input/text_reader.h"
#include "input/tokens.h"
#include "output.h"
#include "session.h"
#include "train/train_sequences.h"

enum { A_PART = 64 << 10 }; /* bytes of a part of a whole file, which ends with a line */

typedef struct reading {
    const cli_session *s;
    const train_form *form;
    const char *path;
    bool inside; /* a part of the present text has been encoded */
    train_piece *to;
    int64_t capacity; /* of to->memory */
    int64_t ends;     /* that there is room for */
} reading;

/* ---- tokens ---- */

static int no_memory(const reading *r)
{
    return cli_error(r->s, CLI_FAILED, "out of memory for the tokens");
}

static int put_ids(reading *r, const int32_t *ids, int64_t count)
{
    train_piece *to = r->to;
    const size_t size = mha_dtype_size(to->dtype);
    if (to->count + count > r->capacity) {
        const int64_t capacity = 2 * (to->count + count) + 4096;
        void *grown = realloc(to->memory, (size_t)capacity * size);
        if (!grown) return no_memory(r);
        to->ids = to->memory = grown;
        r->capacity = capacity;
    }
    for (int64_t n = 0; n < count; n++) {
        const uint16_t narrow = (uint16_t)ids[n];
        const void *from = to->dtype == MHA_U16 ? (const void *)&narrow : &ids[n];
        memcpy((char *)to->memory + (size_t)to->count++ * size, from, size);
    }
    return CLI_DONE;
}

/* The text ends here, as a sequence. */
static int put_end(reading *r)
{
    train_piece *to = r->to;
    if (to->sequences >= r->ends) {
        r->ends = 2 * r->ends + 256;
        int64_t *grown = realloc(to->ends, (size_t)r->ends * sizeof *grown);
        if (!grown) return no_memory(r);
        to->ends = grown;
    }
    to->ends[to->sequences++] = to->count;
    return CLI_DONE;
}

/* A text that has come, or a part of it. What a template sets before a text stands before its first part, and the end
 * token after the last one, once. */
static int encode(void *user, const char *text, size_t bytes, int64_t line, bool last)
{
    reading *r = user;
    const mha_tokenizer *tokenizer = r->form->tokenizer;
    const mha_encode_options how = {.size = sizeof how, .no_special = !r->form->causal || r->inside};
    mha_encoding *e = NULL;
    mha_error error = {0};
    if (mha_tokenizer_encode(tokenizer, text, bytes, NULL, 0, &how, &e, &error) != MHA_OK)
        return cli_error(r->s, error.status == MHA_ERR_MEMORY ? CLI_FAILED : CLI_REFUSED, "%s: line %lld: %s",
                         text_reader_name(r->path), (long long)line, error.message);
    int code = cli_check_rows(r->s, tokenizer, e, r->form->vocab);
    const bool ended = e->count && e->ids[e->count - 1] == r->form->end;
    const int64_t count = e->count - (ended && !last);
    if (code == CLI_DONE) code = put_ids(r, e->ids, count);
    const bool apart = r->form->apart;
    if (code == CLI_DONE && last && !ended && !apart) code = put_ids(r, &r->form->end, 1);
    if (code == CLI_DONE && last && apart) code = put_end(r);
    mha_encoding_free(e);
    r->inside = !last;
    return code;
}

/* ---- files ---- */

static int64_t total_bytes(const train_list *paths)
{
    int64_t total = 0;
    for (int n = 0; n < paths->count; n++) {
        struct stat st;
        if (stat(paths->item[n], &st) == 0 && S_ISREG(st.st_mode)) total += st.st_size;
    }
    return total;
}

int train_text_read(const cli_session *s, const train_form *form, const train_list *paths, const char *how,
                    train_piece *piece)
{
    reading r = {.s = s, .form = form, .to = piece};
    text_reader reader = {
        .session = s, .allow_nul = true, .part = A_PART, .take = encode, .user = &r, .total = total_bytes(paths)};
    int code = CLI_DONE;
    cli_documents_find(how, &reader.how);
    piece->dtype = form->vocab <= UINT16_MAX + 1 ? MHA_U16 : MHA_I32;
    for (int n = 0; n < paths->count && code == CLI_DONE; n++) {
        r.path = paths->item[n];
        code = text_reader_read(&reader, r.path);
    }
    cli_progress_clear();
    if (code == CLI_DONE) text_reader_log_blank(&reader, paths->count == 1 ? paths->item[0] : NULL);
    return code;
}
