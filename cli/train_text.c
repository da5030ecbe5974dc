/* train_text.c - texts as one row of tokens, read line by line: what is kept are the tokens. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "input.h"
#include "output.h"
#include "session.h"
#include "tokens.h"
#include "train_data.h"

enum { LINES, BLANK, WHOLE };                /* where a text ends */
enum { MOST = 16 << 20, A_PART = 64 << 10 }; /* bytes of a text; of a part of a whole file, which ends with a line */
enum { LONGEST = MOST + 2 };                 /* bytes of a line with CR and newline */

typedef struct reading {
    const cli_session *s;
    const train_form *form;
    int how;
    const char *path;
    int64_t line, first; /* of the file, and where the text began */
    int64_t done, total; /* bytes; total counts regular files */
    char *raw;           /* the present line, as it stands in the file */
    size_t raw_room;
    char *text; /* what has come of the present text */
    size_t bytes, room;
    bool inside; /* a part of it has been encoded */
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

/* The text that has come, or a part of it. What a template sets before a text stands before its first part, and the
 * end token behind the last one, once. */
static int encode(reading *r, bool last)
{
    const mha_tokenizer *tokenizer = r->form->tokenizer;
    const mha_encode_options how = {.size = sizeof how, .no_special = !r->form->causal || r->inside};
    mha_encoding *e = NULL;
    mha_error error = {0};
    if (mha_tokenizer_encode(tokenizer, r->text, r->bytes, NULL, 0, &how, &e, &error) != MHA_OK)
        return cli_error(r->s, error.status == MHA_ERR_MEMORY ? CLI_FAILED : CLI_REFUSED, "%s: line %lld: %s",
                         cli_shown(r->path), (long long)r->first, error.message);
    int code = cli_check_rows(r->s, tokenizer, e, r->form->vocab);
    const bool ended = e->count && e->ids[e->count - 1] == r->form->end;
    const int64_t count = e->count - (ended && !last);
    if (code == CLI_DONE) code = put_ids(r, e->ids, count);
    const bool apart = r->form->apart;
    if (code == CLI_DONE && last && !ended && !apart) code = put_ids(r, &r->form->end, 1);
    if (code == CLI_DONE && last && apart) code = put_end(r);
    mha_encoding_free(e);
    r->bytes = 0;
    r->inside = !last;
    return code;
}

/* ---- lines ---- */

static int end_text(reading *r)
{
    while (r->how == BLANK && r->bytes && r->text[r->bytes - 1] == '\n')
        r->bytes--;
    return r->bytes || r->inside ? encode(r, true) : CLI_DONE;
}

static int refuse_long(const reading *r)
{
    return cli_error(r->s, CLI_REFUSED, "%s: line %lld: a text of more than 16 MiB", cli_shown(r->path),
                     (long long)(r->bytes ? r->first : r->line));
}

static int join(reading *r, const char *line, size_t bytes)
{
    if (!r->bytes) r->first = r->line;
    if (r->bytes + bytes > MOST) return refuse_long(r);
    if (r->bytes + bytes + 1 > r->room) {
        const size_t room = 2 * (r->bytes + bytes) + 4096;
        char *grown = realloc(r->text, room);
        if (!grown) return no_memory(r);
        r->text = grown;
        r->room = room;
    }
    if (bytes) memcpy(r->text + r->bytes, line, bytes);
    r->bytes += bytes;
    return CLI_DONE;
}

/* A line with its end; CR before that is dropped. */
static int take_line(reading *r, size_t bytes)
{
    char *line = r->raw;
    const bool ended = line[bytes - 1] == '\n';
    size_t n = bytes - ended;
    if (ended && n && line[n - 1] == '\r') n--;
    line[bytes] = '\0';
    const bool blank = n == strspn(line, " \t\r");
    if (blank && r->how == BLANK) return end_text(r);
    if (blank && r->how == LINES) return CLI_DONE;
    if (ended && r->how != LINES) line[n++] = '\n';
    const int code = join(r, line, n);
    if (code != CLI_DONE || r->how == BLANK || (r->how == WHOLE && r->bytes < A_PART)) return code;
    return encode(r, r->how == LINES);
}

/* Room for one more byte of the line, and the NUL behind it. */
static int widen(reading *r, size_t bytes)
{
    if (bytes == LONGEST) return refuse_long(r);
    if (bytes + 1 < r->raw_room) return CLI_DONE;
    const size_t room = 2 * r->raw_room + 4096;
    char *grown = realloc(r->raw, room);
    if (!grown) return no_memory(r);
    r->raw = grown;
    r->raw_room = room;
    return CLI_DONE;
}

/* The next line, of 0 bytes at the end. getline would take memory for a line of any length, and of a line that it has
 * none for it does not say so to ferror. */
static int next_line(reading *r, FILE *file, size_t *bytes)
{
    int c = 0;
    r->line++;
    for (*bytes = 0; c != '\n'; r->raw[(*bytes)++] = (char)c) {
        const int code = widen(r, *bytes);
        if (code != CLI_DONE) return code;
        c = getc_unlocked(file);
        if (c == EOF) break;
    }
    if (!ferror(file) || cli_stopped()) return CLI_DONE;
    return cli_error(r->s, CLI_REFUSED, "%s: %s", cli_shown(r->path), strerror(errno));
}

static int read_lines(reading *r, FILE *file)
{
    size_t bytes = 1;
    int code = CLI_DONE;
    r->line = 0;
    while (code == CLI_DONE && bytes) {
        code = next_line(r, file, &bytes);
        if (cli_stopped()) code = cli_stopped();
        if (code == CLI_DONE && bytes) code = take_line(r, bytes);
        r->done += (int64_t)bytes;
        if (r->done < r->total) cli_progress("read", r->done, r->total);
    }
    return code == CLI_DONE ? end_text(r) : code;
}

static int read_file(reading *r)
{
    int fd;
    const int code = cli_texts_open(r->s, r->path, &fd);
    if (code != CLI_DONE) return code;
    if (fd == STDIN_FILENO) return read_lines(r, stdin);
    FILE *file = fdopen(fd, "r");
    if (!file) {
        close(fd);
        return no_memory(r);
    }
    const int read = read_lines(r, file);
    fclose(file);
    return read;
}

int train_text_read(const cli_session *s, const train_form *form, const train_list *paths, const char *how,
                    train_piece *piece)
{
    reading r = {.s = s, .form = form, .to = piece};
    r.how = strcmp(how, "lines") == 0 ? LINES : strcmp(how, "blank") == 0 ? BLANK : WHOLE;
    piece->dtype = form->vocab <= UINT16_MAX + 1 ? MHA_U16 : MHA_I32;
    int code = CLI_DONE;
    for (int n = 0; n < paths->count; n++) {
        struct stat st;
        if (stat(paths->item[n], &st) == 0 && S_ISREG(st.st_mode)) r.total += st.st_size;
    }
    for (int n = 0; n < paths->count && code == CLI_DONE; n++) {
        r.path = paths->item[n];
        code = read_file(&r);
    }
    cli_progress_clear();
    free(r.raw);
    free(r.text);
    return code;
}
