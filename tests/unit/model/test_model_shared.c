/* test_model_shared.c - tests checkpoints with different numbers of key heads and value heads ("mha.kv_heads"), which
 * the config keys of the family cannot express.
 *
 * The reference is a checkpoint in which the rows of each key or value head are repeated for every query head that uses
 * it. */
#include "mha/model_grads.h"
#include "mha/model_save.h"
#include "support/check.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 64, L = 13 };

/* A checkpoint and the location of its key and value weights: two tensors, or one tensor for both (fused), stored as
 * [inputs, outputs]. */
typedef struct family {
    const char *folder, *key, *value; /* key, value: name formats of the tensors of a layer */
    bool fused;
    int heads, kv_heads, head_dim, hidden, vocab;
    int keys, values; /* the number of key heads and value heads that remain */
    bool bias;
} family;

static const family families[] = {
    {"models/bert-mlm-tiny", "bert.encoder.layer.%d.attention.self.key", "bert.encoder.layer.%d.attention.self.value",
     false, 6, 6, 8, 48, 520, 2, 3, true},
    {"models/bert-mlm-tiny", "bert.encoder.layer.%d.attention.self.key", "bert.encoder.layer.%d.attention.self.value",
     false, 6, 6, 8, 48, 520, 6, 1, true},
    {"models/bert-mlm-tiny", "bert.encoder.layer.%d.attention.self.key", "bert.encoder.layer.%d.attention.self.value",
     false, 6, 6, 8, 48, 520, 3, 3, true},
    {"families/gpt2", "transformer.h.%d.attn.c_attn", NULL, true, 4, 4, 8, 32, 64, 1, 2, true},
    {"families/gpt2", "transformer.h.%d.attn.c_attn", NULL, true, 4, 4, 8, 32, 64, 2, 2, true},
    {"families/llama", "model.layers.%d.self_attn.k_proj", "model.layers.%d.self_attn.v_proj", false, 4, 2, 8, 32, 64,
     1, 2, true},
    {"families/qwen3", "model.layers.%d.self_attn.k_proj", "model.layers.%d.self_attn.v_proj", false, 4, 2, 16, 32, 64,
     2, 1, false},
    {"families/gemma2", "model.layers.%d.self_attn.k_proj", "model.layers.%d.self_attn.v_proj", false, 4, 2, 16, 32, 64,
     1, 2, false},
};
enum { LAYERS = 2 };

/* ---- a checkpoint with shared heads and its reference with repeated heads ---- */

/* Writes the rows of `copies` heads to `rows`: `count` of the `all` stored heads, each repeated copies / count times.
 * `first` is the first row of these heads in the tensor. Returns the number of rows. */
static int list_rows(const family *f, int first, int all, int count, int copies, int *rows)
{
    int n = 0;
    for (int c = 0; c < copies; c++)
        for (int i = 0; i < f->head_dim; i++)
            rows[n++] = first + c * count / copies * all / count * f->head_dim + i;
    return n;
}

/* Stores in `rows` the row indices of the fused tensor if there is one, otherwise of the value tensor (`values` true)
 * or the key tensor. `wide`: indices of the reference's rows, in which heads are repeated. Returns the number of
 * rows. */
static int rows_of(const family *f, bool values, bool wide, int *rows)
{
    const int width = f->heads * f->head_dim, kv = f->kv_heads * f->head_dim;
    const int count = values ? f->values : f->keys;
    int n = 0;
    for (; f->fused && n < width; n++)
        rows[n] = n;
    n += list_rows(f, f->fused ? width : 0, f->kv_heads, count, wide ? f->heads : count, rows + n);
    if (f->fused) n += list_rows(f, width + kv, f->kv_heads, f->values, wide ? f->heads : f->values, rows + n);
    return n;
}

/* Returns selected rows of a tensor of the file, in the storage order of the tensor. */
static mha_named_tensor pick(const family *f, const mha_file *file, const char *name, const int *rows, int count)
{
    float *all = case_floats(file, name);
    const mha_tensor *t = mha_file_find(file, name);
    mha_named_tensor out = {.name = strdup(name), .dtype = MHA_F32, .rank = t->rank};
    memcpy(out.shape, t->shape, (size_t)t->rank * sizeof *out.shape);
    const int64_t columns = t->rank == 1 ? 1 : f->hidden, stored = t->shape[f->fused && t->rank == 2 ? 1 : 0];
    out.shape[f->fused && t->rank == 2 ? 1 : 0] = count;
    float *some = out.data = malloc((size_t)(count * columns) * sizeof *some);
    for (int r = 0; r < count; r++)
        for (int64_t c = 0; c < columns; c++)
            if (f->fused && t->rank == 2)
                some[c * count + r] = all[c * stored + rows[r]];
            else
                some[r * columns + c] = all[rows[r] * columns + c];
    free(all);
    return out;
}

static int pick_all(const family *f, const mha_file *file, bool wide, mha_named_tensor *out)
{
    int count = 0, rows[512];
    for (int layer = 0; layer < LAYERS; layer++)
        for (int values = 0; values < (f->fused ? 1 : 2); values++)
            for (int bias = 0; bias < (f->bias ? 2 : 1); bias++) {
                char stem[128], name[160];
                const int n = rows_of(f, values, wide, rows);
                snprintf(stem, sizeof stem, values ? f->value : f->key, layer);
                snprintf(name, sizeof name, "%s.%s", stem, bias ? "bias" : "weight");
                out[count++] = pick(f, file, name, rows, n);
            }
    return count;
}

static char *config_of(const family *f, const mha_model *model, bool wide)
{
    json_t *config = json_loads(mha_model_config_json(model), 0, NULL);
    if (wide && f->kv_heads < f->heads) json_object_set_new(config, "num_key_value_heads", json_integer(f->heads));
    if (!wide)
        json_object_set_new(config, "mha.kv_heads", json_pack("{s:i, s:i}", "keys", f->keys, "values", f->values));
    char *text = json_dumps(config, JSON_INDENT(1));
    json_decref(config);
    return text;
}

/* Saves the model with shared heads or, if `wide` is true, its reference, and opens it. The mapped file remains
 * readable after it is removed. */
static mha_model *make(const family *f, bool wide)
{
    char path[256];
    snprintf(path, sizeof path, "%s/model.safetensors", f->folder);
    mha_file *file = case_file(path);
    mha_named_tensor tensors[TENSORS];
    mha_model *model = case_open(NULL, f->folder);
    const int count = pick_all(f, file, wide, tensors);
    char *config = config_of(f, model, wide);
    static const char *folder;
    if (!folder) folder = files_folder();
    const mha_model_save_options save = {
        .size = sizeof save, .overwrite = 1, .tensors = tensors, .count = count, .config_json = config};
    mha_error err = {0};
    if (mha_model_save(model, folder, &save, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_model_free(model);
    model = case_open(NULL, folder);
    files_remove(folder);
    for (int n = 0; n < count; n++) {
        free((char *)(uintptr_t)tensors[n].name);
        free(tensors[n].data);
    }
    free(config);
    mha_file_free(file);
    return model;
}

/* ---- comparison of the two models ---- */

typedef struct said {
    mha_model_grads *grads;
    float hidden[L * 48], dgates[LAYERS * 6];
} said;

static void ids_of(const family *f, int32_t *ids)
{
    for (int i = 0; i < L; i++)
        ids[i] = (7 * i + 3) % f->vocab;
}

static said *say(const family *f, const mha_model *model)
{
    said *s = calloc(1, sizeof *s);
    int32_t ids[L];
    float some[L * 48], gates[LAYERS * 6], again[L * 48];
    ids_of(f, ids);
    for (int n = 0; n < L * f->hidden; n++)
        some[n] = (float)(n % 7 - 3);
    for (int n = 0; n < LAYERS * f->heads; n++)
        gates[n] = 1 - 0.1F * (float)n;
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids, .gates = gates};
    const mha_model_output output = {.size = sizeof output, .last_hidden = s->hidden};
    const mha_model_output plain = {.size = sizeof plain, .last_hidden = again};
    const mha_model_gradient gradient = {.size = sizeof gradient, .last_hidden = some, .gates = s->dgates};
    assert_int_equal(mha_model_grads_create(model, NULL, &s->grads, NULL), MHA_OK);
    assert_int_equal(mha_model_grads_forward(s->grads, &input, &output, NULL), MHA_OK);
    assert_int_equal(mha_model_grads_backward(s->grads, &gradient, NULL), MHA_OK);
    assert_int_equal(mha_model_forward(model, &input, &plain, NULL), MHA_OK);
    assert_memory_equal(s->hidden, again, (size_t)(L * f->hidden) * sizeof *again);
    return s;
}

/* Adds the gradients of a tensor with repeated heads to `sum`, which has the shape of the tensor with shared heads. */
static void sum_copies(const family *f, const mha_named_tensor *wide, bool values, const mha_named_tensor *narrow,
                       float *sum)
{
    int from[512], to[512];
    const int n = rows_of(f, values, true, from), m = rows_of(f, values, false, to);
    const bool across = f->fused && wide->rank == 2;
    const int64_t columns = wide->rank == 1 ? 1 : f->hidden;
    assert_int_equal(narrow->shape[across ? 1 : 0], m);
    for (int r = 0; r < n; r++)
        for (int t = 0; t < m; t++)
            for (int64_t c = 0; from[r] == to[t] && c < columns; c++)
                sum[across ? c * m + t : t * columns + c] +=
                    ((const float *)wide->data)[across ? c * n + r : r * columns + c];
}

static double largest(const float *x, int64_t count)
{
    double max = 0;
    for (int64_t n = 0; n < count; n++)
        if (fabs(x[n]) > max) max = fabs(x[n]);
    return max;
}

static void compare_gradients(const family *f, const said *narrow, const said *wide)
{
    int64_t count = 0, summed = 0;
    const mha_named_tensor *a = mha_model_grads_list(narrow->grads, &count);
    const mha_named_tensor *b = mha_model_grads_list(wide->grads, &count);
    for (int64_t n = 0; n < count; n++) {
        assert_string_equal(a[n].name, b[n].name);
        const bool key = strstr(a[n].name, f->fused ? ".c_attn." : strstr(f->key, "key") ? ".key." : ".k_proj.");
        const bool value = !f->fused && strstr(a[n].name, strstr(f->key, "key") ? ".value." : ".v_proj.");
        float *sum = calloc((size_t)case_elements(&a[n]), sizeof *sum);
        if (key || value) {
            sum_copies(f, &b[n], value, &a[n], sum);
            summed++;
        } else {
            memcpy(sum, b[n].data, (size_t)case_elements(&a[n]) * sizeof *sum);
        }
        case_near(a[n].name, a[n].data, sum, case_elements(&a[n]), 1e-5 * largest(sum, case_elements(&a[n])) + 1e-4);
        free(sum);
    }
    assert_int_equal(summed, LAYERS * (f->fused ? 1 : 2) * (f->bias ? 2 : 1));
}

static void test_repeated_rows_are_equivalent(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof families / sizeof *families; n++) {
        const family *f = &families[n];
        mha_model *narrow = make(f, false), *wide = make(f, true);
        const mha_model_info *info = mha_model_describe(narrow);
        assert_int_equal(info->key_heads_per_layer[1], f->keys);
        assert_int_equal(info->value_heads_per_layer[1], f->values);
        assert_int_equal(info->heads_per_layer[1], f->heads);
        assert_true(info->parameters < mha_model_describe(wide)->parameters);
        said *a = say(f, narrow), *b = say(f, wide);
        case_near(f->folder, a->hidden, b->hidden, L * f->hidden, 2e-5);
        case_near("gates", a->dgates, b->dgates, LAYERS * f->heads,
                  1e-5 * largest(b->dgates, LAYERS * f->heads) + 1e-4);
        compare_gradients(f, a, b);
        mha_model_grads_free(a->grads);
        mha_model_grads_free(b->grads);
        free(a);
        free(b);
        mha_model_free(narrow);
        mha_model_free(wide);
    }
}

/* ---- KV cache ---- */

/* A text passed in pieces with a cache must have hidden states bitwise identical to those of one pass.
 * kv_bytes_per_token must equal the size of the cache per token. */
static void test_cache(void **state)
{
    (void)state;
    static const int64_t cut[] = {0, 5, 6, L};
    for (size_t n = 0; n < sizeof families / sizeof *families; n++) {
        const family *f = &families[n];
        if (strstr(f->folder, "bert")) continue;
        mha_model *model = make(f, false);
        mha_model_cache *cache = NULL;
        const mha_model_cache_options options = {.size = sizeof options, .tokens = 128, .page_size = 128};
        int32_t ids[L];
        float whole[L * 48], pieces[L * 48];
        ids_of(f, ids);
        mha_model_input input = {.size = sizeof input, .batch = 1, .length = L, .ids = ids};
        mha_model_output output = {.size = sizeof output, .last_hidden = whole};
        assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
        assert_int_equal(mha_model_cache_create(model, &options, &cache, NULL), MHA_OK);
        input.cache = cache;
        for (int i = 0; i < 3; i++) {
            input.ids = ids + cut[i];
            input.length = cut[i + 1] - cut[i];
            output.last_hidden = pieces + cut[i] * f->hidden;
            assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
        }
        assert_memory_equal(whole, pieces, (size_t)(L * f->hidden) * sizeof *whole);
        const int64_t max = f->keys % f->values ? f->keys * f->values : f->keys;
        const int64_t copies = f->values % f->keys ? max : f->values;
        assert_int_equal(mha_model_describe(model)->kv_bytes_per_token, LAYERS * 2 * copies * f->head_dim * 4);
        mha_model_cache_free(cache);
        mha_model_free(model);
    }
}

/* ---- error messages ---- */

static void refused_of(const char *folder, int original, const char *heads, const char *shared, const char *part)
{
    mha_model *model = NULL;
    mha_error err = {0};
    json_t *config = json_load_file(files_path(MHA_TEST_DATA "/models/bert-mlm-tiny", "config.json"), 0, NULL);
    if (heads) json_object_set_new(config, "mha.heads", json_loads(heads, 0, NULL));
    if (shared) json_object_set_new(config, "mha.kv_heads", json_loads(shared, JSON_DECODE_ANY, NULL));
    if (original) json_object_set_new(config, "mha.original_heads", json_integer(original));
    assert_int_equal(json_dump_file(config, files_path(folder, "config.json"), 0), 0);
    json_decref(config);
    assert_int_equal(mha_model_open(NULL, folder, NULL, &model, &err), MHA_ERR_FORMAT);
    if (!strstr(err.message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err.message);
}

static void refused(const char *folder, const char *heads, const char *shared, const char *part)
{
    refused_of(folder, 0, heads, shared, part);
}

/* Head numbers must be below "mha.original_heads", and head counts at most num_attention_heads. */
static void test_refused_numbers(void **state)
{
    (void)state;
    const char *folder = case_copy("models/bert-mlm-tiny");
    refused_of(folder, 5, NULL, NULL, "mha.original_heads must be at least num_attention_heads (got 5");
    refused_of(folder, -1, NULL, NULL, "mha.original_heads");
    refused_of(folder, 65537, NULL, NULL, "mha.original_heads");
    refused_of(folder, 8, NULL, NULL, "mha.original_heads must be absent without \"mha.heads\" (got 8");
    refused_of(folder, 8, "[[0, 1], [7, 8]]", NULL,
               "mha.heads[1][1] must be a head number from 0 to 7, greater than the previous one (got 8");
    refused_of(folder, 8, "[[0, 1], [0, 1, 2, 3, 4, 5, 6]]", NULL,
               "mha.heads[1] must have at most num_attention_heads = 6 heads (got 7)");
    refused_of(folder, 8, "[[0, 1], [6, 5, 4, 3, 2, 1, 0]]", "{\"keys\": 1, \"values\": 1}",
               "mha.heads[1] must have at most num_attention_heads = 6 heads (got 7)");
    refused_of(folder, 8, "[[0, 1], [7, 8]]", "{\"keys\": 1, \"values\": 1}",
               "mha.heads[1][1] must be a distinct head number (got 8");
    files_remove(folder);
}

static void test_refused(void **state)
{
    (void)state;
    const char *folder = case_copy("models/bert-mlm-tiny");
    refused(folder, NULL, "3", "mha.kv_heads");
    refused(folder, NULL, "{\"keys\": 3}", "mha.kv_heads.values must be a divisor of 6, the head count of layer 0");
    refused(folder, NULL, "{\"keys\": 4, \"values\": 2}", "mha.kv_heads.keys must be a divisor of 6, the head count");
    refused(folder, NULL, "{\"keys\": 0, \"values\": 2}", "got 0");
    refused(folder, NULL, "{\"keys\": \"2\", \"values\": 2}", "got \"2\"");
    refused(folder, NULL, "{\"keys\": [2], \"values\": 2}",
            "mha.kv_heads.keys must have 2 elements, one head count per layer (got 1)");
    refused(folder, NULL, "{\"keys\": [2, 4], \"values\": 2}",
            "mha.kv_heads.keys[1] must be a divisor of 6, the head count of layer 1 (got 4");
    refused(folder, "[[0, 1, 2], [3, 3]]", "{\"keys\": 1, \"values\": 1}",
            "mha.heads[1][1] must be a distinct head number (got 3");
    refused(folder, "[[0, 1, 2], [3, 6]]", "{\"keys\": 1, \"values\": 1}", "got 6");
    refused(folder, "[[0, 1, 2], []]", "{\"keys\": 1, \"values\": 1}",
            "mha.heads[1] must have at least one head (got an empty array)");
    refused(folder, "[[5, 1, 2], [3, 4]]", "{\"keys\": 2, \"values\": 1}", "a divisor of 3, the head count of layer 0");
    refused(folder, NULL, "{\"keys\": 2, \"values\": 2}", "must be [16, 48], as config.json requires");
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_repeated_rows_are_equivalent),
                                       cmocka_unit_test(test_cache), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_refused_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
