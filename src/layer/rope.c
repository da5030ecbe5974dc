/* rope.c - rotary position embedding: frequencies of each kind of scaling, angles, and rotation of heads. */
#include "mha/rope.h"

#include "attn/plan/rotary.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "math/pi.h"
#include "mha/attn.h"
#include <math.h>

/* Elements per task: a few microseconds of work. Smaller calls run on the calling thread. */
enum { ELEMENTS_PER_TASK = 32768, PAIRS_MAX = MHA_HEAD_DIM_MAX / 2 };

/* ---- checks ---- */

static mha_status want_positive(const char *field, double value, mha_error *err)
{
    if (value > 0 && isfinite(value)) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "mha_rope_options: %s must be finite and greater than 0 (got %g)", field, value);
}

static mha_status check_scale(const mha_rope_options *o, mha_error *err)
{
    if (!(o->factor >= 1) || !isfinite(o->factor))
        return mha__fail(err, MHA_ERR_ARG, "mha_rope_options: factor must be finite and at least 1 (got %g)",
                         o->factor);
    if (o->kind >= MHA_ROPE_LLAMA3 && o->original_positions < 1)
        return mha__fail(err, MHA_ERR_ARG, "mha_rope_options: original_positions must be at least 1 (got %lld)",
                         (long long)o->original_positions);
    if (o->kind == MHA_ROPE_DYNAMIC && (o->max_positions < 1 || o->rotary_dim < 4))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_rope_options: max_positions must be at least 1, and rotary_dim at least 4, with "
                         "MHA_ROPE_DYNAMIC (got %lld, %lld)",
                         (long long)o->max_positions, (long long)o->rotary_dim);
    if (o->kind == MHA_ROPE_LLAMA3 && !(o->low_freq > 0 && o->low_freq < o->high_freq && isfinite(o->high_freq)))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_rope_options: low_freq and high_freq must be ascending and greater than 0 (got %g, %g)",
                         o->low_freq, o->high_freq);
    if (o->kind == MHA_ROPE_YARN) {
        MHA__TRY(want_positive("beta_fast", o->beta_fast, err));
        MHA__TRY(want_positive("beta_slow", o->beta_slow, err));
    }
    for (int64_t i = 0; o->kind == MHA_ROPE_LONGROPE && i < o->rotary_dim / 2; i++) {
        if (!o->short_by || !o->long_by)
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_rope_options: short_by and long_by must not be NULL with MHA_ROPE_LONGROPE");
        MHA__TRY(want_positive("an entry of short_by", o->short_by[i], err));
        MHA__TRY(want_positive("an entry of long_by", o->long_by[i], err));
    }
    return MHA_OK;
}

static void fill_defaults(mha_rope_options *o)
{
    if (!o->rotary_dim) o->rotary_dim = o->head_dim;
    if (o->theta == 0) o->theta = 10000;
    if (o->low_freq == 0) o->low_freq = 1;
    if (o->high_freq == 0) o->high_freq = 4;
    if (o->beta_fast == 0) o->beta_fast = 32;
    if (o->beta_slow == 0) o->beta_slow = 1;
    if (o->factor == 0 && o->kind >= MHA_ROPE_YARN && o->original_positions > 0)
        o->factor = fmax(1, (double)o->max_positions / (double)o->original_positions);
}

/* Checks the caller's options and fills in all defaults. */
static mha_status resolve(mha_rope_options *o, const mha_rope_options *given, mha_error *err)
{
    MHA__TRY(mha__options_read(o, sizeof *o, given, "mha_rope_options", err));
    fill_defaults(o);
    if (o->head_dim < 2 || o->head_dim > 2 * PAIRS_MAX)
        return mha__fail(err, MHA_ERR_ARG, "mha_rope_options: head_dim must be from 2 to %d (got %lld)", 2 * PAIRS_MAX,
                         (long long)o->head_dim);
    if (o->rotary_dim < 2 || o->rotary_dim > o->head_dim || o->rotary_dim % 2)
        return mha__fail(err, MHA_ERR_ARG, "mha_rope_options: rotary_dim must be even and from 2 to %lld (got %lld)",
                         (long long)o->head_dim, (long long)o->rotary_dim);
    MHA__TRY(want_positive("theta", o->theta, err));
    if ((int)o->kind < MHA_ROPE_DEFAULT || o->kind > MHA_ROPE_LONGROPE)
        return mha__fail(err, MHA_ERR_ARG, "mha_rope_options: kind must be a value of mha_rope_kind (got %d)",
                         (int)o->kind);
    return o->kind == MHA_ROPE_DEFAULT ? MHA_OK : check_scale(o, err);
}

/* ---- frequencies ---- */

static double llama3(const mha_rope_options *o, double f)
{
    const double wave = 2 * MHA__PI / f, original = (double)o->original_positions;
    if (wave > original / o->low_freq) return f / o->factor;
    if (wave < original / o->high_freq) return f;
    const double t = (original / wave - o->low_freq) / (o->high_freq - o->low_freq);
    return f * ((1 - t) / o->factor + t);
}

/* Returns the fractional index of the pair that makes `turns` rotations over original_positions. */
static double yarn_pair(const mha_rope_options *o, double turns)
{
    return (double)o->rotary_dim * log((double)o->original_positions / (turns * 2 * MHA__PI)) / (2 * log(o->theta));
}

static void yarn(const mha_rope_options *o, double *f)
{
    double low = yarn_pair(o, o->beta_fast), high = yarn_pair(o, o->beta_slow);
    if (!o->no_truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, (double)(o->rotary_dim - 1));
    const double width = high == low ? 0.001 : high - low;
    for (int64_t i = 0; i < o->rotary_dim / 2; i++) {
        const double ramp = fmin(fmax(((double)i - low) / width, 0), 1);
        f[i] = f[i] * (1 - ramp) + f[i] / o->factor * ramp;
    }
}

static double yarn_gain(double factor, double mscale)
{
    return factor > 1 ? 0.1 * mscale * log(factor) + 1 : 1;
}

static double gain_of(const mha_rope_options *o)
{
    if (o->kind != MHA_ROPE_YARN && o->kind != MHA_ROPE_LONGROPE) return 1;
    if (o->gain != 0) return o->gain;
    if (o->kind == MHA_ROPE_LONGROPE)
        return o->factor > 1 ? sqrt(1 + log(o->factor) / log((double)o->original_positions)) : 1;
    if (o->mscale != 0 && o->mscale_all != 0)
        return yarn_gain(o->factor, o->mscale) / yarn_gain(o->factor, o->mscale_all);
    return yarn_gain(o->factor, 1);
}

static double theta_of(const mha_rope_options *o, int64_t length)
{
    if (o->kind != MHA_ROPE_DYNAMIC || length <= o->max_positions) return o->theta;
    const double stretch = o->factor * (double)length / (double)o->max_positions - (o->factor - 1);
    return o->theta * pow(stretch, (double)o->rotary_dim / (double)(o->rotary_dim - 2));
}

static void frequencies(const mha_rope_options *o, int64_t length, double *f)
{
    const double theta = theta_of(o, length);
    const double *by = length > o->original_positions ? o->long_by : o->short_by;
    for (int64_t i = 0; i < o->rotary_dim / 2; i++) {
        f[i] = pow(theta, -2.0 * (double)i / (double)o->rotary_dim);
        if (o->kind == MHA_ROPE_LINEAR) f[i] /= o->factor;
        if (o->kind == MHA_ROPE_LLAMA3) f[i] = llama3(o, f[i]);
        if (o->kind == MHA_ROPE_LONGROPE) f[i] /= by[i];
    }
    if (o->kind == MHA_ROPE_YARN) yarn(o, f);
}

mha_status mha_rope_frequencies(const mha_rope_options *options, int64_t length, double *f, double *gain,
                                mha_error *err)
{
    mha_rope_options o;
    MHA__TRY(resolve(&o, options, err));
    if (length < 0) return mha__fail(err, MHA_ERR_ARG, "rope: length must be at least 0 (got %lld)", (long long)length);
    if (!f || !gain) return mha__fail(err, MHA_ERR_ARG, "rope: f and gain must not be NULL");
    frequencies(&o, length, f);
    *gain = gain_of(&o);
    return MHA_OK;
}

/* ---- angles ---- */

static mha_status find_length(const int64_t *positions, int64_t rows, int64_t *length, mha_error *err)
{
    *length = positions ? 0 : rows;
    for (int64_t r = 0; positions && r < rows; r++) {
        if (positions[r] < 0 || positions[r] > INT32_MAX)
            return mha__fail(err, MHA_ERR_ARG, "rope: positions[%lld] must be from 0 to 2^31-1 (got %lld)",
                             (long long)r, (long long)positions[r]);
        *length = mha__max64(*length, positions[r] + 1);
    }
    return MHA_OK;
}

mha_status mha_rope_angles(const mha_rope_options *options, const int64_t *positions, int64_t rows, float *cos_out,
                           float *sin_out, mha_error *err)
{
    mha_rope_options o;
    double f[PAIRS_MAX];
    int64_t length = 0;
    MHA__TRY(resolve(&o, options, err));
    if (rows < 0) return mha__fail(err, MHA_ERR_ARG, "rope: rows must be at least 0 (got %lld)", (long long)rows);
    if (rows && (!cos_out || !sin_out)) return mha__fail(err, MHA_ERR_ARG, "rope: cos and sin must not be NULL");
    MHA__TRY(find_length(positions, rows, &length, err));
    frequencies(&o, length, f);
    const double gain = gain_of(&o);
    const int64_t pairs = o.rotary_dim / 2;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < pairs; i++) {
            const double angle = (double)(positions ? positions[r] : r) * f[i];
            cos_out[r * pairs + i] = (float)(gain * cos(angle));
            sin_out[r * pairs + i] = (float)(gain * sin(angle));
        }
    return MHA_OK;
}

/* ---- rotation ---- */

typedef struct turn_job {
    int64_t rows, heads, pairs, row_stride, head_stride, rows_per_task;
    bool interleaved, back;
    const float *cos, *sin;
    float *x;
} turn_job;

static void turn_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    const turn_job *job = arg;
    const int64_t end = mha__min64(job->rows, (i + 1) * job->rows_per_task);
    for (int64_t r = i * job->rows_per_task; r < end; r++)
        for (int64_t h = 0; h < job->heads; h++)
            mha__rotate_f32(job->pairs, job->interleaved, job->cos + r * job->pairs, job->sin + r * job->pairs,
                            job->back, job->x + r * job->row_stride + h * job->head_stride);
}

mha_status mha_rope_turn(mha_ctx *ctx, const mha_rope_options *options, const float *cos, const float *sin,
                         int64_t rows, int64_t heads, float *x, int64_t row_stride, int64_t head_stride, int back,
                         mha_error *err)
{
    mha_rope_options o;
    MHA__TRY(resolve(&o, options, err));
    MHA__TRY(mha__ctx_find(&ctx, err));
    if (rows < 0 || heads < 1)
        return mha__fail(err, MHA_ERR_ARG, "rope: rows must be at least 0, and heads at least 1 (got %lld, %lld)",
                         (long long)rows, (long long)heads);
    if (rows && (!cos || !sin || !x)) return mha__fail(err, MHA_ERR_ARG, "rope: cos, sin and x must not be NULL");
    const int64_t pairs = o.rotary_dim / 2;
    turn_job job = {.rows = rows,
                    .heads = heads,
                    .pairs = pairs,
                    .row_stride = row_stride,
                    .head_stride = head_stride,
                    .rows_per_task = mha__max64(1, ELEMENTS_PER_TASK / (heads * o.rotary_dim)),
                    .interleaved = o.interleaved,
                    .back = back,
                    .cos = cos,
                    .sin = sin,
                    .x = x};
    mha__parallel(ctx, mha__ceil_div(rows, job.rows_per_task), turn_task, &job);
    return MHA_OK;
}
