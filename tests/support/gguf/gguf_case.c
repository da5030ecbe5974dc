/* gguf_case.c - see gguf_case.h. */
#include "support/gguf/gguf_case.h"

#include "support/check.h"
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 24 };

mha_model *gguf_open(const char *path, int no_tokenizer)
{
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = no_tokenizer};
    mha_model *model = NULL;
    mha_error err = {0};
    if (mha_model_open(NULL, path, &o, &model, &err) != MHA_OK) fail_msg("%s", err.message);
    return model;
}

mha_model *gguf_open_as(const char *folder, const char *config_json)
{
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .config_json = config_json};
    mha_model *model = NULL;
    mha_error err = {0};
    if (mha_model_open(NULL, folder, &o, &model, &err) != MHA_OK) fail_msg("%s", err.message);
    return model;
}

float *gguf_outputs(const mha_model *model, size_t *bytes)
{
    const mha_model_info *info = mha_model_describe(model);
    const int64_t width = info->causal ? info->vocab : info->hidden;
    int32_t ids[TOKENS];
    *bytes = sizeof(float) * TOKENS * (size_t)width;
    float *out = malloc(*bytes);
    for (int n = 0; n < TOKENS; n++)
        ids[n] = (int32_t)((n * 37 + 5) % info->vocab);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = TOKENS, .ids = ids};
    mha_model_output output = {.size = sizeof output};
    if (info->causal)
        output.logits = out;
    else
        output.last_hidden = out;
    mha_error err = {0};
    if (mha_model_forward(model, &input, &output, &err) != MHA_OK) fail_msg("%s", err.message);
    return out;
}

void gguf_same_outputs(const mha_model *a, const mha_model *b, const char *name)
{
    size_t n, m;
    float *x = gguf_outputs(a, &n), *y = gguf_outputs(b, &m);
    assert_int_equal(n, m);
    if (memcmp(x, y, n) != 0) fail_msg("%s: outputs must be bitwise identical to those of the folder", name);
    free(x);
    free(y);
}

void gguf_save(const mha_model *model, const char *path, mha_dtype dtype)
{
    const mha_model_save_options o = {.size = sizeof o, .dtype = dtype, .overwrite = 1};
    mha_error err = {0};
    if (mha_model_save_gguf(model, path, &o, &err) != MHA_OK) fail_msg("%s", err.message);
}
