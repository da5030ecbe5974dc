/* diversity_measure.c - runs the model over the data and accumulates maps and contexts of all heads.
 *
 * Heads of different layers are compared, so the maps of all layers are stored until a pass ends. Texts of a batch run
 * together if their maps fit; a longer text runs alone, in as many passes as its rows need. The sums do not depend on
 * this division: each text is summed in double, in passes that depend on its length only, and texts are added as
 * integers. */
#include "base/arena.h"
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "heads/data/measure_steps.h"
#include "heads/diversity/diversity.h"
#include <stdio.h>
#include <string.h>

static const char WORK[] = "diversity";

enum { HELD_BYTES = 96 << 20 }; /* maximum size of the stored maps [bytes]; at least one row per head is stored */

enum {
    OF_MAPS = 1 << MHA_DIVERSITY_COSINE | 1 << MHA_DIVERSITY_COSINE_CENTRED | 1 << MHA_DIVERSITY_JS |
              1 << MHA_DIVERSITY_JS_CLARK,
    OF_OUTPUTS = MHA__DIVERSITY_OF_OUTPUTS,
    ALL = (1 << MHA_DIVERSITIES) - 1
};

typedef struct run {
    const mha_model *model;
    const mha_head_data *data;
    mha_diversity *d;
    mha_diversity_options options; /* options with defaults set */
    int64_t tokens, done;          /* number of tokens in all texts, and in the texts already processed */
    mha__diversity_tally sums;
    int64_t room;       /* maximum number of stored map elements per head */
    int64_t *before;    /* [texts] number of tokens before each text, in the given order */
    int64_t *wanted;    /* [longest text] rows of the current pass, if a text runs in several passes */
    mha__map_row *rows; /* [tokens of a batch] rows of a pass */
    float *contexts;    /* [tokens of a batch, H D of the widest layer] */
    int64_t *runs;      /* [texts of a batch + 1] rows of each text in `contexts` */
    mha__held_maps held;
    /* the texts of the current pass */
    const int64_t *texts;
    int64_t count, longest;
    int64_t *starts; /* [texts of a batch + 1] */
    mha_status status;
    mha_error failure; /* error of a callback */
} run;

/* ---- one forward pass ---- */

static int on_attention(void *user, int64_t layer, int64_t heads, const float *probs)
{
    const run *r = user;
    (void)heads;
    mha__held_maps_take(&r->held, layer, probs);
    return 0;
}

static int on_activations(void *user, const mha_model_activations *a)
{
    run *r = user;
    r->status = mha__diversity_add_contexts(r->d, &r->sums, a, r->texts, r->count, r->starts, r->contexts, r->runs,
                                            &r->failure);
    return r->status != MHA_OK;
}

/* Returns true if the row is sampled. Sampled rows are evenly spaced over the rows of all texts, independently of the
 * batches. */
static bool chosen(const run *r, int64_t text, int64_t row)
{
    const int64_t at = r->before[r->texts[text]] + row, rows = r->options.max_rows;
    return (at + 1) * rows / r->tokens > at * rows / r->tokens;
}

static void add_row(run *r, int64_t text, int64_t slot, int64_t row)
{
    const bool causal = mha_model_describe(r->model)->causal;
    const int64_t keys = causal ? row + 1 : r->starts[text + 1] - r->starts[text];
    r->rows[r->held.row_count++] = (mha__map_row){text, slot, keys};
    r->held.stride += keys;
}

/* Runs the texts of a pass and observes the map rows `wanted` of a single text; wanted NULL = all rows. */
static mha_status pass(run *r, const mha_model_input *input, const int64_t *wanted, int64_t wanted_count, bool outputs,
                       mha_error *err)
{
    mha_model_output output = {.size = sizeof output, .user = r, .map_rows = wanted, .map_row_count = wanted_count};
    if (r->held.row_count) output.on_attention = on_attention;
    if (outputs && r->sums.gram[0]) output.on_activations = on_activations;
    if (!output.on_attention && !output.on_activations) return MHA_OK;
    r->held.slots = wanted ? wanted_count : r->longest;
    r->held.keys = r->longest;
    const mha_status status = mha_model_forward(r->model, input, &output, err);
    if (r->status != MHA_OK && err) *err = r->failure;
    if (status != MHA_OK) return r->status != MHA_OK ? r->status : status;
    MHA__TRY(mha__held_maps_add(&r->held, &r->sums, err));
    r->held.row_count = r->held.stride = 0;
    return MHA_OK;
}

/* Runs a text whose maps exceed the limit, in several passes. */
static mha_status run_in_passes(run *r, const mha_model_input *input, mha_error *err)
{
    const int64_t max = r->room / r->longest;
    bool first = true;
    int64_t count = 0;
    for (int64_t row = 0; row < r->longest; row++) {
        if (chosen(r, 0, row)) {
            add_row(r, 0, count, row);
            r->wanted[count++] = row;
        }
        if (count < max && row + 1 < r->longest) continue;
        MHA__TRY(mha__progress(r->d->ctx, WORK, r->done + row + 1 - count, r->tokens, err));
        MHA__TRY(pass(r, input, count ? r->wanted : NULL, count, first, err));
        first = false;
        count = 0;
    }
    return MHA_OK;
}

static mha_status run_texts(run *r, const mha_model_input *input, mha_error *err)
{
    const bool maps = r->options.what & OF_MAPS;
    if (maps && r->longest > r->room / r->longest) return run_in_passes(r, input, err);
    for (int64_t b = 0; maps && b < r->count; b++)
        for (int64_t row = 0; row < r->starts[b + 1] - r->starts[b]; row++)
            if (chosen(r, b, row)) add_row(r, b, row, row);
    return pass(r, input, NULL, 0, true, err);
}

/* Returns the number of texts in a batch that run together, starting with text `first`, the longest of them. */
static int64_t together(const run *r, const mha_model_input *batch, int64_t first, int64_t longest)
{
    const int64_t left = batch->batch - first;
    if (!(r->options.what & OF_MAPS)) return left;
    return mha__max64(1, mha__min64(left, r->room / (longest * longest)));
}

static mha_status run_batch(void *user, int64_t number, mha_error *err)
{
    run *r = user;
    mha_model_input batch;
    const int64_t *texts;
    r->done = mha__tokens_before(r->data, number);
    MHA__TRY(mha__head_data_batch(r->data, number, &batch, &texts, err));
    for (int64_t first = 0; first < batch.batch; first += r->count) {
        const int64_t from = batch.starts[first];
        r->longest = batch.starts[first + 1] - from;
        r->count = together(r, &batch, first, r->longest);
        r->texts = texts + first;
        for (int64_t i = 0; i <= r->count; i++)
            r->starts[i] = batch.starts[first + i] - from;
        mha_model_input input = batch;
        input.batch = r->count;
        input.ids += from;
        if (input.type_ids) input.type_ids += from;
        input.starts = r->starts;
        MHA__TRY(run_texts(r, &input, err));
        r->done += r->starts[r->count];
    }
    return MHA_OK;
}

/* ---- memory ---- */

static void lay_out_work(mha__arena *arena, run *r)
{
    const mha_model_info *info = mha_model_describe(r->model);
    const int64_t batch = mha__head_data_batch_tokens(r->data), longest = mha__head_data_longest(r->data);
    const int64_t n = mha_diversity_heads(r->d), texts = mha__head_data_batch_texts(r->data);
    int64_t widest = 0;
    for (int64_t l = 0; l < r->d->layers; l++)
        widest = mha__max64(widest, mha__diversity_width(r->d, l) * info->head_dim);
    r->room = mha__max64(HELD_BYTES / (int64_t)sizeof(float) / n, longest);
    r->before = mha__take(arena, (size_t)mha_head_data_count(r->data), sizeof *r->before);
    r->wanted = mha__take(arena, (size_t)longest, sizeof *r->wanted);
    r->rows = mha__take(arena, (size_t)batch, sizeof *r->rows);
    r->starts = mha__take(arena, (size_t)texts + 1, sizeof *r->starts);
    r->runs = mha__take(arena, (size_t)texts + 1, sizeof *r->runs);
    r->held.starts = mha__take(arena, (size_t)texts + 1, sizeof *r->held.starts);
    if (r->options.what & OF_OUTPUTS)
        r->contexts = mha__take(arena, (size_t)batch, (size_t)widest * sizeof *r->contexts);
    if (!(r->options.what & OF_MAPS)) return;
    const int64_t held = batch > r->room / longest ? r->room : batch * longest; /* at most the maps of one batch */
    r->held.probs = mha__take(arena, (size_t)n, (size_t)held * sizeof *r->held.probs);
}

static mha_status make_work(run *r, void **memory, mha_error *err)
{
    mha__arena arena = {0};
    lay_out_work(&arena, r);
    arena.base = arena.overflow ? NULL : mha__alloc(r->d->ctx, arena.used);
    *memory = arena.base;
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the maps of all heads");
    arena.used = 0;
    lay_out_work(&arena, r);
    r->held.ctx = r->d->ctx;
    r->held.d = r->d;
    r->held.rows = r->rows;
    for (int64_t t = 0, length, all = 0; t < mha_head_data_count(r->data); t++, all += length) {
        mha_head_data_ids(r->data, t, &length);
        r->before[t] = all;
    }
    return MHA_OK;
}

/* ---- public functions ---- */

static mha_status make_result(const mha_model *model, uint32_t what, mha_diversity **out, mha_error *err)
{
    const mha_model_info *info = mha_model_describe(model);
    mha_ctx *ctx = mha_model_ctx(model);
    mha_diversity *d = *out = mha__calloc(ctx, 1, sizeof *d);
    if (!d) return mha__no_memory(err, sizeof *d, "the diversity of heads");
    d->ctx = ctx;
    d->layers = info->layers;
    d->head_dim = info->head_dim;
    d->first = mha__calloc(ctx, (size_t)info->layers + 1, sizeof *d->first);
    if (!d->first) return mha__no_memory(err, ((size_t)info->layers + 1) * sizeof *d->first, "the diversity of heads");
    for (int64_t l = 0; l < info->layers; l++)
        d->first[l + 1] = d->first[l] + info->heads_per_layer[l];
    const size_t n = (size_t)mha_diversity_heads(d);
    bool made = true;
    for (int k = 0; k < MHA_DIVERSITIES; k++) {
        if (!(what & 1U << k)) continue;
        d->value[k] = mha__calloc(ctx, k == MHA_DIVERSITY_UNIQUE ? n : n * n, sizeof(double));
        made = made && d->value[k];
    }
    if (what & 1U << MHA_DIVERSITY_JS) {
        d->map = mha__calloc(ctx, n, 2 * sizeof *d->map);
        d->merges = mha__calloc(ctx, n, sizeof *d->merges);
        made = made && d->map && d->merges;
    }
    return made ? MHA_OK : mha__no_memory(err, n * n * sizeof(double), "the diversity of heads");
}

static mha_status run_all(run *r, mha_error *err)
{
    char options[80];
    void *memory = NULL;
    snprintf(options, sizeof options, "diversity, measures %#x, %lld rows", (unsigned)r->options.what,
             (long long)r->options.max_rows);
    const mha__measure measure = {.model = r->model,
                                  .data = r->data,
                                  .title = WORK,
                                  .options = options,
                                  .state = r->options.state,
                                  .steps = mha__head_data_batches(r->data),
                                  .values = (int64_t *)r->sums.all,
                                  .count = r->sums.count * MHA__FIXED_WORDS,
                                  .user = r,
                                  .run = run_batch,
                                  .spoils = true};
    mha_status status = make_work(r, &memory, err);
    if (status == MHA_OK) status = mha__measure_run(&measure, err);
    mha__free(r->d->ctx, memory);
    return status;
}

static mha_status find_values(const run *r, mha_error *err)
{
    mha__diversity_sums sums;
    void *memory;
    MHA__TRY(mha__diversity_read(r->d, &r->sums, &sums, &memory, err));
    mha_status status = mha__diversity_of_maps(r->d, &sums, err);
    if (status == MHA_OK && r->options.what & (OF_OUTPUTS | 1U << MHA_DIVERSITY_SUBSPACE))
        status = mha__diversity_of_outputs(r->model, r->d, &sums, err);
    mha__free(r->d->ctx, memory);
    return status;
}

static mha_status measure(run *r, mha_error *err)
{
    mha_status status = mha__diversity_tally_create(r->d, r->options.what, &r->sums, err);
    if (status == MHA_OK && r->options.what & (OF_MAPS | OF_OUTPUTS)) status = run_all(r, err);
    if (status == MHA_OK) status = find_values(r, err);
    mha__free(r->d->ctx, r->sums.all);
    mha__free(r->d->ctx, r->sums.text);
    return status;
}

static mha_status check(const mha_model *model, const mha_head_data *data, const mha_diversity_options *options,
                        mha_error *err)
{
    if (!model || !data) return mha__fail(err, MHA_ERR_ARG, "%s must not be NULL", model ? "data" : "model");
    if (options->what & ~(uint32_t)ALL)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_diversity_options: what must be a combination of the bits %#x (got %#x)", (unsigned)ALL,
                         (unsigned)options->what);
    if (options->max_rows < 0)
        return mha__fail(err, MHA_ERR_ARG, "max_rows must be at least 0 (got %lld)", (long long)options->max_rows);
    MHA__TRY(mha__head_data_texts(data, err));
    return mha__head_data_matches(model, data, err);
}

mha_status mha_diversity_measure(const mha_model *model, const mha_head_data *data,
                                 const mha_diversity_options *options, mha_diversity **out, mha_error *err)
{
    mha_diversity_options own;
    if (!out) return mha__fail(err, MHA_ERR_ARG, "out must not be NULL");
    *out = NULL;
    MHA__TRY(mha__options_read(&own, sizeof own, options, "mha_diversity_options", err));
    MHA__TRY(check(model, data, &own, err));
    run r = {.model = model, .data = data, .options = own, .tokens = mha_head_data_tokens(data)};
    if (own.what == 0) r.options.what = ALL;
    if (own.max_rows == 0 || own.max_rows > r.tokens) r.options.max_rows = r.tokens;
    mha_status status = make_result(model, r.options.what, &r.d, err);
    if (status == MHA_OK) {
        r.d->rows = r.options.max_rows;
        status = measure(&r, err);
    }
    if (status == MHA_OK)
        *out = r.d;
    else
        mha_diversity_free(r.d);
    return status;
}
