/* layout_training.c - checks the options of training runs that compare head layouts. */
#include "heads/plan/layout_training.h"

#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include <math.h>

#define NAME "mha_layout_training"

static mha_status read_train(const mha_train_options *given, mha_train_options *t, mha_error *err)
{
    MHA__TRY(mha__options_need(t, sizeof *t, given, NAME ": train", err));
    if (t->steps < 1)
        return mha__fail(err, MHA_ERR_ARG, NAME ": train->steps must be at least 1 (got %lld)", (long long)t->steps);
    const char *const set = t->seed                ? "seed"
                            : t->gates.penalty     ? "gates"
                            : t->teacher           ? "teacher"
                            : t->ranks             ? "ranks"
                            : t->frozen_count != 0 ? "frozen"
                                                   : NULL;
    return set ? mha__fail(err, MHA_ERR_ARG, NAME ": train->%s must not be set", set) : MHA_OK;
}

static mha_status check_length(const mha_train_data *data, const char *name, int64_t length, mha_error *err)
{
    const mha_train_data_info *info = mha_train_data_describe(data);
    if (!info) return mha__fail(err, MHA_ERR_ARG, NAME ": %s must be complete (mha_train_data_finish)", name);
    if (info->texts)
        return mha__fail(err, MHA_ERR_ARG, NAME ": %s must not have a text per sequence (texts_apart)", name);
    if (info->length == length) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, NAME ": %s must have sequences of layout->seq = %lld tokens (got %lld)", name,
                     (long long)length, (long long)info->length);
}

/* Divides the sequences into those to train on and held-out ones. */
static mha_status split(mha__layout_setup *s, mha_error *err)
{
    const int64_t all = mha_train_data_describe(s->o.data)->sequences;
    s->held = s->o.held_out ? s->o.held_out : s->o.data;
    s->learned = all;
    if (s->o.held_out) {
        s->held_count = mha_train_data_describe(s->held)->sequences;
        return check_length(s->held, "held_out", s->layout.seq, err);
    }
    if (s->o.held_out_fraction == 0) s->o.held_out_fraction = 0.1;
    if (!(s->o.held_out_fraction > 0 && s->o.held_out_fraction < 1))
        return mha__fail(err, MHA_ERR_ARG, NAME ": held_out_fraction must be above 0 and below 1 (got %g)",
                         s->o.held_out_fraction);
    s->held_count = (int64_t)ceil(s->o.held_out_fraction * (double)all);
    s->learned = s->held_first = all - s->held_count;
    if (s->learned >= 1) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, NAME ": held_out_fraction must leave a sequence to train on (got %g of %lld)",
                     s->o.held_out_fraction, (long long)all);
}

static mha_status check_encoder(mha_layout_training *o, mha_error *err)
{
    if (!o->encoder) return MHA_OK;
    if (!o->tokenizer) return mha__fail(err, MHA_ERR_ARG, NAME ": tokenizer must not be NULL for encoders");
    if (o->mask_fraction == 0) o->mask_fraction = 0.15;
    return MHA_OK; /* mha_train_mask_tokens checks the fraction and the id of the mask */
}

/* Checks the sizes that only models have: head layouts can be counted for larger ones. */
static mha_status check_shape(mha__layout_setup *s, mha_error *err)
{
    const struct {
        const char *name;
        int64_t value, min, max;
    } sizes[] = {{"layout->layers", s->layout.layers, 1, 1024},
                 {"layout->vocab", s->layout.vocab, 1, INT64_C(1) << 24},
                 {"layout->seq", s->layout.seq, s->o.encoder ? 3 : 2, INT64_C(1) << 24},
                 {"layout->experts", s->layout.experts, s->layout.heads, s->layout.heads},
                 {"feed_forward", s->o.feed_forward, 0, INT64_C(1) << 24},
                 {"held_out_sequences", s->o.held_out_sequences, 0, INT64_MAX}};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        if (sizes[n].value < sizes[n].min || sizes[n].value > sizes[n].max)
            return mha__fail(err, MHA_ERR_ARG, NAME ": %s must be from %lld to %lld (got %lld)", sizes[n].name,
                             (long long)sizes[n].min, (long long)sizes[n].max, (long long)sizes[n].value);
    const int64_t eighths = s->o.encoder ? 32 : 22;
    if (s->o.feed_forward == 0) s->o.feed_forward = mha__ceil_div(s->layout.d_model * eighths, 64) * 8;
    if (s->o.held_out_sequences == 0) s->o.held_out_sequences = 512;
    return MHA_OK;
}

mha_status mha__layout_setup_read(const mha_layout_training *options, mha__layout_setup *s, mha_error *err)
{
    *s = (mha__layout_setup){0};
    MHA__TRY(mha__options_need(&s->o, sizeof s->o, options, NAME, err));
    MHA__TRY(mha_head_layout_resolve(s->o.layout, &s->layout, err));
    MHA__TRY(read_train(s->o.train, &s->train, err));
    if (!s->o.data) return mha__fail(err, MHA_ERR_ARG, NAME ": data must not be NULL");
    MHA__TRY(check_shape(s, err));
    MHA__TRY(check_encoder(&s->o, err));
    MHA__TRY(check_length(s->o.data, "data", s->layout.seq, err));
    return split(s, err);
}
