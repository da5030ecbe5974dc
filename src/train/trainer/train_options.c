/* train_options.c - sets defaults and checks ranges of the options of a trainer, and matches patterns of tensor
 * names. */
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "train/gates/trainer_gates.h"
#include "train/trainer_struct.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { WORKERS_MAX = 1 << 20 };

static double or_default(double value, double usual)
{
    return value != 0 ? value : usual;
}

/* Checks that min < value < max; with_min permits value = min, with_max permits value = max. */
static mha_status check(const char *name, double value, double min, bool with_min, double max, bool with_max,
                        mha_error *err)
{
    const bool above = with_min ? value >= min : value > min, below = with_max ? value <= max : value < max;
    if (above && below) return MHA_OK; /* NaN fails both comparisons */
    return mha__fail(err, MHA_ERR_ARG, "mha_train_options: %s must be in %s%g, %g%s (got %g)", name,
                     with_min ? "[" : "(", min, max, with_max ? "]" : ")", value);
}

static mha_status check_type(const char *name, mha_dtype *type, mha_error *err)
{
    if (*type == MHA_DTYPE_DEFAULT) *type = MHA_F32;
    if (*type == MHA_F32 || *type == MHA_BF16) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "mha_train_options: %s must be one of f32, bf16 (got %s)", name,
                     mha__quote_dtype(&(mha__quoted){0}, *type));
}

/* Replaces o->ranks with a copy of the caller's struct in `r`. */
static mha_status read_ranks(mha_train_options *o, mha_train_ranks *r, mha_error *err)
{
    if (!o->ranks) return MHA_OK;
    MHA__TRY(mha__options_need(r, sizeof *r, o->ranks, "mha_train_ranks", err));
    o->ranks = r;
    if (!mha__is_power_of_two(r->ranks) || r->rank < 0 || r->rank >= r->ranks)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_train_ranks: ranks must be a power of two, and rank must be less than ranks (got %d, %d)",
                         r->ranks, r->rank);
    if (!(r->agree && r->same && r->broadcast && r->add_integers && r->add_doubles && r->add_floats && r->gather &&
          r->collect && r->start && r->finish))
        return mha__fail(err, MHA_ERR_ARG, "mha_train_ranks: callbacks must not be NULL");
    return MHA_OK;
}

static mha_status check_workers(mha_train_options *o, mha_train_ranks *r, mha_error *err)
{
    if (o->workers == 0) o->workers = 1;
    if (!mha__is_power_of_two(o->workers) || o->workers > WORKERS_MAX)
        return mha__fail(err, MHA_ERR_ARG, "mha_train_options: workers must be a power of two up to %d (got %lld)",
                         WORKERS_MAX, (long long)o->workers);
    if (o->reduce != MHA_REDUCE_TREE && o->reduce != MHA_REDUCE_FAST)
        return mha__fail(err, MHA_ERR_ARG, "mha_train_options: reduce must be a value of mha_train_reduce (got %d)",
                         (int)o->reduce);
    MHA__TRY(read_ranks(o, r, err));
    if (o->ranks && o->workers % r->ranks != 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_train_options: workers must be a multiple of the %d ranks (got %lld)",
                         r->ranks, (long long)o->workers);
    return MHA_OK;
}

mha_status mha__train_options(mha_train_options *o, mha_train_ranks *ranks, const mha_train_options *given,
                              mha_error *err)
{
    MHA__TRY(mha__options_read(o, sizeof *o, given, "mha_train_options", err));
    o->rate = or_default(o->rate, MHA__TRAIN_RATE);
    o->beta1 = or_default(o->beta1, 0.9);
    o->beta2 = or_default(o->beta2, 0.999);
    o->eps = or_default(o->eps, 1e-8);
    MHA__TRY(check("rate", o->rate, 0, false, 1e6, true, err));
    MHA__TRY(check("beta1", o->beta1, 0, false, 1, false, err));
    MHA__TRY(check("beta2", o->beta2, 0, false, 1, false, err));
    MHA__TRY(check("eps", o->eps, (double)FLT_MIN, true, 1, true, err));
    MHA__TRY(check("decay", o->decay, 0, true, 1e6, true, err));
    MHA__TRY(check("floor", o->floor, 0, true, o->rate, true, err));
    MHA__TRY(check("clip", o->clip, 0, true, HUGE_VAL, false, err));
    MHA__TRY(check("dropout.embedding", o->dropout.embedding, 0, true, 1, false, err));
    MHA__TRY(check("dropout.attention", o->dropout.attention, 0, true, 1, false, err));
    MHA__TRY(check("dropout.residual", o->dropout.residual, 0, true, 1, false, err));
    MHA__TRY(check_type("dtype", &o->dtype, err));
    MHA__TRY(check_type("moments", &o->moments, err));
    if (o->decays < MHA_DECAY_MATRICES || o->decays > MHA_DECAY_ALL)
        return mha__fail(err, MHA_ERR_ARG, "mha_train_options: decays must be a value of mha_train_decay (got %d)",
                         (int)o->decays);
    if (o->warmup < 0 || o->steps < 0 || (o->steps && o->warmup > o->steps))
        return mha__fail(err, MHA_ERR_ARG, "mha_train_options: warmup must be from 0 to steps (got %lld, %lld)",
                         (long long)o->warmup, (long long)o->steps);
    if (o->frozen_count < 0 || (o->frozen_count && !o->frozen))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_train_options: frozen_count must be the number of entries in frozen (got %lld, %s)",
                         (long long)o->frozen_count, o->frozen ? "given" : "NULL");
    MHA__TRY(check_workers(o, ranks, err));
    return mha__gates_options(&o->gates, err);
}

bool mha__train_fits(const char *pattern, const char *name)
{
    const size_t p = strlen(pattern), n = strlen(name);
    const bool before = p && pattern[0] == '*', after = p > 1 && pattern[p - 1] == '*';
    const char *part = pattern + before;
    const size_t length = p - (size_t)before - (size_t)after;
    if (length > n) return false;
    if (!before && !after) return strcmp(pattern, name) == 0;
    if (!before) return memcmp(name, part, length) == 0;
    if (!after) return memcmp(name + n - length, part, length) == 0;
    for (size_t at = 0; at + length <= n; at++)
        if (memcmp(name + at, part, length) == 0) return true;
    return false;
}
