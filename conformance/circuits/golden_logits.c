/* golden_logits.c - checks recorded logit attributions ("dla.") and logit lenses ("lens."). */
#include "conformance/circuits/golden_circuits.h"
#include "mha/logit_attribution.h"
#include "mha/logit_lens.h"
#include <string.h>

/* ---- logit attribution ---- */

/* One value, or the sum of the rows of a result, as a case. */
static void check_part(circuits_file *f, const char *name, int rank, const double *got, const mha_error *failed)
{
    const int64_t shape[] = {MHA_LOGIT_TARGETS, f->info->layers, f->info->heads, f->length};
    char tensor[40];
    snprintf(tensor, sizeof tensor, "dla.%s", name);
    circuits_case(f, tensor, rank, shape, got, failed);
}

/* The recorded sums of parts equal the total; those of this build must, too. */
static void check_sum(const circuits_file *f, const mha_logit_attribution *a)
{
    verify_case outcome;
    char name[200];
    snprintf(name, sizeof name, "%s dla sum of parts", f->entry.name);
    verify_begin(&outcome, f->entry.name, name);
    verify_measured(&outcome, "sum", a->error, circuits_limit(f, "dla.total"));
    verify_end(f->log, &outcome);
}

void circuits_check_attribution(circuits_file *f)
{
    const mha_logit_attribution_options o = {
        .size = sizeof o, .position = f->position, .answer = f->answer, .wrong = f->wrong};
    static const mha_logit_attribution none;
    mha_error failed = {0};
    mha_logit_attribution *made = NULL;
    if (!circuits_has(f, "dla.total")) return;
    failed.status = mha_logit_attribution_measure(f->model, f->clean, f->length, &o, &made, &failed);
    const mha_logit_attribution *a = made ? made : &none;
    check_part(f, "total", 1, a->total, &failed);
    check_part(f, "embed", 1, a->embed, &failed);
    check_part(f, "pos_embed", 1, a->pos_embed, &failed);
    check_part(f, "norm_bias", 1, a->norm_bias, &failed);
    check_part(f, "attn_bias", 2, a->attn_bias, &failed);
    check_part(f, "mlp", 2, a->mlps, &failed);
    check_part(f, "heads", 3, a->heads, &failed);
    check_part(f, "head_source", 4, a->sources, &failed);
    circuits_case(f, "dla.scale", 1, (const int64_t[]){1}, &a->scale, &failed);
    if (made && circuits_ok(f)) check_sum(f, made);
    mha_logit_attribution_free(made);
}

/* ---- logit lens ---- */

typedef struct recorded {
    int64_t entries, tokens, top;
    const int64_t *targets, *top_ids, *ranks, *slack;
    const double *gap;
} recorded;

static bool read_records(circuits_file *f, recorded *r)
{
    int64_t shape[] = {f->info->layers + 1, f->length, -1};
    r->top_ids = circuits_integers(f, "lens.top_ids", 3, shape);
    r->entries = shape[0];
    r->tokens = shape[1];
    r->top = shape[2];
    r->targets = circuits_integers(f, "lens.target", 1, shape + 1);
    r->ranks = circuits_integers(f, "lens.target_rank", 2, shape);
    r->slack = circuits_integers(f, "lens.target_rank_slack", 2, shape);
    r->gap = circuits_want(f, "lens.top_gap", 2, shape);
    if (circuits_ok(f) && !(r->top_ids && r->targets && r->ranks && r->slack && r->gap))
        verify_fault(&f->entry, "the file must have all tensors of a lens");
    return circuits_ok(f);
}

/* Compares ids where the recorded logits are far enough apart, and ranks up to the recorded slack. */
static void compare_order(circuits_file *f, const recorded *r, const mha_logit_lens *lens)
{
    int64_t ids = 0, ranks = 0;
    verify_case outcome;
    char name[200];
    for (int64_t n = 0; n < r->entries * r->tokens; n++) {
        for (int64_t i = 0; i < r->top; i++)
            ids += r->gap[n] > 1e-4 && lens->top_ids[n * r->top + i] != r->top_ids[n * r->top + i];
        ranks += lens->target_ranks[n] > r->ranks[n] + r->slack[n] || lens->target_ranks[n] < r->ranks[n] - r->slack[n];
    }
    snprintf(name, sizeof name, "%s lens order", f->entry.name);
    verify_begin(&outcome, f->entry.name, name);
    verify_measured(&outcome, "lens.top_ids", (double)ids, 0);
    verify_measured(&outcome, "lens.target_rank", (double)ranks, 0);
    verify_end(f->log, &outcome);
}

void circuits_check_lens(circuits_file *f)
{
    recorded r = {0};
    mha_error failed = {0};
    mha_logit_lens *made = NULL;
    static const mha_logit_lens none;
    if (!circuits_has(f, "lens.top_ids") || !read_records(f, &r)) return;
    int32_t *targets = circuits_room(f, f->length, sizeof *targets);
    for (int64_t t = 0; targets && t < f->length; t++)
        targets[t] = (int32_t)r.targets[t];
    if (!targets) return;
    const mha_logit_lens_options o = {.size = sizeof o, .top = r.top, .targets = targets};
    failed.status = mha_logit_lens_measure(f->model, f->clean, f->length, &o, &made, &failed);
    const mha_logit_lens *lens = made ? made : &none;
    const int64_t shape[] = {r.entries, r.tokens, r.top};
    circuits_case(f, "lens.top_prob", 3, shape, lens->top_probs, &failed);
    circuits_case(f, "lens.target_logprob", 2, shape, lens->target_logprobs, &failed);
    circuits_case(f, "lens.kl", 2, shape, lens->divergences, &failed);
    if (made && circuits_ok(f)) compare_order(f, &r, made);
    mha_logit_lens_free(made);
}
