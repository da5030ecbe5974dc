/* tokenizer_train.c - creates and runs the trainer, and opens the trained tokenizer. */
#include "text/train/tokenizer_train.h"

#include "base/ctx.h"
#include "base/struct_size.h"
#include "base/utf8.h"
#include <string.h>

static mha_status check_special(const mha_tokenizer_train_options *o, mha_error *err)
{
    enum { SPECIAL_MAX = 4096, BYTES_MAX = 1024 };
    if (o->special_count < 0 || o->special_count > SPECIAL_MAX || (o->special_count && !o->special))
        return mha__fail(err, MHA_ERR_ARG, "special_count must be from 0 to %d, and 0 if special is NULL (got %lld)",
                         (int)SPECIAL_MAX, (long long)o->special_count);
    for (int64_t i = 0; i < o->special_count; i++) {
        const char *text = o->special[i];
        const size_t n = text ? strlen(text) : 0;
        if (n == 0 || n > BYTES_MAX || mha__utf8_check(text, n) < n || strpbrk(text, "\r\n"))
            return mha__fail(err, MHA_ERR_ARG, "special token \"%s\" must be UTF-8 of 1 to %d bytes without line ends",
                             mha__quote(&(mha__quoted){0}, text ? text : "", n), (int)BYTES_MAX);
    }
    return MHA_OK;
}

static mha_status check_options(mha_tokenizer_train_options *o, mha_error *err)
{
    if (o->type != MHA_TOKENIZER_BPE && o->type != MHA_TOKENIZER_WORDPIECE)
        return mha__fail(err, MHA_ERR_ARG, "type must be MHA_TOKENIZER_BPE or MHA_TOKENIZER_WORDPIECE (got %d)",
                         (int)o->type);
    if (o->vocab_size < 1 || o->vocab_size > MHA__TRAIN_VOCAB)
        return mha__fail(err, MHA_ERR_ARG, "vocab_size must be from 1 to %d (got %lld)", (int)MHA__TRAIN_VOCAB,
                         (long long)o->vocab_size);
    if (o->min_frequency < 0)
        return mha__fail(err, MHA_ERR_ARG, "min_frequency must be at least 0 (got %lld)", (long long)o->min_frequency);
    if (o->alphabet < 0)
        return mha__fail(err, MHA_ERR_ARG, "alphabet must be at least 0 (got %lld)", (long long)o->alphabet);
    if (o->type == MHA_TOKENIZER_BPE && (o->alphabet || o->lowercase))
        return mha__fail(err, MHA_ERR_ARG, "%s must be unset for byte-level BPE (only WordPiece supports it)",
                         o->alphabet ? "alphabet" : "lowercase");
    if (o->min_frequency == 0) o->min_frequency = 2;
    return check_special(o, err);
}

static mha_status make_counters(mha_tokenizer_trainer *t, mha_error *err)
{
    t->threads = mha__threads(t->ctx);
    t->counters = mha__calloc(t->ctx, (size_t)t->threads, sizeof *t->counters);
    if (!t->counters) return mha__no_memory(err, (size_t)t->threads * sizeof *t->counters, "a trainer");
    for (int i = 0; i < t->threads; i++) {
        t->counters[i].pass = (mha__pass){.ctx = t->ctx, .err = &t->counters[i].error};
        t->counters[i].words.ctx = t->ctx;
    }
    return MHA_OK;
}

static mha_status set_up(mha_tokenizer_trainer *t, mha_error *err)
{
    MHA__TRY(make_counters(t, err));
    MHA__TRY(mha__train_file_begin(t, err));
    return mha__tokenizer_read(t->ctx, t->json, strlen(t->json), &t->start, err);
}

mha_status mha_tokenizer_trainer_create(mha_ctx *ctx, const mha_tokenizer_train_options *options,
                                        mha_tokenizer_trainer **out, mha_error *err)
{
    mha_tokenizer_train_options o;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "mha_tokenizer_trainer_create: out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__options_need(&o, sizeof o, options, "mha_tokenizer_train_options", err));
    MHA__TRY(check_options(&o, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    mha_tokenizer_trainer *t = mha__calloc(ctx, 1, sizeof *t);
    if (!t) return mha__no_memory(err, sizeof *t, "a trainer");
    t->ctx = ctx;
    t->o = o;
    t->vocab.ctx = ctx;
    const mha_status status = set_up(t, err);
    t->o.special = NULL; /* owned by the caller; the names are now in t->json */
    if (status == MHA_OK)
        *out = t;
    else
        mha_tokenizer_trainer_free(t);
    return status;
}

void mha__train_free_counters(mha_tokenizer_trainer *t)
{
    for (int i = 0; t->counters && i < t->threads; i++) {
        mha__pass_free(&t->counters[i].pass);
        mha__strings_free(&t->counters[i].words);
    }
    mha__free(t->ctx, t->counters);
    mha__free(t->ctx, t->text);
    t->counters = NULL;
    t->text = NULL;
}

/* Frees the data that is needed only during training. */
static void free_symbols(mha_tokenizer_trainer *t)
{
    mha__free(t->ctx, t->symbols);
    mha__free(t->ctx, t->word_counts);
    t->symbols = NULL;
    t->word_counts = NULL;
}

void mha_tokenizer_trainer_free(mha_tokenizer_trainer *t)
{
    if (!t) return;
    mha__train_free_counters(t);
    free_symbols(t);
    mha__strings_free(&t->vocab);
    mha__free(t->ctx, t->merges);
    mha_tokenizer_free(t->start);
    mha__free(t->ctx, t->json);
    mha__free(t->ctx, t);
}

/* ---- running the training ---- */

static mha_status learn(mha_tokenizer_trainer *t, mha_error *err)
{
    MHA__TRY(mha__train_join(t, err));
    t->trained.distinct = (int64_t)t->counters[0].words.count;
    if (t->trained.distinct == 0) return mha__fail(err, MHA_ERR_ARG, "text must contain words to train on");
    MHA__TRY(mha__train_words(t, err));
    mha__train_free_counters(t);
    MHA__TRY(mha__train_merge(t, err));
    free_symbols(t);
    return mha__train_file_finish(t, err);
}

mha_status mha_tokenizer_trainer_run(mha_tokenizer_trainer *t, mha_tokenizer **tokenizer, mha_error *err)
{
    if (tokenizer) *tokenizer = NULL;
    if (!t) return mha__fail(err, MHA_ERR_ARG, "mha_tokenizer_trainer_run: trainer must not be NULL");
    MHA__TRY(mha_tokenizer_trainer_end(t, err));
    t->state = MHA__TRAIN_FAILED;
    MHA__TRY(learn(t, err));
    t->state = MHA__TRAIN_DONE;
    return tokenizer ? mha__tokenizer_read(t->ctx, t->json, strlen(t->json), tokenizer, err) : MHA_OK;
}

void mha_tokenizer_trainer_trained(const mha_tokenizer_trainer *t, mha_tokenizer_trained *trained)
{
    if (trained) *trained = t ? t->trained : (mha_tokenizer_trained){0};
}
