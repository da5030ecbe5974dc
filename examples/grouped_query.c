/* grouped_query.c - four query heads share two key/value heads. Prints the size of the cached keys and values per
 * token, and checks that the result is bitwise identical to plain attention on repeated keys and values. */
#include <mha/mha.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 2, LQ = 3, LK = 5, WIDTH = 8, HEADS = 4, KV_HEADS = 2, D = WIDTH / HEADS };
static float query[BATCH * LQ * WIDTH], key[BATCH * LK * WIDTH], value[BATCH * LK * WIDTH], y[BATCH * LQ * WIDTH];
static float k[BATCH][HEADS][LK][D], v[BATCH][HEADS][LK][D], plain[BATCH][LQ][HEADS][D];

/* Repeats each key/value head for its query heads: query head h uses key/value head h / (HEADS / KV_HEADS). */
static void repeat(const mha_step_view *step, float to[BATCH][HEADS][LK][D])
{
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < HEADS; h++)
            for (int j = 0; j < LK; j++)
                memcpy(to[b][h][j],
                       (const float *)step->data + b * step->stride[0] + h / (HEADS / KV_HEADS) * step->stride[1] +
                           j * step->stride[2],
                       sizeof to[b][h][j]);
}

/* Runs plain attention of all heads on the repeated keys and values. */
static mha_status attend(const mha_step_view *q, mha_error *err)
{
    const mha_attn_desc desc = {
        .size = sizeof desc, .batch = BATCH, .heads = HEADS, .q_len = LQ, .kv_len = LK, .head_dim = D};
    const mha_attn_args args = {.size = sizeof args,
                                .q = {q->data, {q->stride[0], q->stride[1], q->stride[2], q->stride[3]}},
                                .k.data = k,
                                .v.data = v,
                                .out = {plain, {LQ * WIDTH, D, WIDTH, 1}}};
    return mha_attention(NULL, &desc, &args, err);
}

int main(void)
{
    mha_rng rng;
    mha_error err;
    mha_variant *layer = NULL;
    mha_trace *trace = NULL;
    mha_step_view steps[3], context;
    int same = 0;
    const mha_grouped_query_options options = {
        .size = sizeof options, .d_model = WIDTH, .num_heads = HEADS, .num_kv_heads = KV_HEADS};
    const mha_variant_input in = {
        .size = sizeof in, .batch = BATCH, .q_len = LQ, .kv_len = LK, .query = query, .key = key, .value = value};

    mha_rng_manual_seed(&rng, 42);
    mha_status status = mha_grouped_query_create(NULL, &options, &layer, &err);
    if (status == MHA_OK) status = mha_variant_init(layer, &rng, &err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, query, BATCH * LQ * WIDTH, &err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, key, BATCH * LK * WIDTH, &err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, value, BATCH * LK * WIDTH, &err);
    if (status == MHA_OK) status = mha_trace_create(NULL, &trace, &err);
    if (status == MHA_OK) status = mha_variant_forward(layer, &in, y, trace, &err);

    if (status == MHA_OK && mha_trace_step(trace, MHA_STEP_Q, &steps[0]) &&
        mha_trace_step(trace, MHA_STEP_K, &steps[1]) && mha_trace_step(trace, MHA_STEP_V, &steps[2]) &&
        mha_trace_step(trace, MHA_STEP_CONTEXT, &context)) {
        repeat(&steps[1], k);
        repeat(&steps[2], v);
        status = attend(&steps[0], &err);
        same = memcmp(plain, context.data, sizeof plain) == 0;
        printf("keys and values per token: %lld heads of %d elements for %lld query heads\n",
               (long long)steps[1].shape[1], 2 * D, (long long)steps[0].shape[1]);
    }
    if (status != MHA_OK) fprintf(stderr, "%s\n", err.message);
    printf("%lld parameters; the context is %s the context of repeated keys and values\n",
           (long long)mha_variant_parameter_count(layer), same ? "bitwise identical to" : "different from");
    mha_trace_free(trace);
    mha_variant_free(layer);
    return !same;
}
