/* train_data.c - pieces of tokens as sequences. */
#include "train_data.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "output.h"
#include "session.h"

int64_t train_id_at(const train_piece *p, int64_t n)
{
    const size_t size = mha_dtype_size(p->dtype);
    const char *from = (const char *)p->ids + (size_t)n * size;
    uint16_t u16;
    int32_t i32;
    int64_t i64;
    if (p->dtype == MHA_U16) return memcpy(&u16, from, size), u16;
    if (p->dtype == MHA_I32) return memcpy(&i32, from, size), i32;
    return memcpy(&i64, from, size), i64;
}

/* Tokens that a sequence takes, and those from its first to that of the next. */
static int64_t taken(const train_form *form)
{
    return form->causal ? form->length : form->length - 2;
}

static int64_t stride(const train_form *form)
{
    return form->causal ? form->length - 1 : form->length - 2;
}

/* ---- checks ---- */

/* Every id is a token; and all of them together, in `digest` (FNV-1a, over ids in place of bytes). */
static int check_ids(const cli_session *s, const char *path, const train_form *form, const train_piece *p,
                     uint64_t *digest)
{
    enum { STRIDE = 1 << 22 };
    for (int64_t n = 0; n < p->count; n++) {
        const int64_t id = train_id_at(p, n);
        if (id < 0 || id >= form->vocab)
            return cli_error(s, CLI_REFUSED, "%s: token %lld is %lld: want an id below the model's vocab_size %lld",
                             cli_shown(path), (long long)n, (long long)id, (long long)form->vocab);
        *digest = (*digest ^ (uint64_t)id) * 0x100000001b3;
        if (n % STRIDE) continue;
        if (cli_stopped()) return cli_stopped();
        cli_progress("check tokens", n, p->count);
    }
    *digest = (*digest ^ ~(uint64_t)p->count) * 0x100000001b3; /* where pieces end counts */
    cli_progress_clear();
    return CLI_DONE;
}

static int add(const cli_session *s, const char *path, train_data *d, train_piece *p)
{
    const int code = check_ids(s, path, &d->form, p, &d->digest);
    const int64_t most = taken(&d->form);
    p->sequences = p->count < most ? 0 : (p->count - most) / stride(&d->form) + 1;
    d->tokens += p->count;
    d->sequences += p->sequences;
    return code;
}

static int begin(const cli_session *s, const train_form *form, int pieces, train_data *d)
{
    *d = (train_data){.form = *form, .digest = 0xcbf29ce484222325};
    d->piece = calloc((size_t)pieces, sizeof *d->piece);
    return d->piece ? CLI_DONE : cli_error(s, CLI_FAILED, "out of memory for %d files", pieces);
}

static int enough(const cli_session *s, const train_data *d, const char *name)
{
    if (d->sequences > 0) return CLI_DONE;
    return cli_error(s, CLI_REFUSED, "%s: %lld tokens are no sequence of --length %lld: give more, or a smaller length",
                     cli_shown(name), (long long)d->tokens, (long long)d->form.length);
}

/* ---- life ---- */

int train_data_texts(const cli_session *s, const train_form *form, const train_list *paths, const char *how,
                     train_data *d)
{
    int code = begin(s, form, 1, d);
    if (code == CLI_DONE) code = train_text_read(s, form, paths, how, &d->piece[d->pieces++]);
    if (code == CLI_DONE) code = add(s, paths->item[0], d, &d->piece[0]);
    return code == CLI_DONE ? enough(s, d, paths->item[0]) : code;
}

int train_data_ids(const cli_session *s, const train_form *form, const train_list *paths, train_data *d)
{
    int code = begin(s, form, paths->count, d);
    for (int n = 0; n < paths->count && code == CLI_DONE; n++) {
        code = train_ids_open(s, paths->item[n], &d->piece[d->pieces++]);
        if (code == CLI_DONE) code = add(s, paths->item[n], d, &d->piece[n]);
    }
    return code == CLI_DONE ? enough(s, d, paths->item[0]) : code;
}

void train_data_free(train_data *d)
{
    for (int n = 0; n < d->pieces; n++) {
        const train_piece *p = &d->piece[n];
        free(p->memory);
        if (p->map) munmap(p->map, p->mapped);
        mha_file_free(p->file);
    }
    free(d->piece);
    *d = (train_data){0};
}

void train_data_sequence(const train_data *d, int64_t n, int32_t *ids)
{
    const train_form *f = &d->form;
    const train_piece *p = d->piece;
    for (; n >= p->sequences; p++)
        n -= p->sequences;
    int32_t *to = f->causal ? ids : ids + 1;
    for (int64_t i = 0; i < taken(f); i++)
        to[i] = (int32_t)train_id_at(p, n * stride(f) + i);
    if (f->causal) return;
    ids[0] = f->first;
    ids[f->length - 1] = f->end;
}
