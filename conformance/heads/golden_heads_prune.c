/* golden_heads_prune.c - compares selections of heads, and the embeddings after all other heads are removed by gates of
 * 0, removed rows and columns, mean contexts, or refitted weights. */
#include "conformance/heads/golden_heads.h"
#include "output.h"
#include <math.h>
#include <string.h>

typedef struct pruned {
    heads_file *f;
    const mha_model_info *info;
    int64_t heads, size; /* number of heads in all layers; number of elements in all embeddings */
    uint8_t *keep;       /* [heads] 1 = the head is kept */
    float *gates;        /* [layers, count, H] 0 = the head is removed */
    double *got, *bare, *cosine;
} pruned;

/* ---- ways to remove heads ---- */

static void zero_gates(pruned *p, mha_error *failed)
{
    const int64_t each = p->f->run->count * p->info->heads;
    for (int64_t n = 0; n < p->info->layers * each; n++)
        p->gates[n] = p->keep[n / each * p->info->heads + n % p->info->heads];
    heads_embed(p->f->run, p->f->run->model, p->gates, p->got, failed);
}

static void remove_heads(pruned *p, const mha_prune_options *o, double *out, mha_error *failed)
{
    mha_model_edit *edit = NULL;
    mha_model *model = NULL;
    if (mha_prune(p->f->run->model, p->keep, o, &edit, failed) == MHA_OK &&
        mha_model_edit_open(edit, &model, failed) == MHA_OK)
        heads_embed(p->f->run, model, NULL, out, failed);
    mha_model_free(model);
    mha_model_edit_free(edit);
}

/* ---- cases ---- */

static void check_embedding(pruned *p, const char *name, const mha_error *failed)
{
    char tensor[100];
    const heads_run *run = p->f->run;
    snprintf(tensor, sizeof tensor, "embedding_%s", name);
    const double *want = heads_want(p->f, tensor, 2, (int64_t[]){run->count, p->info->hidden});
    heads_case(p->f, "pruning", tensor, want, p->got, p->size, HEADS_NEAR, failed);
}

static void check_cosines(pruned *p, const char *name, const mha_error *failed)
{
    char tensor[100];
    snprintf(tensor, sizeof tensor, "cos_%s", name);
    const double *want = heads_want(p->f, tensor, 1, (int64_t[]){p->f->run->count});
    heads_cosines(p->f->run, p->got, p->cosine);
    heads_case(p->f, "pruning", tensor, want, p->cosine, p->f->run->count, HEADS_NEAR, failed);
}

/* Checks that removing heads and setting their gates to 0 give bitwise identical embeddings. */
static void check_bits(pruned *p, const char *name)
{
    verify_case outcome;
    mha_error failed = {0};
    char title[120];
    snprintf(title, sizeof title, "%s: gates of 0 and removed heads", name);
    verify_begin(&outcome, "same bits", title);
    remove_heads(p, NULL, p->bare, &failed);
    if (failed.status != MHA_OK)
        verify_stopped(&outcome, &failed);
    else
        verify_compare_reals(&outcome, "embedding", p->bare, p->got, p->size, 0);
    verify_end(p->f->run->log, &outcome);
}

/* Compares the embeddings and cosines recorded as FORM_NAME, if any. */
static void check_made_up(pruned *p, const char *form, const char *name, const mha_prune_options *o)
{
    char whole[80], cosine[90];
    mha_error failed = {0};
    snprintf(whole, sizeof whole, "%s_%s", form, name);
    snprintf(cosine, sizeof cosine, "cos_%s", whole);
    if (!heads_has(p->f, cosine)) return;
    remove_heads(p, o, p->got, &failed);
    check_embedding(p, whole, &failed);
    check_cosines(p, whole, &failed);
}

/* Compares all recorded results of keep_NAME. */
static void check_kept(pruned *p, const char *name)
{
    mha_error failed = {0};
    const mha_head_data *data = p->f->run->data;
    const mha_prune_options fill = {.size = sizeof fill, .fill = data}, refit = {.size = sizeof refit, .refit = data};
    zero_gates(p, &failed);
    check_embedding(p, name, &failed);
    check_cosines(p, name, &failed);
    check_bits(p, name);
    check_made_up(p, "meanfill", name, &fill);
    check_made_up(p, "refit", name, &refit);
}

/* ---- selections of heads ---- */

/* Returns the recorded scores of a selection, by its name; for "most" and "loo_global", these are the scores loo. */
static const char *scores_of(const char *name)
{
    return strcmp(name, "most") == 0 || strcmp(name, "loo_global") == 0 ? "loo" : name;
}

static const double *read_scores(pruned *p, const char *name)
{
    heads_file f;
    const double *scores = NULL;
    if (heads_open(&f, p->f->run, "minilm-importance.safetensors")) {
        const mha_tensor *t = mha_file_find(f.file, scores_of(name));
        if (t && t->elements == p->heads) scores = verify_reals(&p->f->memory, &p->f->entry, t);
    }
    heads_drop(&f);
    return scores;
}

static int64_t removed(const double *keep, int64_t heads)
{
    int64_t count = 0;
    for (int64_t n = 0; n < heads; n++)
        count += keep[n] == 0;
    return count;
}

/* Selects heads by the published rules: a ratio per layer, or the same number of heads over all layers. */
static void check_choice(pruned *p, const char *tensor, const char *name, const double *want)
{
    const heads_run *run = p->f->run;
    const bool global = strstr(name, "_global") != NULL, max = strcmp(name, "most") == 0;
    const double *scores = read_scores(p, name);
    const double ratio = json_number_value(json_object_get(run->index, "prune_ratio"));
    const mha_prune_rule rule = {
        .size = sizeof rule, .ratio = ratio, .per_layer = !global, .count = global ? removed(want, p->heads) : 0};
    double *by = heads_room(p->f, p->heads, sizeof *by), *got = heads_room(p->f, p->heads, sizeof *got);
    mha_error failed = {0};
    if (!scores || !by || !got) return;
    for (int64_t n = 0; n < p->heads; n++)
        by[n] = max ? -scores[n] : scores[n];
    if (mha_prune_choose(run->model, by, &rule, p->keep, &failed) == MHA_OK)
        for (int64_t n = 0; n < p->heads; n++)
            got[n] = p->keep[n];
    heads_case(p->f, "choices", tensor, want, got, p->heads, HEADS_EXACT, &failed);
}

static void read_keep(pruned *p, const double *recorded)
{
    for (int64_t n = 0; n < p->heads; n++)
        p->keep[n] = recorded[n] != 0;
}

/* Compares keep_random [samples, layers, H] and the mean cosine of each sample. */
static void check_random(pruned *p)
{
    int64_t shape[3] = {-1, p->info->layers, p->info->heads};
    const double *keep = heads_want(p->f, "keep_random", 3, shape);
    const double *want = heads_want(p->f, "cos_random", 1, shape);
    double *got = want ? heads_room(p->f, shape[0], sizeof *got) : NULL;
    mha_error failed = {0};
    for (int64_t n = 0; keep && got && n < shape[0] && failed.status == MHA_OK; n++) {
        read_keep(p, keep + n * p->heads);
        zero_gates(p, &failed);
        heads_cosines(p->f->run, p->got, p->cosine);
        for (int64_t b = 0; b < p->f->run->count; b++)
            got[n] += p->cosine[b] / (double)p->f->run->count;
    }
    heads_case(p->f, "pruning", "cos_random", want, got, shape[0], HEADS_NEAR, &failed);
}

static void check_all(pruned *p)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)p->f->entry.object, name, value)
    {
        if (strncmp(name, "keep_", 5) != 0 || strcmp(name, "keep_random") == 0) continue;
        const double *keep = heads_want(p->f, name, 2, (int64_t[]){p->info->layers, p->info->heads});
        if (!keep) return;
        check_choice(p, name, name + 5, keep);
        read_keep(p, keep);
        check_kept(p, name + 5);
    }
    check_random(p);
}

void heads_pruning(heads_run *run)
{
    heads_file f;
    if (heads_open(&f, run, "minilm-pruning.safetensors")) {
        const mha_model_info *m = run->info;
        pruned p = {.f = &f, .info = m, .heads = m->layers * m->heads, .size = run->count * m->hidden};
        p.keep = heads_room(&f, p.heads, 1);
        p.gates = heads_room(&f, p.heads * run->count, sizeof *p.gates);
        p.got = heads_room(&f, p.size, sizeof *p.got);
        p.bare = heads_room(&f, p.size, sizeof *p.bare);
        p.cosine = heads_room(&f, run->count, sizeof *p.cosine);
        if (heads_ok(&f)) check_all(&p);
    }
    heads_close(&f);
}
