/* attention_rollout.c - computes the flow of attention through the layers (Abnar and Zuidema 2020). */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "heads/data/head_data.h"
#include "layer/linear/linear.h"
#include "mha/diversity.h"
#include <string.h>

typedef struct flow {
    mha_ctx *ctx;
    int64_t n;
    float *r, *mean; /* [n, n] product of the previous layers; mean map of a layer, averaged with the identity */
    float *next;     /* [n, n] */
    mha_status status;
    mha_error failure;
} flow;

static int on_attention(void *user, int64_t layer, int64_t heads, const float *probs)
{
    flow *f = user;
    const int64_t n = f->n;
    (void)layer;
    for (int64_t i = 0; i < n * n; i++) {
        double sum = 0;
        for (int64_t h = 0; h < heads; h++)
            sum += (double)probs[h * n * n + i];
        f->mean[i] = (float)(0.5 * sum / (double)heads + (i % n == i / n ? 0.5 : 0));
    }
    const mha__matmul product = {.dtype = MHA_F32,
                                 .m = n,
                                 .n = n,
                                 .k = n,
                                 .a = f->mean,
                                 .a_row = n,
                                 .a_col = 1,
                                 .b = f->r,
                                 .b_row = n,
                                 .b_col = 1,
                                 .c = f->next,
                                 .c_row = n};
    f->status = mha__matmul_run(f->ctx, &product, &f->failure);
    memcpy(f->r, f->next, (size_t)(n * n) * sizeof *f->r);
    return f->status != MHA_OK;
}

static mha_status run(const mha_model *model, flow *f, const mha_model_input *input, mha_error *err)
{
    memset(f->r, 0, (size_t)(f->n * f->n) * sizeof *f->r);
    for (int64_t i = 0; i < f->n; i++)
        f->r[i * f->n + i] = 1;
    const mha_model_output output = {.size = sizeof output, .on_attention = on_attention, .user = f};
    const mha_status status = mha_model_forward(model, input, &output, err);
    if (f->status != MHA_OK && err) *err = f->failure;
    return f->status != MHA_OK ? f->status : status;
}

mha_status mha_head_rollout(const mha_model *model, const mha_head_data *data, int64_t text, float *out, mha_error *err)
{
    if (!model || !data || !out)
        return mha__fail(err, MHA_ERR_ARG, "%s must not be NULL", !model ? "model" : data ? "out" : "data");
    mha_model_input input = {.size = sizeof input, .batch = 1};
    input.ids = mha_head_data_ids(data, text, &input.length);
    if (!input.ids)
        return mha__fail(err, MHA_ERR_ARG, "mha_head_rollout: text must be from 0 to %lld (got %lld)",
                         (long long)mha_head_data_count(data) - 1, (long long)text);
    MHA__TRY(mha__head_data_alone(data, err));
    MHA__TRY(mha__head_data_matches(model, data, err));
    input.type_ids = mha__head_data_types(data, text);
    input.pixels = mha__head_data_pixels(data, text);
    if (input.pixels) input.ids = input.type_ids = NULL;
    mha_ctx *ctx = mha_model_ctx(model);
    size_t bytes;
    const bool fits = mha__bytes((int64_t[]){2, input.length, input.length}, 3, sizeof(float), &bytes);
    float *memory = fits ? mha__alloc(ctx, bytes) : NULL;
    if (!memory) return mha__no_memory(err, fits ? bytes : SIZE_MAX, "a rollout");
    flow f = {.ctx = ctx, .n = input.length, .r = out, .mean = memory, .next = memory + input.length * input.length};
    const mha_status status = run(model, &f, &input, err);
    mha__free(ctx, memory);
    return status;
}
