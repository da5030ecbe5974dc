/* token_by_token.c - runs LLaMA attention over a whole sequence, then one token at a time with cached keys and values,
 * and checks that the outputs are bitwise identical. */
#include <mha/mha.h>
#include <stdio.h>
#include <string.h>

enum { TOKENS = 6, WIDTH = 16, HEADS = 4, KV_HEADS = 2, HEAD_DIM = WIDTH / HEADS };

/* Copies the keys or values of the last call, [KV_HEADS, tokens, HEAD_DIM], to `past` for the next call. */
static void keep(const mha_trace *trace, mha_step step, float *past)
{
    mha_step_view v;
    if (!mha_trace_step(trace, step, &v)) return;
    for (int64_t h = 0; h < v.shape[1]; h++)
        for (int64_t i = 0; i < v.shape[2]; i++, past += HEAD_DIM)
            memcpy(past, (const float *)v.data + h * v.stride[1] + i * v.stride[2], HEAD_DIM * sizeof *past);
}

int main(void)
{
    static float x[TOKENS * WIDTH], whole[TOKENS * WIDTH], one[WIDTH];
    static float past_key[KV_HEADS * TOKENS * HEAD_DIM], past_value[KV_HEADS * TOKENS * HEAD_DIM];
    int same = 0;
    mha_rng rng;
    mha_error err;
    mha_variant *layer = NULL;
    mha_trace *trace = NULL;
    const mha_llama_attention_options options = {.size = sizeof options,
                                                 .hidden_size = WIDTH,
                                                 .num_heads = HEADS,
                                                 .num_kv_heads = KV_HEADS,
                                                 .causal = 1,
                                                 .rotary = 1};
    mha_variant_input in = {.size = sizeof in, .batch = 1, .q_len = TOKENS, .query = x};

    mha_rng_manual_seed(&rng, 0);
    mha_status status = mha_llama_attention_create(NULL, &options, &layer, &err);
    if (status == MHA_OK) status = mha_variant_init(layer, &rng, &err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, x, TOKENS * WIDTH, &err);
    if (status == MHA_OK) status = mha_trace_create(NULL, &trace, &err);
    if (status == MHA_OK) status = mha_variant_forward(layer, &in, whole, NULL, &err);

    in.q_len = 1;
    in.past_key = past_key;
    in.past_value = past_value;
    for (in.past_len = 0; status == MHA_OK && in.past_len < TOKENS; in.past_len++) {
        in.query = x + in.past_len * WIDTH;
        status = mha_variant_forward(layer, &in, one, trace, &err);
        keep(trace, MHA_STEP_K, past_key);
        keep(trace, MHA_STEP_V, past_value);
        same += memcmp(one, whole + in.past_len * WIDTH, sizeof one) == 0;
    }
    if (status != MHA_OK) fprintf(stderr, "%s\n", err.message);
    printf("%d of %d tokens are bitwise identical to the full-sequence pass\n", same, TOKENS);
    mha_trace_free(trace);
    mha_variant_free(layer);
    return same != TOKENS;
}
