/* train_sequences.c - pieces of tokens as sequences. */
#include "train/train_sequences.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "input/text_reader.h"
#include "output.h"
#include "session.h"

/* Ids from a place on; one that no int32_t holds becomes -1. */
static void read_ids(const train_piece *p, int64_t from, int64_t count, int32_t *ids)
{
    const size_t size = mha_dtype_size(p->dtype);
    const char *at = (const char *)p->ids + (size_t)from * size;
    for (int64_t n = 0; p->dtype == MHA_U16 && n < count; n++) {
        uint16_t id;
        memcpy(&id, at + n * 2, 2);
        ids[n] = id;
    }
    for (int64_t n = 0; p->dtype == MHA_I64 && n < count; n++) {
        int64_t id;
        memcpy(&id, at + n * 8, 8);
        ids[n] = id >= 0 && id <= INT32_MAX ? (int32_t)id : -1;
    }
    if (p->dtype == MHA_I32 && count) memcpy(ids, at, (size_t)count * size);
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

static int refuse_id(const cli_session *s, const char *path, const train_data *d, int64_t at, int64_t id)
{
    return cli_error(s, CLI_REFUSED, "%s: token %lld must be below the model's vocab_size %lld (got %lld)",
                     cli_shown(path), (long long)at, (long long)d->form.vocab, (long long)id);
}

/* Of 8 bytes the id as it is. */
static int64_t whole_id(const train_piece *p, int64_t at, int32_t id)
{
    int64_t whole = id;
    if (p->dtype == MHA_I64) memcpy(&whole, (const char *)p->ids + at * 8, 8);
    return whole;
}

/* Every id is a token; and all of them go into the digest. */
static int check_ids(const cli_session *s, const char *path, const train_piece *p, train_data *d)
{
    enum { BLOCK = 4096 };
    int32_t ids[BLOCK];
    for (int64_t at = 0; at < p->count; at += BLOCK) {
        const int64_t count = p->count - at < BLOCK ? p->count - at : BLOCK;
        read_ids(p, at, count, ids);
        for (int64_t n = 0; n < count; n++)
            if (ids[n] < 0 || ids[n] >= d->form.vocab)
                return refuse_id(s, path, d, at + n, whole_id(p, at + n, ids[n]));
        mha_train_digest_add(&d->digest, ids, (size_t)count * sizeof *ids);
        if (cli_stopped()) return cli_stopped();
        cli_progress("check tokens", at, p->count);
    }
    mha_train_digest_add_number(&d->digest, ~(uint64_t)p->count); /* where pieces end counts */
    cli_progress_clear();
    return CLI_DONE;
}

/* Texts that are sequences: where they end counts, and which are too long is said. */
static void check_ends(const cli_session *s, train_data *d, const train_piece *p)
{
    int64_t cut = 0;
    for (int64_t n = 0; p->ends && n < p->sequences; n++) {
        cut += p->ends[n] - (n > 0 ? p->ends[n - 1] : 0) > taken(&d->form);
        mha_train_digest_add_number(&d->digest, (uint64_t)p->ends[n]);
    }
    if (cut)
        cli_say(s, "%lld of %lld texts are longer than --length %lld and are truncated", (long long)cut,
                (long long)p->sequences, (long long)d->form.length);
}

static void count_sequences(train_data *d, train_piece *p)
{
    const int64_t most = taken(&d->form);
    if (!p->ends) p->sequences = p->count < most ? 0 : (p->count - most) / stride(&d->form) + 1;
    d->sequences += p->sequences;
}

static int add(const cli_session *s, const char *path, train_data *d, train_piece *p)
{
    const int code = check_ids(s, path, p, d);
    check_ends(s, d, p);
    count_sequences(d, p);
    d->tokens += p->count;
    return code;
}

static int begin(const cli_session *s, const train_form *form, int pieces, train_data *d)
{
    *d = (train_data){.form = *form};
    d->piece = calloc((size_t)pieces, sizeof *d->piece);
    return d->piece ? CLI_DONE : cli_error(s, CLI_FAILED, "out of memory for %d files", pieces);
}

static int refuse_short(const cli_session *s, const train_data *d, const char *name, int64_t least)
{
    return cli_error(s, CLI_REFUSED, "%s: the data must have at least %lld tokens (got %lld)", text_reader_name(name),
                     (long long)least, (long long)d->tokens);
}

int train_data_enough(const cli_session *s, const train_data *d, const char *name)
{
    return d->sequences > 0 ? CLI_DONE : refuse_short(s, d, name, taken(&d->form));
}

int train_data_shorten(const cli_session *s, train_data *d, const char *name)
{
    const int64_t least = d->form.causal ? 2 : 1; /* tokens of a sequence that there is something to learn from */
    int64_t most = 0;
    if (d->sequences > 0) return CLI_DONE;
    for (int n = 0; n < d->pieces; n++)
        if (d->piece[n].count > most) most = d->piece[n].count;
    if (most < least) return refuse_short(s, d, name, least);
    const int64_t length = most + d->form.length - taken(&d->form);
    cli_say(s, "%s: using --length %lld instead of %lld: the data have only %lld tokens", text_reader_name(name),
            (long long)length, (long long)d->form.length, (long long)d->tokens);
    d->form.length = length;
    for (int n = 0; n < d->pieces; n++)
        count_sequences(d, &d->piece[n]);
    return CLI_DONE;
}

/* ---- life ---- */

int train_data_texts(const cli_session *s, const train_form *form, const train_list *paths, const char *how,
                     train_data *d)
{
    int code = begin(s, form, 1, d);
    if (code == CLI_DONE) code = train_text_read(s, form, paths, how, &d->piece[d->pieces++]);
    return code == CLI_DONE ? add(s, paths->item[0], d, &d->piece[0]) : code;
}

int train_data_ids(const cli_session *s, const train_form *form, const train_list *paths, train_data *d)
{
    int code = begin(s, form, paths->count, d);
    for (int n = 0; n < paths->count && code == CLI_DONE; n++) {
        code = train_ids_open(s, paths->item[n], &d->piece[d->pieces++]);
        if (code == CLI_DONE) code = add(s, paths->item[n], d, &d->piece[n]);
    }
    return code;
}

void train_data_free(train_data *d)
{
    for (int n = 0; n < d->pieces; n++) {
        const train_piece *p = &d->piece[n];
        free(p->memory);
        free(p->ends);
        if (p->map) munmap(p->map, p->mapped);
        mha_file_free(p->file);
    }
    free(d->piece);
    *d = (train_data){0};
}

int64_t train_data_sequence(const train_data *d, int64_t n, int32_t *ids)
{
    const train_form *f = &d->form;
    const train_piece *p = d->piece;
    for (; n >= p->sequences; p++)
        n -= p->sequences;
    int64_t at = n * stride(f), count = taken(f);
    if (p->ends) {
        at = n > 0 ? p->ends[n - 1] : 0;
        if (p->ends[n] - at < count) count = p->ends[n] - at;
    }
    read_ids(p, at, count, f->causal ? ids : ids + 1);
    if (f->causal) return count;
    ids[0] = f->first;
    ids[count + 1] = f->end;
    return count + 2;
}
