/* golden_heads_gqa.c - compares embeddings of regrouped models, whose key/value heads are merged by mean or in closed
 * form. */
#include "conformance/heads/golden_heads.h"
#include "mha/regroup.h"
#include <stdlib.h>
#include <string.h>

/* Reads the regrouping options from a name such as "kv4" or "lowrank_k6_v12". Returns false for an unknown name. */
static bool options_of(const heads_run *run, const char *name, mha_regroup_options *o)
{
    int keys = 0, values = 0, end = 0;
    *o = (mha_regroup_options){.size = sizeof *o, .method = MHA_REGROUP_MEAN};
    if (sscanf(name, "kv%d%n", &keys, &end) == 1 && !name[end]) {
        o->key_heads = o->value_heads = keys;
        return true;
    }
    *o = (mha_regroup_options){.size = sizeof *o,
                               .method = MHA_REGROUP_CLOSED,
                               .fit = run->data,
                               .contiguous = 1,
                               .uncentered = 1,
                               .ridge = -1};
    if (sscanf(name, "lowrank_k%d_v%d%n", &keys, &values, &end) != 2 || name[end]) return false;
    o->key_heads = keys, o->value_heads = values;
    return true;
}

static void embed(const heads_run *run, const mha_regroup_options *o, double *out, mha_error *failed)
{
    mha_model_edit *edit = NULL;
    mha_model *model = NULL;
    if (mha_regroup(run->model, o, &edit, failed) == MHA_OK && mha_model_edit_open(edit, &model, failed) == MHA_OK)
        heads_embed(run, model, NULL, out, failed);
    mha_model_free(model);
    mha_model_edit_free(edit);
}

/* Compares the results of one regrouped model: cos_NAME, and embedding_NAME if recorded. */
static void check_model(heads_file *f, const char *cosine, const char *name)
{
    const heads_run *run = f->run;
    const int64_t size = run->count * run->info->hidden;
    char embedding[100];
    mha_error failed = {0};
    mha_regroup_options o;
    double *got = heads_room(f, size + run->count, sizeof *got);
    if (!got || !options_of(run, name, &o)) return;
    embed(run, &o, got, &failed);
    snprintf(embedding, sizeof embedding, "embedding_%s", name);
    const double *want = heads_want(f, embedding, 2, (int64_t[]){run->count, run->info->hidden});
    heads_case(f, "gqa", embedding, want, got, size, HEADS_NEAR, &failed);
    want = heads_want(f, cosine, 1, (int64_t[]){run->count});
    heads_cosines(run, got, got + size);
    heads_case(f, "gqa", cosine, want, got + size, run->count, HEADS_NEAR, &failed);
}

/* ---- merged weights ---- */

/* Weights of layer 0 after merging to 4 key/value heads by mean: `tensor` in the golden file, `name` in the BERT
 * checkpoint. */
static const struct part {
    const char *tensor, *name;
} parts[] = {
    {"layer0_head0_k_weight", "attention.self.key.weight"},
    {"layer0_head0_v_weight", "attention.self.value.weight"},
    {"layer0_k_bias", "attention.self.key.bias"},
    {"layer0_v_bias", "attention.self.value.bias"},
};
enum { PARTS = sizeof parts / sizeof *parts, KEPT = 4 };

static const mha_named_tensor *find(const mha_model_edit *edit, const char *name)
{
    char end[80];
    int64_t count = 0;
    const mha_named_tensor *list = edit ? mha_model_edit_tensors(edit, &count) : NULL;
    snprintf(end, sizeof end, "layer.0.%s", name);
    for (int64_t n = 0; n < count; n++) {
        const size_t length = strlen(list[n].name), tail = strlen(end);
        if (length >= tail && strcmp(list[n].name + length - tail, end) == 0) return &list[n];
    }
    return NULL;
}

/* Compares the rows of the first head in a weight, or a whole bias. */
static void check_part(heads_file *f, const struct part *p, const mha_model_edit *edit, const mha_error *failed)
{
    const int64_t D = f->run->info->head_dim, E = f->run->info->hidden;
    const bool weight = strstr(p->name, "weight") != NULL;
    const int64_t count = weight ? D * E : KEPT * D;
    const double *want = heads_want(f, p->tensor, 2, weight ? (int64_t[]){D, E} : (int64_t[]){KEPT, D});
    const mha_named_tensor *t = find(edit, p->name);
    double *got = want ? heads_room(f, count, sizeof *got) : NULL;
    if (got && !t && failed->status == MHA_OK)
        verify_fault(&f->entry, "\"%s\" must match the model's weights", p->tensor);
    for (int64_t n = 0; got && t && n < count; n++)
        got[n] = (double)((const float *)t->data)[n];
    heads_case(f, "gqa", p->tensor, want, got, count, HEADS_ROUNDED, failed);
}

static void check_weights(heads_file *f)
{
    mha_error failed = {0};
    mha_model_edit *edit = NULL;
    const mha_regroup_options o = {
        .size = sizeof o, .method = MHA_REGROUP_MEAN, .key_heads = KEPT, .value_heads = KEPT};
    mha_regroup(f->run->model, &o, &edit, &failed);
    for (int n = 0; n < PARTS; n++)
        if (heads_ok(f)) check_part(f, &parts[n], edit, &failed);
    mha_model_edit_free(edit);
}

void heads_gqa(heads_run *run)
{
    heads_file f;
    const char *name;
    json_t *value;
    if (heads_open(&f, run, "minilm-gqa.safetensors")) {
        json_object_foreach((json_t *)f.entry.object, name, value)
        {
            if (strncmp(name, "cos_", 4) == 0) check_model(&f, name, name + 4);
        }
        check_weights(&f);
    }
    heads_close(&f);
}
