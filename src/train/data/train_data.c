/* train_data.c - collects runs of tokens and divides them into sequences. */
#include "base/ctx.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "io/input_limits.h"
#include "train/data/grow_array.h"
#include "train/data/train_data_struct.h"
#include <string.h>

/* Reads `count` ids, starting at index `from`. An id that does not fit in int32_t becomes -1. */
static void read_ids(const mha__token_run *run, int64_t from, int64_t count, int32_t *ids)
{
    const size_t size = mha_dtype_size(run->dtype);
    const char *at = (const char *)run->ids + (size_t)from * size;
    for (int64_t n = 0; run->dtype == MHA_U16 && n < count; n++) {
        uint16_t id;
        memcpy(&id, at + n * 2, 2);
        ids[n] = id;
    }
    for (int64_t n = 0; run->dtype == MHA_I64 && n < count; n++) {
        int64_t id;
        memcpy(&id, at + n * 8, 8);
        ids[n] = id >= 0 && id <= INT32_MAX ? (int32_t)id : -1;
    }
    if (run->dtype == MHA_I32 && count) memcpy(ids, at, (size_t)count * size);
}

/* Returns the number of data tokens in a sequence, excluding [CLS] and [SEP]. */
static int64_t data_tokens(const mha_train_data_options *o)
{
    return o->causal ? o->length : o->length - 2;
}

/* Returns the distance between the first tokens of consecutive sequences. */
static int64_t stride(const mha_train_data_options *o)
{
    return o->causal ? o->length - 1 : o->length - 2;
}

/* ---- checks ---- */

static mha_status refuse_id(const mha_train_data *d, const mha__token_run *run, const char *name, int64_t at,
                            int32_t id, mha_error *err)
{
    int64_t whole = id;
    mha__quoted q;
    if (run->dtype == MHA_I64) memcpy(&whole, (const char *)run->ids + at * 8, 8);
    return mha__fail(err, MHA_ERR_FORMAT,
                     "%s%sids[%lld] must be at least 0 and below the model's vocab_size %lld (got %lld)",
                     name ? mha__quote(&q, name, strlen(name)) : "", name ? ": " : "", (long long)at,
                     (long long)d->o.vocab, (long long)whole);
}

static mha_status check_ids(mha_train_data *d, const mha__token_run *run, const char *name, mha_error *err)
{
    enum { BLOCK = 4096 }; /* number of ids per block; a multiple of 16 bytes, as the digest requires */
    int32_t ids[BLOCK];
    for (int64_t at = 0; at < run->count; at += BLOCK) {
        const int64_t count = mha__min64(BLOCK, run->count - at);
        read_ids(run, at, count, ids);
        for (int64_t n = 0; n < count; n++)
            if (ids[n] < 0 || ids[n] >= d->o.vocab) return refuse_id(d, run, name, at + n, ids[n], err);
        mha_train_digest_add(&d->digest, ids, (size_t)count * sizeof *ids);
        MHA__TRY(mha__progress(d->ctx, "check tokens", at + count, run->count, err));
    }
    mha_train_digest_add_number(&d->digest, ~(uint64_t)run->count); /* makes the digest depend on the ends of runs */
    return MHA_OK;
}

static void check_ends(mha_train_data *d, const mha__token_run *run)
{
    for (int64_t n = 0; run->ends && n < run->sequences; n++) {
        d->info.truncated += run->ends[n] - (n > 0 ? run->ends[n - 1] : 0) > data_tokens(&d->o);
        mha_train_digest_add_number(&d->digest, (uint64_t)run->ends[n]);
    }
    if (run->ends) d->info.texts += run->sequences;
}

static void count_sequences(mha_train_data *d, mha__token_run *run)
{
    const int64_t max = data_tokens(&d->o);
    if (!run->ends) run->sequences = run->count < max ? 0 : (run->count - max) / stride(&d->o) + 1;
    d->info.sequences += run->sequences;
}

mha_status mha__train_data_append(mha_train_data *d, mha__token_run *run, const char *name, mha_error *err)
{
    MHA__TRY(check_ids(d, run, name, err));
    MHA__TRY(mha__grow_array(d->ctx, &d->run, d->runs, 1, sizeof *d->run, &d->room, "the list of token files", err));
    check_ends(d, run);
    count_sequences(d, run);
    d->info.tokens += run->count;
    d->run[d->runs++] = *run;
    *run = (mha__token_run){0};
    return MHA_OK;
}

/* ---- creation and completion ---- */

static mha_status refuse(const char *rule, int64_t value, mha_error *err)
{
    return mha__fail(err, MHA_ERR_ARG, "mha_train_data_options: %s (got %lld)", rule, (long long)value);
}

static mha_status check(const mha_train_data_options *o, mha_error *err)
{
    const int64_t max = INT64_C(1) << 31;
    if (o->vocab < 1 || o->vocab > max) return refuse("vocab must be from 1 to 2^31", o->vocab, err);
    if (o->causal && o->texts_apart) return refuse("texts_apart must be 0 if causal is set", o->texts_apart, err);
    if (o->length < 2 || o->length > MHA__SEQUENCE) return refuse("length must be from 2 to 2^40", o->length, err);
    if (o->causal) return MHA_OK;
    if (o->length < 3) return refuse("length must be at least 3 for an encoder", o->length, err);
    if (o->first < 0 || o->first >= o->vocab) return refuse("first must be a token id below vocab", o->first, err);
    if (o->end < 0 || o->end >= o->vocab) return refuse("end must be a token id below vocab", o->end, err);
    return MHA_OK;
}

mha_status mha_train_data_create(mha_ctx *ctx, const mha_train_data_options *options, mha_train_data **out,
                                 mha_error *err)
{
    mha_train_data_options o;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "mha_train_data_create: out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_train_data_options", err));
    MHA__TRY(check(&o, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    mha_train_data *d = mha__calloc(ctx, 1, sizeof *d);
    if (!d) return mha__no_memory(err, sizeof *d, "training data");
    d->ctx = ctx;
    d->o = o;
    d->text.dtype = o.vocab <= UINT16_MAX + 1 ? MHA_U16 : MHA_I32;
    *out = d;
    return MHA_OK;
}

static mha_status refuse_short(const mha_train_data *d, int64_t min, mha_error *err)
{
    return mha__fail(err, MHA_ERR_FORMAT, "the data must have at least %lld tokens (got %lld)", (long long)min,
                     (long long)d->info.tokens);
}

/* Reduces the sequence length to the length of the longest run, so that each run of that length is one sequence. */
static mha_status shorten(mha_train_data *d, mha_error *err)
{
    const int64_t min = d->o.causal ? 2 : 1; /* minimum number of data tokens in a sequence */
    int64_t max = 0;
    for (int64_t n = 0; n < d->runs; n++)
        max = mha__max64(max, d->run[n].count);
    if (max < min) return refuse_short(d, min, err);
    d->o.length += max - data_tokens(&d->o);
    for (int64_t n = 0; n < d->runs; n++)
        count_sequences(d, &d->run[n]);
    return MHA_OK;
}

mha_status mha_train_data_finish(mha_train_data *d, mha_error *err)
{
    if (!d) return mha__fail(err, MHA_ERR_ARG, "mha_train_data_finish: data must not be NULL");
    if (d->finished) return mha__fail(err, MHA_ERR_ARG, "mha_train_data_finish: data must not be finished twice");
    if (d->text.count || d->text.ends || !d->runs) MHA__TRY(mha__train_data_append(d, &d->text, NULL, err));
    if (d->info.sequences == 0) MHA__TRY(d->o.shorten ? shorten(d, err) : refuse_short(d, data_tokens(&d->o), err));
    d->info.length = d->o.length;
    mha_train_digest_text(&d->digest, d->info.digest);
    d->finished = true;
    return MHA_OK;
}

void mha__token_run_free(mha_ctx *ctx, mha__token_run *run)
{
    mha__free(ctx, run->memory);
    mha__free(ctx, run->ends);
    mha_file_free(run->file);
}

void mha_train_data_free(mha_train_data *d)
{
    if (!d) return;
    for (int64_t n = 0; n < d->runs; n++)
        mha__token_run_free(d->ctx, &d->run[n]);
    mha__token_run_free(d->ctx, &d->text);
    mha__free(d->ctx, d->run);
    mha__free(d->ctx, d);
}

/* ---- reading sequences ---- */

const mha_train_data_info *mha_train_data_describe(const mha_train_data *d)
{
    return d && d->finished ? &d->info : NULL;
}

int64_t mha_train_data_sequence(const mha_train_data *d, int64_t n, int32_t *ids)
{
    if (!d || !d->finished || !ids || n < 0 || n >= d->info.sequences) return 0;
    const mha__token_run *run = d->run;
    for (; n >= run->sequences; run++)
        n -= run->sequences;
    int64_t at = n * stride(&d->o), count = data_tokens(&d->o);
    if (run->ends) {
        at = n > 0 ? run->ends[n - 1] : 0;
        count = mha__min64(count, run->ends[n] - at);
    }
    read_ids(run, at, count, d->o.causal ? ids : ids + 1);
    if (d->o.causal) return count;
    ids[0] = d->o.first;
    ids[count + 1] = d->o.end;
    return count + 2;
}
