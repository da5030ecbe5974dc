/* importance_job.c - allocates and frees the memory of one measurement. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "heads/importance/importance.h"
#include <math.h>
#include <string.h>

enum { GROUP = 64 };                                            /* units per group if there is no loss */
enum { TOKENS = 1024, TOKENS_BACK = 512, TOKENS_PAIRS = 1536 }; /* tokens per batch */

/* ---- memory ---- */

static void lay_out(mha__arena *arena, mha__importance_job *s, int64_t texts)
{
    const size_t n = (size_t)texts, total = (size_t)s->total, width = (size_t)s->info->hidden;
    const size_t max = (size_t)mha__packer_room(&s->packer);
    s->text = mha__take(arena, n, sizeof *s->text);
    s->part = mha__take(arena, n, total * sizeof *s->part);
    s->weight = mha__take(arena, n, sizeof *s->weight);
    s->length = mha__take(arena, n, sizeof *s->length);
    s->unit = mha__take(arena, n, width * sizeof *s->unit);
    s->dunit = mha__take(arena, n, width * sizeof *s->dunit);
    s->hidden = mha__take(arena, max, width * sizeof *s->hidden);
    s->gates = mha__take(arena, mha__min64((int64_t)max, texts), total * sizeof *s->gates);
    if (mha__jacobian_of_logits(s)) {
        s->logits = mha__take(arena, n, (size_t)s->info->vocab * sizeof *s->logits);
        s->dlogits = mha__take(arena, n, (size_t)s->info->vocab * sizeof *s->dlogits);
    }
    s->direction = mha__take(arena, (size_t)mha__max64(s->info->hidden, s->info->vocab), sizeof *s->direction);
    for (int form = 0; form < MHA__FORMS; form++)
        s->forms[form] = mha__take(arena, total, sizeof *s->forms[form]);
    s->label_at =
        s->options.labels ? mha__take(arena, (size_t)mha_head_data_count(s->data), sizeof *s->label_at) : NULL;
}

/* Returns the maximum number of tokens per batch. Batches are smaller if there is a backward pass, which requires much
 * memory per token. Pairs use large batches anyway, because a group that fits in one batch runs only once. */
static int64_t tokens_of_batch(const mha__importance_job *s)
{
    if (s->rule->forward) return TOKENS;
    return mha__importance_of_pairs(s) ? TOKENS_PAIRS : TOKENS_BACK;
}

static mha_status make_tally(mha__importance_job *s, mha_error *err)
{
    const int64_t fixed = 1 + 2 * s->total;
    MHA__TRY(mha__tally_create(s->ctx, s->total, MHA__COUNTS + fixed * MHA__FIXED_WORDS, &s->tally, err));
    s->counts = s->tally.more;
    s->loss = (mha__fixed *)(s->counts + MHA__COUNTS);
    s->forms_gate = s->loss + 1;
    s->forms_apart = s->forms_gate + s->total;
    return MHA_OK;
}

static mha_status allocate(mha__importance_job *s, mha_error *err)
{
    /* a last pair that would be alone joins the previous group */
    const int64_t texts = mha__importance_of_pairs(s) ? 2 * (s->per_group + 1) : mha__importance_step_units(s);
    mha__arena arena = {0};
    s->max_texts = texts;
    MHA__TRY(mha__packer_create(s->ctx, s->data, texts, tokens_of_batch(s), &s->packer, err));
    lay_out(&arena, s, texts);
    arena.base = s->memory = arena.overflow ? NULL : mha__alloc(s->ctx, arena.used);
    if (!s->memory)
        return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the scores of a group of texts");
    arena.used = 0;
    lay_out(&arena, s, texts);
    MHA__TRY(make_tally(s, err));
    const mha_model_grads_options how = {
        .size = sizeof how, .no_parameters = !s->rule->parameters, .pack = 1, .attention_only = 1};
    if (s->rule->forward) return MHA_OK;
    return mha_model_grads_create(s->model, &how, &s->grads, err);
}

static void find_labels(mha__importance_job *s)
{
    int64_t at = 0, length = 0;
    if (!s->options.labels) return;
    const bool images = mha__head_data_image_bytes(s->data) > 0;
    for (int64_t t = 0; t < mha_head_data_count(s->data); t++, at += length) {
        mha_head_data_ids(s->data, t, &length);
        if (images) length = 1;
        s->label_at[t] = at;
    }
    s->packer.labeled = s->options.labels;
    s->packer.label_at = s->label_at;
}

/* ---- progress, opening and closing ---- */

mha_status mha__importance_step(mha__importance_job *s, const mha__packed *batch, mha_error *err)
{
    s->done_here += batch->input.batch;
    return mha__progress(s->ctx, "importance", s->done + s->done_here, mha_head_data_count(s->data), err);
}

mha_status mha__importance_open(mha__importance_job *s, const mha_model *model, const mha_head_data *data,
                                const mha_importance_options *options, mha_error *err)
{
    const mha_model_info *info = mha_model_describe(model);
    *s = (mha__importance_job){.ctx = mha_model_ctx(model),
                               .model = model,
                               .info = info,
                               .data = data,
                               .rule = &mha__importance_rules[options->by],
                               .options = *options,
                               .sets = mha__head_sets_of(model)};
    s->total = s->sets.total;
    s->units = mha_head_data_count(data) / (mha__importance_of_pairs(s) ? 2 : 1);
    s->per_group = !s->rule->loss ? GROUP : options->batch_texts ? options->batch_texts : s->units;
    s->per_group = mha__min64(s->per_group, s->units);
    MHA__TRY(allocate(s, err));
    find_labels(s);
    return mha__importance_check_terms(s, err);
}

void mha__importance_close(mha__importance_job *s)
{
    mha_model_grads_free(s->grads);
    mha__tally_free(s->ctx, &s->tally);
    mha__free(s->ctx, s->means);
    mha__free(s->ctx, s->memory);
    mha__packer_free(s->ctx, &s->packer);
}
