/* verify_self.c - compares every ISA of this CPU with the double-precision operator on fixed problems.
 *
 * The tolerance is derived from the problem: twice the largest error of naive f32 loops, plus one unit in the last
 * place of the largest result. */
#include "output.h"
#include "session.h"
#include "verify/verify_problem.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ISAS_MAX = 8 };

#define SIZED(b, h, hkv, lq, lk, d) \
    .batch = (b), .heads = (h), .kv_heads = (hkv), .q_len = (lq), .kv_len = (lk), .head_dim = (d)

/* The problems. Masks and biases have the full shape [B, H, Lq, Lk]; key lengths alternate between Lk and about Lk / 2.
 */
static const struct {
    const char *group;
    mha_attn_desc desc;
} problems[] = {
    {"plain", {SIZED(2, 3, 0, 65, 129, 64)}},
    {"plain", {SIZED(1, 2, 0, 17, 33, 7)}},
    {"plain", {SIZED(1, 1, 0, 130, 257, 128)}},
    {"head widths", {SIZED(1, 2, 0, 33, 70, 1)}},
    {"head widths", {SIZED(1, 2, 0, 33, 70, 40), .v_head_dim = 80}},
    {"head widths", {SIZED(1, 2, 0, 33, 70, 80), .v_head_dim = 7}},
    {"head widths", {SIZED(1, 1, 0, 20, 50, 512)}},
    {"head widths", {SIZED(1, 1, 0, 20, 50, MHA_HEAD_DIM_MAX)}},
    {"grouped heads", {SIZED(2, 8, 2, 33, 65, 32)}},
    {"grouped heads", {SIZED(1, 12, 1, 9, 100, 64)}},
    {"causal", {SIZED(1, 2, 0, 129, 129, 64), .causal = 1, .align = MHA_ALIGN_TOP_LEFT}},
    {"causal", {SIZED(2, 2, 0, 33, 200, 48), .causal = 1, .align = MHA_ALIGN_BOTTOM_RIGHT}},
    {"causal", {SIZED(2, 2, 0, 200, 33, 48), .causal = 1, .align = MHA_ALIGN_BOTTOM_RIGHT}},
    {"window", {SIZED(1, 2, 0, 150, 150, 32), .window = {1, 15, 0}, .align = MHA_ALIGN_TOP_LEFT}},
    {"window", {SIZED(1, 2, 0, 70, 300, 32), .window = {1, 63, 20}, .align = MHA_ALIGN_BOTTOM_RIGHT}},
    {"keep", {SIZED(2, 4, 2, 37, 131, 40), .inputs = MHA_ATTN_KEEP}},
    {"bias", {SIZED(2, 4, 2, 37, 131, 40), .inputs = MHA_ATTN_BIAS}},
    {"lengths", {SIZED(4, 2, 0, 20, 140, 32), .inputs = MHA_ATTN_KV_LENS}},
    {"softcap", {SIZED(1, 2, 0, 40, 90, 64), .softcap = 5}},
    {"softcap", {SIZED(1, 2, 0, 40, 90, 64), .softcap = 50, .scale = 2}},
    {"decode", {SIZED(4, 8, 2, 1, 700, 64), .inputs = MHA_ATTN_KV_LENS}},
    {"decode", {SIZED(1, 8, 8, 1, 2500, 128), .causal = 1, .align = MHA_ALIGN_BOTTOM_RIGHT}},
    {"long", {SIZED(1, 1, 0, 64, 5000, 64)}},
    {"large scores", {SIZED(1, 2, 0, 40, 90, 32), .scale = 8}},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

/* ---- comparison with a double-precision reference ---- */

/* Returns twice the error of naive f32 loops, plus one unit in the last place of the largest result. */
static double limit_of(const double *plain, const double *want, int64_t count)
{
    double error = 0, top = 0;
    for (int64_t n = 0; n < count; n++) {
        if (!isfinite(want[n])) continue;
        error = fmax(error, fabs(plain[n] - want[n]));
        top = fmax(top, fabs(want[n]));
    }
    return 2 * error + top * (double)FLT_EPSILON;
}

/* Checks a problem on one ISA and returns the largest error / limit. */
static double check_problem(mha_ctx *ctx, const verify_problem *p, const char *group, verify_log *log)
{
    verify_case outcome;
    mha_error error = {0};
    char name[96];
    const mha_attn_desc *d = &p->desc;
    snprintf(name, sizeof name, "%s %s B=%lld H=%lld Lq=%lld Lk=%lld D=%lld", mha_ctx_isa(ctx), group,
             (long long)d->batch, (long long)d->heads, (long long)d->q_len, (long long)d->kv_len,
             (long long)d->head_dim);
    verify_begin(&outcome, group, name);
    if (verify_run_narrow(ctx, p, &error) != MHA_OK) {
        verify_stopped(&outcome, &error);
    } else {
        int64_t numbers = p->rows * p->Dv;
        verify_compare(&outcome, "out", p->out, p->out64, numbers, limit_of(p->plain_out, p->out64, numbers));
        verify_compare(&outcome, "lse", p->lse, p->lse64, p->rows, limit_of(p->plain_lse, p->lse64, p->rows));
    }
    verify_end(log, &outcome);
    return outcome.refused || outcome.broken ? INFINITY : outcome.ratio;
}

/* ---- contexts of all ISAs ---- */

typedef struct isa_contexts {
    mha_ctx *ctx[ISAS_MAX]; /* ctx[0] is scalar */
    int count;
} isa_contexts;

/* Returns true if ISAs newer than that of the session are excluded. Without --isa and MHA_ISA, ISAs that this CPU
 * supports but does not use by default are checked as well. */
static bool is_capped(const cli_session *session)
{
    const char *cap = session->options.isa ? session->options.isa : getenv("MHA_ISA");
    return cap && *cap;
}

static int open_contexts(cli_session *session, isa_contexts *all)
{
    const char *names[ISAS_MAX];
    int count = mha_isa_list(names, ISAS_MAX);
    for (int n = 0; n < count && n < ISAS_MAX; n++) {
        mha_error error = {0};
        mha_ctx_options options = {.size = sizeof options, .threads = session->options.threads, .isa = names[n]};
        if (mha_ctx_create(&options, &all->ctx[n], &error) != MHA_OK) return cli_fail(session, &error);
        all->count++;
        if (is_capped(session) && strcmp(names[n], mha_ctx_isa(session->ctx)) == 0) break;
    }
    return CLI_DONE;
}

/* Updates the largest error / limit of a group on an ISA. */
static void note_ratio(verify_log *log, const char *group, const char *isa, double ratio)
{
    json_t *row = json_object_get(log->table, group);
    if (!row && json_object_set_new(log->table, group, row = json_object()) != 0) log->no_memory = true;
    const json_t *before = json_object_get(row, isa);
    bool worse = !before || (json_is_number(before) && !(ratio <= json_number_value(before)));
    if (worse && json_object_set_new(row, isa, cli_real(ratio)) != 0) log->no_memory = true;
}

static mha_status check_everywhere(const isa_contexts *all, int n, verify_log *log, mha_error *error)
{
    verify_problem p;
    const char *group = problems[n].group;
    bool ok = verify_problem_make(&p, &problems[n].desc, group, error) &&
              verify_run_wide(all->ctx[0], &p, error) == MHA_OK && verify_run_plain(&p) == MHA_OK;
    for (int i = 0; ok && i < all->count; i++)
        note_ratio(log, group, mha_ctx_isa(all->ctx[i]), check_problem(all->ctx[i], &p, group, log));
    verify_release(&p.memory);
    return error->status;
}

int verify_self(cli_session *session, verify_log *log)
{
    isa_contexts all = {0};
    mha_error error = {0};
    int code = open_contexts(session, &all);
    log->table = json_object();
    if (!log->table) log->no_memory = true;
    for (int n = 0; code == CLI_DONE && !log->no_memory && n < PROBLEMS; n++) {
        if (check_everywhere(&all, n, log, &error) != MHA_OK) code = cli_fail(session, &error);
        if (cli_signal()) code = 128 + cli_signal();
    }
    for (int n = 0; n < all.count; n++)
        mha_ctx_free(all.ctx[n]);
    return code;
}
