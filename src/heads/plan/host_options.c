/* host_options.c - the options of a host plan: names of jobs and networks, measurement of the speed, checks and
 * defaults. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "heads/plan/host_cost.h"
#include "heads/plan/option_range.h"
#include "math/types/element.h"
#include "mha/machine_peak.h"
#include <stdlib.h>
#include <string.h>

/* ---- jobs and networks ---- */

#define MHA__X(name, key, text) {key, text},
static const char *const jobs[][2] = {MHA_HOST_JOB_MAP(MHA__X)};
#undef MHA__X

const char *mha_host_job_key(mha_host_job job)
{
    return (unsigned)job < MHA_HOST_JOBS ? jobs[job][0] : NULL;
}

const char *mha_host_job_help(mha_host_job job)
{
    return (unsigned)job < MHA_HOST_JOBS ? jobs[job][1] : NULL;
}

#define MHA__X(key, latency, bandwidth, text) {key, text, {latency, bandwidth}},
static const struct {
    const char *key, *help;
    mha_host_network network;
} networks[MHA_HOST_NETWORKS] = {MHA_HOST_NETWORK_MAP(MHA__X)};
#undef MHA__X

const char *mha_host_network_key(int network)
{
    return network >= 0 && network < MHA_HOST_NETWORKS ? networks[network].key : NULL;
}

const char *mha_host_network_help(int network)
{
    return network >= 0 && network < MHA_HOST_NETWORKS ? networks[network].help : NULL;
}

static bool network_valid(const mha_host_network *n)
{
    return n->latency >= 0 && n->latency <= 10 && n->bandwidth >= 1 && n->bandwidth <= 1e15;
}

mha_status mha_host_network_find(const char *text, mha_host_network *network, mha_error *err)
{
    if (!text || !network)
        return mha__fail(err, MHA_ERR_ARG, "mha_host_network_find: %s must not be NULL", text ? "network" : "text");
    for (int n = 0; n < MHA_HOST_NETWORKS; n++)
        if (strcmp(text, networks[n].key) == 0) {
            *network = networks[n].network;
            return MHA_OK;
        }
    mha_host_network own;
    char *end;
    own.latency = strtod(text, &end);
    const bool pair = end != text && *end == ':';
    const char *second = pair ? end + 1 : "";
    own.bandwidth = strtod(second, &end);
    if (!pair || end == second || *end != '\0' || !network_valid(&own))
        return mha__fail(err, MHA_ERR_ARG,
                         "network must be one of 1gbe, 10gbe, 100gbe, ib100, ib400, or LATENCY:BANDWIDTH in seconds (0 "
                         "to 10) and bytes per second (1 to 1e15) (got \"%s\")",
                         mha__quote(&(mha__quoted){0}, text, strlen(text)));
    *network = own;
    return MHA_OK;
}

/* ---- speed ---- */

/* Fraction of the peak rate of multiply-adds that the products and attention of a model reach. */
static const double REACHED = 0.75;

mha_status mha_host_speed_measure(mha_ctx *ctx, mha_host_speed *speed, mha_error *err)
{
    enum { BYTES = 64 << 20 };
    mha_host_speed own = {0};
    if (!speed) return mha__fail(err, MHA_ERR_ARG, "mha_host_speed_measure: speed must not be NULL");
    MHA__TRY(mha__ctx_find(&ctx, err));
    void *memory = mha__alloc(ctx, BYTES);
    if (!memory) return mha__no_memory(err, BYTES, "the measurement of memory bandwidth");
    memset(memory, 1, BYTES); /* without this write, all pages would map to one page of zeros */
    mha_status status = mha_machine_peak_read(ctx, memory, BYTES, &own.bandwidth, err);
    mha__free(ctx, memory);
    if (status == MHA_OK) status = mha_machine_peak_fma(ctx, &own.flops, err);
    own.flops *= REACHED;
    if (status == MHA_OK) *speed = own;
    return status;
}

/* ---- options ---- */

static mha_status check_types(mha_host_options *o, mha_error *err)
{
    if (o->dtype == MHA_DTYPE_DEFAULT) o->dtype = MHA_F32;
    if (o->dtype != MHA_F32 && o->dtype != MHA_BF16 && o->dtype != MHA_F16 && o->dtype != MHA_Q8_0)
        return mha__fail(err, MHA_ERR_ARG, "dtype must be one of f32, bf16, f16, q8_0 (got %s)",
                         mha_dtype_name(o->dtype));
    if (o->kv_dtype == MHA_DTYPE_DEFAULT) o->kv_dtype = mha__attention_dtype(o->dtype);
    if (o->kv_dtype != MHA_F32 && o->kv_dtype != MHA_BF16 && o->kv_dtype != MHA_F16)
        return mha__fail(err, MHA_ERR_ARG, "kv_dtype must be one of f32, bf16, f16 (got %s)",
                         mha_dtype_name(o->kv_dtype));
    if (o->moments == MHA_DTYPE_DEFAULT) o->moments = MHA_F32;
    if (o->moments != MHA_F32 && o->moments != MHA_BF16)
        return mha__fail(err, MHA_ERR_ARG, "moments must be one of f32, bf16 (got %s)", mha_dtype_name(o->moments));
    return MHA_OK;
}

static mha_status check_speeds(const mha_host_options *o, mha_error *err)
{
    const mha_host_speed *s = &o->speed;
    if (!(s->flops >= 1 && s->flops <= 1e18))
        return mha__fail(err, MHA_ERR_ARG, "speed.flops must be from 1 to 1e18 (got %g)", s->flops);
    if (!(s->bandwidth >= 1 && s->bandwidth <= 1e15))
        return mha__fail(err, MHA_ERR_ARG, "speed.bandwidth must be from 1 to 1e15 (got %g)", s->bandwidth);
    if (o->hosts > 1 && !network_valid(&o->network))
        return mha__fail(err, MHA_ERR_ARG,
                         "network must have a latency from 0 to 10 s and a bandwidth from 1 to 1e15 bytes/s (got %g, "
                         "%g)",
                         o->network.latency, o->network.bandwidth);
    return MHA_OK;
}

/* Returns the largest power of two up to `hosts`. */
static int64_t usual_workers(int64_t hosts)
{
    int64_t workers = 1;
    while (2 * workers <= hosts)
        workers *= 2;
    return workers;
}

mha_status mha__host_options_check(const mha_host_options *given, mha_host_options *options, mha_error *err)
{
    mha_host_options o;
    const int64_t max = INT64_C(1) << 32;
    MHA__TRY(mha__options_need(&o, sizeof o, given, "mha_host_options", err));
    MHA__TRY(mha__option_count("hosts", &o.hosts, 0, 65536, err));
    MHA__TRY(mha__option_count("memory", &o.memory, 0, INT64_MAX, err));
    MHA__TRY(mha__option_count("seq", &o.seq, 2048, max, err));
    MHA__TRY(mha__option_count("batch", &o.batch, 1, max, err));
    MHA__TRY(mha__option_count("workers", &o.workers, usual_workers(o.hosts), 65536, err));
    if (!mha__is_power_of_two(o.workers))
        return mha__fail(err, MHA_ERR_ARG, "workers must be a power of two (got %lld)", (long long)o.workers);
    if ((unsigned)o.job >= MHA_HOST_JOBS)
        return mha__fail(err, MHA_ERR_ARG, "job must be from 0 to %d (got %d)", MHA_HOST_JOBS - 1, (int)o.job);
    MHA__TRY(check_types(&o, err));
    MHA__TRY(check_speeds(&o, err));
    *options = o;
    return MHA_OK;
}
