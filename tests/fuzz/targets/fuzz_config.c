/* fuzz_config.c - reads bytes as config.json, and bytes after the first NUL as generation_config.json, without weights.
 * An accepted config must be within the limits of config.h, and must be accepted again. If it is small, a model with
 * this config and random weights must run.
 */
#include "base/ctx.h"
#include "fuzz.h"
#include "mha/model_create.h"
#include "model/config/config.h"
#include "mutate.h"
#include "support/files.h"
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

FUZZ_MUTATES_JSON

static void check_layer(const mha__config *c, int64_t n)
{
    const mha__layer_attention *a = &c->attention[n];
    const int64_t heads = c->layer_heads[n], kept = mha__config_kept(c, n);
    fuzz_check(heads >= 1 && heads <= MHA__HEADS, "the head count of a layer must be within its limit");
    fuzz_check(c->layer_kv_heads[n] >= 1 && heads % c->layer_kv_heads[n] == 0,
               "the key/value head count must divide the head count of a layer");
    fuzz_check(heads % c->layer_k_heads[n] == 0 && heads % c->layer_v_heads[n] == 0,
               "the key and value head counts of the tensors must divide the head count of a layer");
    fuzz_check(a->window >= 0 && a->window <= MHA__DIM, "window must be a valid dimension");
    fuzz_check(a->scale >= 0 && a->scale <= FLT_MAX, "scale must be finite");
    fuzz_check(a->softcap >= 0 && a->softcap <= FLT_MAX, "softcap must be finite");
    fuzz_check(kept >= 1 && (a->choice.of == MHA_CHOICE_OPTIONS || kept <= heads),
               "a layer that selects heads must keep at least one head per text");
}

static void check(const mha__config *c)
{
    const int64_t dims[] = {c->vocab, c->layers, c->hidden, c->heads, c->kv_heads, c->head_dim, c->intermediate};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        fuzz_check(dims[i] >= 1 && dims[i] <= MHA__DIM, "dimensions must be within their limit");
    fuzz_check(c->layers <= MHA__LAYERS && c->heads <= MHA__HEADS,
               "the layer and head counts must be within their limits");
    fuzz_check(c->heads % c->kv_heads == 0, "the key/value head count must divide the head count");
    fuzz_check(c->eps >= 0 && c->eps <= FLT_MAX, "eps must be finite");
    fuzz_check(c->eos_count >= 0 && c->eos_count <= MHA__EOS, "eos_count must be within its limit");
    for (int64_t i = 0; i < c->eos_count; i++)
        fuzz_check(c->eos[i] >= 0 && c->eos[i] < c->vocab, "eos must be a token of the model");
    for (int64_t n = 0; n < c->layers; n++)
        check_layer(c, n);
}

static int is_small(const mha__config *c)
{
    int64_t width = c->heads * c->head_dim;
    for (int64_t n = 0; n < c->layers && c->layers <= 2; n++)
        if (c->attention[n].choice.width > width) width = c->attention[n].choice.width;
    return c->layers <= 2 && c->hidden <= 64 && width <= 128 && c->intermediate <= 128 && c->vocab <= 128 &&
           c->max_positions <= 4096 && c->type_vocab <= 16;
}

/* Runs the forward pass over three tokens. */
static void run(const mha_model *model)
{
    const mha_model_info *info = mha_model_describe(model);
    const int32_t ids[3] = {0, (int32_t)(info->vocab - 1), 0};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 3, .ids = ids};
    float *hidden = malloc((size_t)(3 * info->hidden) * sizeof *hidden);
    const mha_model_output output = {.size = sizeof output, .last_hidden = hidden};
    mha_error err = {0};
    const mha_status status = mha_model_forward(model, &input, &output, &err);
    fuzz_check(status == MHA_OK || info->max_positions < 3, "forward pass must succeed");
    free(hidden);
}

static void make(const char *config)
{
    mha_model *model = NULL;
    mha_error err = {0};
    const mha_status status = mha_model_create(fuzz_ctx(), config, NULL, &model, &err);
    fuzz_check((status == MHA_OK) == (model != NULL), "model must be set only on success");
    fuzz_refusal(status, &err, "");
    if (model) run(model);
    mha_model_free(model);
}

/* Writes the bytes after the first NUL to generation_config.json. If there is no NUL, removes the file. */
static void put_generation(const char *config, size_t n)
{
    static int there;
    const size_t own = strlen(config);
    const char *path = files_path(fuzz_folder(), "generation_config.json");
    if (own < n) files_write(path, config + own + 1, n - own - 1);
    if (own == n && there) unlink(path);
    there = own < n;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static mha__config config; /* static, because it is too large for the stack */
    char *given = malloc(n + 1), *text = NULL, *again = NULL;
    mha_error err = {0};
    memcpy(given, bytes, n);
    given[n] = '\0';
    put_generation(given, n);
    const mha_status status = mha__config_read(fuzz_ctx(), fuzz_folder(), given, &config, &text, &err);
    fuzz_check((status == MHA_OK) == (text != NULL), "text must be set only on success");
    fuzz_refusal(status, &err, "config.json");
    if (text) {
        check(&config);
        mha__config_release(fuzz_ctx(), &config);
        fuzz_check(mha__config_read(fuzz_ctx(), fuzz_folder(), text, &config, &again, &err) == MHA_OK,
                   "a saved file must be accepted again");
        if (is_small(&config)) make(text);
    }
    mha__config_release(fuzz_ctx(), &config);
    mha__free(fuzz_ctx(), text);
    mha__free(fuzz_ctx(), again);
    free(given);
    return 0;
}
