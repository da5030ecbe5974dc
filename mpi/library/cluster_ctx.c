/* cluster_ctx.c - contexts of the ranks: the same ISA on all ranks, and transfers that progress between tiles. */
#include "library/cluster_struct.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the ISA that all ranks support ---- */

/* All names that mha_isa_list can return, oldest first. */
static const char *const isas[] = {"scalar", "neon", "wasm128", "avx2", "avx512", "avx512vnni", "avx512bf16", "amx"};
enum { ISAS = sizeof isas / sizeof *isas };

static int index_of(const char *isa)
{
    for (int n = 0; n < ISAS; n++)
        if (strcmp(isas[n], isa) == 0) return n;
    return 0;
}

/* Returns the ISAs that this CPU supports, up to `isa`, as a bit mask. */
static int64_t permitted(const char *isa)
{
    const char *names[ISAS];
    const int count = mha_isa_list(names, ISAS);
    int64_t bits = 0;
    for (int n = 0; n < count && n < ISAS; n++) {
        bits |= INT64_C(1) << index_of(names[n]);
        if (strcmp(names[n], isa) == 0) break;
    }
    return bits;
}

/* Sets *isa to the newest ISA that every rank permits. Sets *without to a rank whose own ISA is older than the newest
 * ISA of all ranks, or to -1 if all ranks have the same ISA. */
static mha_status find_common(mha_cluster *c, const char *own, const char **isa, int *without, mha_error *err)
{
    const int ranks = c->info.ranks;
    const int64_t *all;
    int64_t common = -1;
    int newest = 0;
    *without = -1;
    MHA__TRY(mha__cluster_gather(c, index_of(own), &all, err));
    for (int rank = 0; rank < ranks; rank++)
        newest = all[rank] > newest ? (int)all[rank] : newest;
    for (int rank = ranks - 1; rank >= 0; rank--)
        if (all[rank] != newest) *without = rank;
    MHA__TRY(mha__cluster_gather(c, permitted(own), &all, err));
    for (int rank = 0; rank < ranks; rank++)
        common &= all[rank];
    *isa = isas[0];
    for (int n = 0; n < ISAS; n++)
        if (common >> n & 1) *isa = isas[n];
    return MHA_OK;
}

static void warn(const mha_cluster *c, const mha_ctx_options *o, const char *isa, int without)
{
    char line[256];
    if (!o->log || c->info.rank != 0) return;
    snprintf(line, sizeof line,
             "the CPUs differ: all ranks use %s, the newest ISA that rank %d (%s) shares with the other ranks", isa,
             without, c->hosts[without]);
    o->log(o->log_user, 0, line);
}

/* ---- callback between tiles ---- */

static int on_between_tiles(void *user, int64_t begun, int64_t total)
{
    const mha__hook *hook = user;
    if (mha__cluster_tick(hook->cluster, NULL) != MHA_OK) return 1;
    return hook->between_tiles ? hook->between_tiles(hook->user, begun, total) : 0;
}

static mha_status make_hook(mha_cluster *c, mha_ctx_options *o, mha_error *err)
{
    mha__hook *hook = malloc(sizeof *hook);
    if (!hook) return mha__cluster_no_memory(c, err, sizeof *hook, "a callback");
    *hook = (mha__hook){c->hooks, c, o->between_tiles, o->between_tiles_user};
    c->hooks = hook;
    o->between_tiles = on_between_tiles;
    o->between_tiles_user = hook;
    return MHA_OK;
}

/* ---- creation of a context ---- */

/* ISA and thread count of a context with the caller's options. */
typedef struct own_ctx {
    const char *isa;
    int threads;
} own_ctx;

static mha_status find_own(mha_cluster *c, const mha_ctx_options *o, own_ctx *own, mha_error *err)
{
    mha_ctx *ctx;
    mha_error why = {0};
    mha_status status = mha_ctx_create(o, &ctx, &why);
    if (status == MHA_OK) *own = (own_ctx){isas[index_of(mha_ctx_isa(ctx))], mha_ctx_threads(ctx)};
    mha_ctx_free(ctx);
    status = mha__cluster_agree_now(c, status, &why);
    if (status != MHA_OK && err) *err = why;
    return status;
}

/* Divides the CPUs of a host among its ranks, if each rank may run on all CPUs. */
static void divide_threads(const mha_cluster *c, mha_ctx_options *o, int threads)
{
    const char *wanted = getenv("MHA_THREADS");
    if (o->threads != 0 || o->parallel_for || (wanted && *wanted)) return;
    if (threads < sysconf(_SC_NPROCESSORS_ONLN)) return;
    o->threads = threads / c->info.host_ranks > 1 ? threads / c->info.host_ranks : 1;
}

static mha_status lower(mha_cluster *c, mha_ctx_options *o, const char *own, mha_error *err)
{
    const char *common;
    int without;
    MHA__TRY(find_common(c, own, &common, &without, err));
    if (without < 0) return MHA_OK;
    warn(c, o, common, without);
    o->isa = common;
    return MHA_OK;
}

mha_status mha_cluster_ctx_create(mha_cluster *cluster, const mha_ctx_options *options, int mixed_isa, mha_ctx **out,
                                  mha_error *err)
{
    if (out) *out = NULL;
    if (!cluster || !out) return mha__cluster_fail(cluster, err, MHA_ERR_ARG, "cluster and out must not be NULL");
    mha_ctx_options o;
    MHA__TRY(mha__cluster_read(cluster, &o, sizeof o, options, "mha_ctx_options", err));
    mha_error why = {0};
    own_ctx own = {isas[0], 1};
    MHA__TRY(find_own(cluster, &o, &own, err));
    if (!mixed_isa) MHA__TRY(lower(cluster, &o, own.isa, err));
    divide_threads(cluster, &o, own.threads);
    mha_status status = make_hook(cluster, &o, &why);
    if (status == MHA_OK) status = mha_ctx_create(&o, out, &why);
    status = mha__cluster_agree_now(cluster, status, &why);
    if (status == MHA_OK) return MHA_OK;
    mha_ctx_free(*out);
    *out = NULL;
    if (err) *err = why;
    return status;
}
