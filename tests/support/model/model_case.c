/* model_case.c - implements model_case.h. Opens checkpoints, reads golden tensors, and runs the forward pass. */
#include "support/model/model_case.h"

#include "mha/model_create.h"
#include "mha/model_save.h"
#include "support/alloc.h"
#include "support/check.h"
#include "support/files.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef MHA_TEST_DATA
#define MHA_TEST_DATA "tests/golden/data" /* relative to the root of the source tree, where tests run */
#endif

static const char *place(const char *path)
{
    return path[0] == '/' ? path : files_path(MHA_TEST_DATA, path);
}

mha_model *case_model(mha_ctx *ctx, const char *folder, const mha_model_options *options)
{
    mha_model *model = NULL;
    mha_error err = {0};
    if (mha_model_open(ctx, place(folder), options, &model, &err) != MHA_OK) fail_msg("%s: %s", folder, err.message);
    return model;
}

mha_model *case_open(mha_ctx *ctx, const char *folder)
{
    return case_model(ctx, folder, &(mha_model_options){.size = sizeof(mha_model_options), .no_tokenizer = 1});
}

const char *case_minilm(void)
{
    static char folder[4096];
    const char *given = getenv("MHA_MINILM"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (given && *given)
        snprintf(folder, sizeof folder, "%s", given);
    else if (cache && *cache)
        snprintf(folder, sizeof folder, "%s/mha/minilm", cache);
    else
        snprintf(folder, sizeof folder, "%s/.cache/mha/minilm", home ? home : "");
    return access(files_path(folder, "model.safetensors"), R_OK) == 0 ? folder : NULL;
}

mha_file *case_file(const char *path)
{
    mha_file *file = NULL;
    mha_error err = {0};
    if (mha_file_open(NULL, place(path), NULL, &file, &err) != MHA_OK) fail_msg("%s", err.message);
    return file;
}

static const mha_tensor *find(const mha_file *file, const char *name)
{
    const mha_tensor *tensor = mha_file_find(file, name);
    if (!tensor) fail_msg("the file must have a tensor %s", name);
    return tensor;
}

float *case_floats(const mha_file *file, const char *name)
{
    const mha_tensor *tensor = find(file, name);
    float *out = malloc((size_t)tensor->elements * sizeof *out);
    assert_int_equal(mha_tensor_read(tensor, MHA_F32, out, NULL), MHA_OK);
    return out;
}

int32_t *case_ints(const mha_file *file, const char *name)
{
    const mha_tensor *tensor = find(file, name);
    int64_t *wide = malloc((size_t)tensor->elements * sizeof *wide);
    int32_t *out = malloc((size_t)tensor->elements * sizeof *out);
    assert_int_equal(mha_tensor_read(tensor, MHA_I64, wide, NULL), MHA_OK);
    for (int64_t i = 0; i < tensor->elements; i++)
        out[i] = (int32_t)wide[i];
    free(wide);
    return out;
}

int64_t case_dimension(const mha_file *file, const char *name, int axis)
{
    return find(file, name)->shape[axis];
}

int64_t case_elements(const mha_named_tensor *tensor)
{
    int64_t count = 1;
    for (int n = 0; n < tensor->rank; n++)
        count *= tensor->shape[n];
    return count;
}

const char *case_copy(const char *folder)
{
    static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json"};
    const char *copy = files_folder();
    for (int i = 0; i < 3; i++) {
        size_t n = 0;
        char *bytes = files_read(files_path(place(folder), names[i]), &n);
        if (i == 2 && !bytes) break; /* some models have no tokenizer */
        assert_non_null(bytes);
        files_write(files_path(copy, names[i]), bytes, n);
        free(bytes);
    }
    return copy;
}

void case_write_config(const char *copy, const char *folder, const char *key, const char *value)
{
    json_t *config = json_load_file(files_path(place(folder), "config.json"), 0, NULL);
    assert_non_null(config);
    if (value)
        assert_int_equal(json_object_set_new(config, key, json_loads(value, JSON_DECODE_ANY, NULL)), 0);
    else
        assert_int_equal(json_object_del(config, key), 0);
    assert_int_equal(json_dump_file(config, files_path(copy, "config.json"), 0), 0);
    json_decref(config);
}

const char *case_copy_edited(const char *folder, const char *key, const char *value)
{
    const char *copy = case_copy(folder);
    case_write_config(copy, folder, key, value);
    return copy;
}

mha_model *case_create(mha_ctx *ctx, const char *config_json, uint64_t seed)
{
    const mha_model_create_options o = {.size = sizeof o, .seed = seed};
    mha_model *model = NULL;
    mha_error err = {0};
    if (mha_model_create(ctx, config_json, &o, &model, &err) != MHA_OK) fail_msg("%s: %s", config_json, err.message);
    return model;
}

const char *case_created(const char *config_json, mha_dtype dtype)
{
    const mha_model_save_options o = {.size = sizeof o, .dtype = dtype, .overwrite = 1};
    const char *folder = files_folder();
    mha_error err = {0};
    mha_model *model = case_create(NULL, config_json, 3);
    if (mha_model_save(model, folder, &o, &err) != MHA_OK) fail_msg("%s: %s", config_json, err.message);
    mha_model_free(model);
    return folder;
}

void case_refused(const char *folder, mha_status status, const char *part)
{
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1};
    mha_model *model = (mha_model *)(uintptr_t)1;
    mha_error err = {0};
    assert_int_equal(mha_model_open(NULL, place(folder), &o, &model, &err), status);
    assert_null(model);
    assert_int_equal(err.status, status);
    if (!strstr(err.message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err.message);
}

/* ---- forward pass ---- */

static int keep_hidden(void *user, int64_t entry, const float *x)
{
    const case_run *run = user;
    memcpy(run->hidden + entry * run->cells, x, (size_t)run->cells * sizeof *x);
    return 0;
}

static int keep_attention(void *user, int64_t layer, int64_t heads, const float *probs)
{
    const case_run *run = user;
    assert_true(heads > 0 && run->maps % heads == 0);
    memcpy(run->attn + layer * run->maps, probs, (size_t)run->maps * sizeof *probs);
    return 0;
}

void case_forward(const mha_model *model, const mha_model_input *input, int want_pooled, case_run *run)
{
    const mha_model_info *info = mha_model_describe(model);
    const int64_t B = input->batch, L = input->length;
    *run = (case_run){.cells = B * L * info->hidden, .maps = B * info->heads * L * L, .layers = info->layers};
    run->hidden = malloc((size_t)((run->layers + 1) * run->cells) * sizeof *run->hidden);
    run->attn = malloc((size_t)(run->layers * run->maps) * sizeof *run->attn);
    run->last_hidden = malloc((size_t)run->cells * sizeof *run->last_hidden);
    if (want_pooled) run->pooled = malloc((size_t)(B * info->hidden) * sizeof *run->pooled);
    const mha_model_output output = {.size = sizeof output,
                                     .last_hidden = run->last_hidden,
                                     .pooled = run->pooled,
                                     .on_hidden = keep_hidden,
                                     .on_attention = keep_attention,
                                     .user = run};
    mha_error err = {0};
    if (mha_model_forward(model, input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
}

void case_run_free(case_run *run)
{
    free(run->hidden);
    free(run->attn);
    free(run->last_hidden);
    free(run->pooled);
}

float *case_logits(const mha_model *model, const int32_t *ids, int64_t length, const float *gates)
{
    float *logits = malloc((size_t)(length * mha_model_describe(model)->vocab) * sizeof *logits);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = length, .ids = ids, .gates = gates};
    const mha_model_output output = {.size = sizeof output, .logits = logits};
    mha_error err = {0};
    if (mha_model_forward(model, &input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
    return logits;
}

double case_near(const char *what, const float *a, const float *b, int64_t count, double limit)
{
    double worst = 0;
    for (int64_t i = 0; i < count; i++) {
        const double error = fabs((double)a[i] - (double)b[i]);
        if (!(error <= limit))
            fail_msg("%s[%lld] must be %.9g within %g (got %.9g)", what, (long long)i, (double)b[i], limit,
                     (double)a[i]);
        if (error > worst) worst = error;
    }
    return worst;
}

void case_create_without_memory(const char *config_json)
{
    counting c = {.budget = -1};
    mha_ctx *ctx = NULL;
    const mha_ctx_options o = {.size = sizeof o, .threads = 1, .allocator = counting_allocator(&c)};
    assert_int_equal(mha_ctx_create(&o, &ctx, NULL), MHA_OK);
    const long before = atomic_load(&c.live);
    mha_status status = MHA_ERR_MEMORY;
    for (long budget = 0; status != MHA_OK; budget++) {
        mha_model *model = NULL;
        atomic_store(&c.calls, 0);
        atomic_store(&c.budget, budget);
        status = mha_model_create(ctx, config_json, NULL, &model, NULL);
        atomic_store(&c.budget, -1);
        if (status != MHA_OK) assert_int_equal(status, MHA_ERR_MEMORY);
        mha_model_free(model);
        assert_int_equal(atomic_load(&c.live), before);
    }
    mha_ctx_free(ctx);
}
