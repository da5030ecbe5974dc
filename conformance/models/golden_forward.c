/* golden_forward.c - compares one forward pass of a model with its golden results. */
#include "conformance/models/golden_model.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct forward_case {
    const verify_entry *entry;
    const verify_names *names;
    const mha_file *file;
    const mha_model_info *info;
    verify_case *outcome;
    verify_memory memory;
    int64_t B, L;
    int64_t *ids, *types, *mask, *positions; /* recorded inputs; NULL if missing (ids are required) */
    mha_model_input input;
    float *last, *pooled, *logits;
    const double *hidden, *maps; /* recorded hidden states and maps; NULL if missing */
    int64_t map_heads, hidden_calls, map_calls;
} forward_case;

/* ---- inputs and recorded results ---- */

/* Returns the elements of an optional tensor; NULL if it is missing. */
static const double *optional(forward_case *f, const char *name, int rank, int64_t *shape)
{
    if (!name || !mha_file_find(f->file, name)) return NULL;
    return verify_reals(&f->memory, f->entry, verify_tensor(f->entry, f->file, name, rank, shape));
}

/* Reads `name` as [B, L], or as [L] for a single sequence. The first call sets B and L. */
static int64_t *tokens(forward_case *f, const char *name)
{
    if (!name || !mha_file_find(f->file, name)) return NULL;
    int rank = mha_file_find(f->file, name)->rank;
    int64_t one[1] = {f->L}, many[2] = {f->B, f->L};
    if (rank == 1 && f->B < 0) f->B = 1;
    const mha_tensor *tensor = verify_tensor(f->entry, f->file, name, rank == 1 ? 1 : 2, rank == 1 ? one : many);
    if (tensor && rank == 2) f->B = many[0];
    if (tensor) f->L = rank == 1 ? one[0] : many[1];
    if (tensor && tensor->elements != f->B * f->L)
        verify_fault(f->entry, "tensor \"%s\" must have the batch size of the token ids", name);
    return verify_integers(&f->memory, f->entry, tensor);
}

static int32_t *narrow(forward_case *f, const int64_t *from)
{
    int32_t *to = from ? verify_alloc(&f->memory, f->B * f->L, sizeof *to, f->entry) : NULL;
    for (int64_t n = 0; to && n < f->B * f->L; n++) {
        if (from[n] != (int32_t)from[n])
            verify_fault(f->entry, "token id must be a 32-bit integer (got %lld)", (long long)from[n]);
        to[n] = (int32_t)from[n];
    }
    return to;
}

static void read_input(forward_case *f)
{
    f->B = f->L = -1;
    f->ids = tokens(f, f->names->ids);
    if (!f->ids) verify_fault(f->entry, "the file must have a tensor \"%s\"", f->names->ids);
    f->types = tokens(f, f->names->types);
    f->mask = tokens(f, f->names->mask);
    f->positions = tokens(f, f->names->positions);
    if (f->entry->error->status != MHA_OK) return;
    f->input = (mha_model_input){.size = sizeof f->input, .batch = f->B, .length = f->L};
    f->input.ids = narrow(f, f->ids);
    f->input.type_ids = narrow(f, f->types);
    f->input.positions = narrow(f, f->positions);
    uint8_t *mask = f->mask ? verify_alloc(&f->memory, f->B * f->L, 1, f->entry) : NULL;
    for (int64_t n = 0; mask && n < f->B * f->L; n++)
        mask[n] = f->mask[n] != 0;
    f->input.mask = mask;
}

static void read_record(forward_case *f)
{
    const mha_model_info *m = f->info;
    int64_t maps[4] = {m->layers, -1, f->L, f->L};
    f->hidden = optional(f, f->names->hidden, 3, (int64_t[]){m->layers + 1, f->L, m->hidden});
    f->maps = optional(f, f->names->maps, 4, maps);
    f->map_heads = maps[1];
    if (f->B != 1 && (f->hidden || f->maps))
        verify_fault(f->entry, "hidden states and maps must be recorded for one sequence");
}

/* ---- forward pass ---- */

static bool real_token(const forward_case *f, int64_t row)
{
    return !f->mask || f->mask[row] != 0;
}

/* Compares all rows except padding. `limit_of` names the tensor whose tolerance applies. */
static void compare_rows(const forward_case *f, const char *name, const char *limit_of, int64_t width, const float *got,
                         const double *want)
{
    const double limit = verify_limit(f->entry, limit_of, f->names->hidden_limit);
    for (int64_t row = 0; row < f->B * f->L; row++)
        if (real_token(f, row)) verify_compare(f->outcome, name, got + row * width, want + row * width, width, limit);
}

/* Compares hidden states that are recorded in a tensor per entry. OPT's last entry is recorded after its map to the
 * narrower output head, which is part of the head here; its logits are compared. */
static int compare_entry(forward_case *f, int64_t entry, const float *x)
{
    char name[64];
    snprintf(name, sizeof name, "%s/%lld", f->names->hidden, (long long)entry);
    const mha_tensor *t = mha_file_find(f->file, name);
    const bool narrow = entry == f->info->layers && t && t->rank == 2 && t->shape[1] < f->info->hidden;
    if (!t || narrow) return 0;
    const double *want = optional(f, name, 2, (int64_t[]){f->L, f->info->hidden});
    if (want) compare_rows(f, name, name, f->info->hidden, x, want);
    return 0;
}

static int on_hidden(void *user, int64_t entry, const float *x)
{
    forward_case *f = user;
    if (entry < 0 || entry > f->info->layers) return 1;
    f->hidden_calls++;
    if (!f->hidden) return compare_entry(f, entry, x);
    compare_rows(f, f->names->hidden, f->names->hidden, f->info->hidden, x, f->hidden + entry * f->L * f->info->hidden);
    return 0;
}

static int on_attention(void *user, int64_t layer, int64_t heads, const float *probs)
{
    forward_case *f = user;
    if (layer < 0 || layer >= f->info->layers || heads != f->map_heads) return 1;
    f->map_calls++;
    int64_t count = heads * f->L * f->L;
    const double limit = verify_limit(f->entry, f->names->maps, f->names->map_limit);
    verify_compare(f->outcome, f->names->maps, probs, f->maps + layer * count, count, limit);
    return 0;
}

static bool has_entries(const forward_case *f)
{
    char name[64];
    if (!f->names->hidden) return false;
    snprintf(name, sizeof name, "%s/0", f->names->hidden);
    return mha_file_find(f->file, name) != NULL;
}

static bool run(forward_case *f, const mha_model *model)
{
    int64_t E = f->info->hidden;
    bool pooled = f->names->pooled && mha_file_find(f->file, f->names->pooled);
    bool logits = f->names->logits && mha_file_find(f->file, f->names->logits);
    f->last = verify_alloc(&f->memory, f->B * f->L * E, sizeof(float), f->entry);
    f->pooled = pooled ? verify_alloc(&f->memory, f->B * E, sizeof(float), f->entry) : NULL;
    if (logits)
        f->logits = verify_alloc(&f->memory, f->B * f->L * (f->info->logit_width > 0 ? f->info->logit_width : 1),
                                 sizeof(float), f->entry);
    if (f->entry->error->status != MHA_OK) return false;
    mha_model_output output = {.size = sizeof output,
                               .last_hidden = f->last,
                               .pooled = f->pooled,
                               .logits = f->logits,
                               .on_hidden = f->hidden || has_entries(f) ? on_hidden : NULL,
                               .on_attention = f->maps ? on_attention : NULL,
                               .user = f};
    mha_error error = {0};
    if (mha_model_forward(model, &f->input, &output, &error) != MHA_OK) {
        verify_stopped(f->outcome, &error);
        return false;
    }
    /* A case must fail if the pass returns fewer hidden states or maps than were recorded. */
    if (f->hidden) verify_measured(f->outcome, f->names->hidden, (double)(f->info->layers + 1 - f->hidden_calls), 0);
    if (f->maps) verify_measured(f->outcome, f->names->maps, (double)(f->info->layers - f->map_calls), 0);
    return true;
}

/* ---- results ---- */

/* Computes the L2-normalized mean over tokens without padding. */
static void mean_of(const forward_case *f, int64_t b, float *out)
{
    int64_t E = f->info->hidden;
    double square = 0;
    for (int64_t d = 0; d < E; d++) {
        double sum = 0;
        int64_t count = 0;
        for (int64_t i = b * f->L; i < (b + 1) * f->L; i++) {
            if (!real_token(f, i)) continue;
            sum += (double)f->last[i * E + d];
            count++;
        }
        out[d] = (float)(count ? sum / (double)count : 0);
        square += (double)out[d] * (double)out[d];
    }
    for (int64_t d = 0; d < E && square > 0; d++)
        out[d] = (float)((double)out[d] / sqrt(square));
}

/* Compares an optional tensor [(B,) L, width]. */
static void compare_tensor(forward_case *f, const char *name, const char *limit_of, int64_t width, const float *got)
{
    int64_t many[3] = {f->B, f->L, width}, one[2] = {f->L, width};
    const mha_tensor *t = name ? mha_file_find(f->file, name) : NULL;
    const double *want = t && t->rank == 3 ? optional(f, name, 3, many) : f->B == 1 ? optional(f, name, 2, one) : NULL;
    if (want) compare_rows(f, name, limit_of, width, got, want);
}

/* Compares a tensor [(B,) L]. */
static void compare_scalars(forward_case *f, const char *name, const char *limit_of, const float *got)
{
    int64_t many[2] = {f->B, f->L}, one[1] = {f->L};
    const mha_tensor *t = mha_file_find(f->file, name);
    const double *want = t && t->rank == 2 ? optional(f, name, 2, many) : f->B == 1 ? optional(f, name, 1, one) : NULL;
    if (want) compare_rows(f, name, limit_of, 1, got, want);
}

/* Compares the logits with the exact logits if recorded, else with the logits of the same precision. */
static void compare_logits(forward_case *f)
{
    const char *exact = f->names->exact_logits, *name = f->names->logits;
    const bool has_exact = exact && mha_file_find(f->file, exact);
    if (f->logits && f->info->logit_width == 1)
        compare_scalars(f, has_exact ? exact : name, name, f->logits);
    else if (f->logits)
        compare_tensor(f, has_exact ? exact : name, name, f->info->vocab, f->logits);
}

static void compare_states(forward_case *f)
{
    const int64_t E = f->info->hidden;
    const char *pooled = f->names->pooled;
    compare_tensor(f, f->names->last, f->names->last, E, f->last);
    compare_logits(f);
    if (!f->pooled) return;
    const double *want = optional(f, pooled, 1, (int64_t[]){f->B * E});
    const double limit = verify_limit(f->entry, pooled, f->names->hidden_limit);
    if (want) verify_compare(f->outcome, pooled, f->pooled, want, f->B * E, limit);
}

/* Checks that mha_model_embed gives the recorded embedding. */
static void compare_embed(forward_case *f, const mha_model *model, const json_t *text, const char *name,
                          const double *want, float *room)
{
    const char *string = json_string_value(text);
    mha_error error = {0};
    if (!string || strlen(string) != json_string_length(text))
        return; /* not a string (a pair), or a string that contains NUL */
    if (mha_model_embed(model, &string, 1, NULL, room, &error) != MHA_OK)
        verify_stopped(f->outcome, &error);
    else
        verify_compare(f->outcome, name, room, want, f->info->hidden, f->names->embedding_limit);
}

static void compare_embeddings(forward_case *f, const mha_model *model, const json_t *text)
{
    const char *name = f->names->embedding;
    if (!name || !mha_file_find(f->file, name)) name = f->names->embedding_alt;
    const mha_tensor *tensor = name ? mha_file_find(f->file, name) : NULL;
    int64_t E = f->info->hidden, one[1] = {E}, many[2] = {f->B, E};
    const double *want = tensor ? optional(f, name, tensor->rank == 2 ? 2 : 1, tensor->rank == 2 ? many : one) : NULL;
    float *mean = want ? verify_alloc(&f->memory, E, sizeof *mean, f->entry) : NULL;
    if (!mean) return;
    for (int64_t b = 0; b < f->B; b++) {
        mean_of(f, b, mean);
        verify_compare(f->outcome, name, mean, want + b * E, E, f->names->embedding_limit);
    }
    if (text) compare_embed(f, model, text, name, want, mean);
}

void verify_forward(const verify_entry *e, const mha_file *file, const verify_names *names, const mha_model *model,
                    const json_t *text, verify_case *outcome)
{
    forward_case f = {.entry = e, .names = names, .file = file, .info = mha_model_describe(model), .outcome = outcome};
    read_input(&f);
    if (e->error->status == MHA_OK) read_record(&f);
    if (e->error->status == MHA_OK && text)
        verify_ids(outcome, mha_model_tokenizer(model), f.info->max_positions, text, f.ids, f.types, f.L);
    if (e->error->status == MHA_OK && !outcome->broken && !outcome->refused && run(&f, model)) {
        compare_states(&f);
        compare_embeddings(&f, model, text);
    }
    verify_release(&f.memory);
}
