/* golden_heads_file.c - one file of golden/heads: its tensors by name, each of which is a case. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/heads/golden_heads.h"
#include "output.h"

/* ---- names ---- */

/* The files, the group of their cases unless a part names another, the part that compares them, and their allowed
 * tensors: "x_*" matches any name that begins with "x_". Fast files come first. */
static const struct known {
    const char *name, *group;
    heads_part *part;
    const char *words;
} files[] = {
    {"tinylm-model.safetensors", "tinylm", heads_weights, "is"},
    {"synthetic-patterns.safetensors", "synthetic", heads_synthetic, "maps pattern_scores labels"},
    {"minilm-attention.safetensors", "statistics", heads_statistics,
     "entropy entropy_norm entropy_content confidence confidence_content confidence_nospecial distance "
     "distance_content offset prev_argmax next_argmax self_argmax first_argmax pattern_scores labels "
     "probe_ids attention_* rollout_*"},
    {"layer-backward.safetensors", "layer", heads_layers,
     "x_layer* dout_layer* ctx_layer* dctx_layer* gate_grad_layer* attention_layer*"},
    {"tinylm-golden.safetensors", "tinylm", heads_language,
     "logits loss gate_grad gate gate_batch gradmag_qkv gradmag taylor_elem attention "
     "loss_without_layer* loo_loss loo_pair_loss pattern_scores entropy distance confidence input_ids "
     "labels"},
    {"minilm-diversity.safetensors", "diversity", heads_diversity,
     "cosine cosine_centred js js_clark_sum map_xy map_eigenvalues cluster_merge_height cluster_merge_ids output_cka "
     "output_subspace"},
    {"minilm-pruning.safetensors", "pruning", heads_pruning, "keep_* embedding_* cos_*"},
    {"minilm-gqa.safetensors", "gqa", heads_gqa,
     "embedding_kv* cos_kv* embedding_lowrank_* cos_lowrank_* layer0_head0_k_weight layer0_head0_v_weight "
     "layer0_k_bias layer0_v_bias"},
    {"minilm-importance.safetensors", "importance", heads_importance,
     "embedding loss gradmag_qkv gradmag gradmag_3batches loss_scale20 gradmag_scale20 gate_scale20 "
     "gate_grad gate gate_batch gate_layer_l2 taylor_token taylor_elem jacobian jacobian_probe4 "
     "mean_ctx loo loo_loss loo_mean loo_mean_loss ov_norm qk_norm input_ids attention_mask"},
};
static const size_t file_count = sizeof files / sizeof *files;

heads_part *heads_part_at(size_t n)
{
    return n < file_count ? files[n].part : NULL;
}

static const char entry_words[] = "shape dtype float32_max_abs_error abs_tolerance is";

/* True if the name is one of the words; "x_*" matches any name that begins with "x_". */
static bool is_word(const char *words, const char *name)
{
    for (const char *at = words; *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        const bool open = at[length - 1] == '*';
        if (open ? strncmp(at, name, length - 1) == 0 : strlen(name) == length && strncmp(at, name, length) == 0)
            return true;
        at += length;
    }
    return false;
}

static void check_words(const verify_entry *file, const char *words)
{
    const char *name, *key;
    json_t *tensor, *value;
    json_object_foreach((json_t *)file->object, name, tensor)
    {
        if (!is_word(words, name)) verify_fault(file, "unknown tensor \"%s\" in index.json", cli_shown(name));
        json_object_foreach(tensor, key, value) if (!is_word(entry_words, key))
            verify_fault(file, "\"%s\" in index.json: unknown key \"%s\"", cli_shown(name), cli_shown(key));
    }
}

static const struct known *known_file(const char *name)
{
    for (size_t n = 0; n < file_count; n++)
        if (strcmp(files[n].name, name) == 0) return &files[n];
    return NULL;
}

void heads_check_names(const heads_run *run)
{
    const char *name;
    json_t *file;
    json_object_foreach(json_object_get(run->index, "files"), name, file)
    {
        const verify_entry e = {file, name, run->error};
        const struct known *known = known_file(name);
        if (known)
            check_words(&e, known->words);
        else
            verify_fault(&e, "no file of such results");
    }
}

/* ---- the file ---- */

bool heads_open(heads_file *f, heads_run *run, const char *name)
{
    *f = (heads_file){.run = run, .group = known_file(name)->group};
    f->entry = (verify_entry){json_object_get(json_object_get(run->index, "files"), name), name, run->error};
    if (!f->entry.object || run->error->status != MHA_OK) return false;
    f->seen = json_object();
    return verify_file_open(run->session->ctx, run->folder, &f->entry, name, &f->file) == MHA_OK;
}

bool heads_ok(const heads_file *f)
{
    return f->run->error->status == MHA_OK;
}

bool heads_has(const heads_file *f, const char *tensor)
{
    return verify_has(&f->entry, tensor);
}

/* A listed file must exist and be readable. */
static void check_seen(const heads_file *f)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)f->entry.object, name, value)
    {
        if (strcmp(name, "is") == 0 || json_object_get(f->seen, name)) continue;
        verify_fault(&f->entry, "nothing here compares the tensor \"%s\" of index.json", cli_shown(name));
    }
}

void heads_close(heads_file *f)
{
    if (f->file && heads_ok(f)) check_seen(f);
    heads_drop(f);
}

void heads_drop(heads_file *f)
{
    json_decref(f->seen);
    mha_file_free(f->file);
    verify_release(&f->memory);
    *f = (heads_file){.run = f->run};
}

/* ---- tensors ---- */

/* The file must contain the tensors that the index lists. */
static void check_shape(const heads_file *f, const mha_tensor *t)
{
    const json_t *shape = json_object_get(json_object_get(f->entry.object, t->name), "shape");
    bool same = json_array_size(shape) == (size_t)t->rank;
    for (int n = 0; n < t->rank; n++)
        same = same && json_integer_value(json_array_get(shape, (size_t)n)) == t->shape[n];
    if (!same) verify_fault(&f->entry, "tensor \"%s\" has not the shape that index.json gives it", cli_shown(t->name));
}

static const mha_tensor *find(heads_file *f, const char *tensor, int rank, int64_t *shape)
{
    if (!f->file || !heads_has(f, tensor) || !heads_ok(f)) return NULL;
    if (json_object_set_new(f->seen, tensor, json_true()) != 0) f->run->log->no_memory = true;
    const mha_tensor *t = verify_tensor(&f->entry, f->file, tensor, rank, shape);
    if (t) check_shape(f, t);
    return heads_ok(f) ? t : NULL;
}

const double *heads_want(heads_file *f, const char *tensor, int rank, int64_t *shape)
{
    const mha_tensor *t = find(f, tensor, rank, shape);
    return t ? verify_reals(&f->memory, &f->entry, t) : NULL;
}

int64_t *heads_integers(heads_file *f, const char *tensor, int rank, int64_t *shape)
{
    const mha_tensor *t = find(f, tensor, rank, shape);
    return t ? verify_integers(&f->memory, &f->entry, t) : NULL;
}

void *heads_room(heads_file *f, int64_t count, size_t size)
{
    return verify_alloc(&f->memory, count, size, &f->entry);
}

/* ---- cases ---- */

/* 1e-6 of the largest value. */
static double rounding_of(const double *want, int64_t count)
{
    double most = 0;
    for (int64_t n = 0; n < count; n++)
        most = fmax(most, fabs(want[n]));
    return 1e-6 * most;
}

static double limit_of(const heads_file *f, const char *tensor, heads_limit limit, const double *want, int64_t count)
{
    if (limit == HEADS_EXACT) return 0;
    if (limit == HEADS_ROUNDED) return rounding_of(want, count);
    const verify_entry e = {json_object_get(f->entry.object, tensor), tensor, f->entry.error};
    return verify_real(&e, "abs_tolerance");
}

void heads_case(heads_file *f, const char *group, const char *tensor, const double *want, const double *got,
                int64_t count, heads_limit limit, const mha_error *failed)
{
    verify_case outcome;
    if (!want || !heads_ok(f)) return;
    verify_begin(&outcome, group, tensor);
    if (failed && failed->status != MHA_OK)
        verify_stopped(&outcome, failed);
    else
        verify_compare_reals(&outcome, tensor, got, want, count, limit_of(f, tensor, limit, want, count));
    if (heads_ok(f)) verify_end(f->run->log, &outcome);
}
