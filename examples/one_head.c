/* one_head.c - computes a single attention head step by step, with inputs and weights sampled from a seed. Prints the
 * same digits as PyTorch with torch.manual_seed(123), an embedding and three random matrices. */
#include <mha/mha.h>
#include <stdio.h>

enum { TOKENS = 5, WIDTH = 4 };

static void print(const char *name, const mha_step_view *v)
{
    printf("%s\n", name);
    const int64_t rows = v->shape[v->rank - 2], columns = v->shape[v->rank - 1];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            printf("%8.4f%s", (double)((const float *)v->data)[i * v->stride[v->rank - 2] + j],
                   j + 1 < columns ? "" : "\n");
}

int main(void)
{
    float x[TOKENS * WIDTH], context[TOKENS * WIDTH];
    mha_rng rng;
    mha_error err;
    mha_variant *head = NULL;
    mha_trace *trace = NULL;
    mha_step_view view;
    const mha_self_attention_options options = {
        .size = sizeof options, .d_in = WIDTH, .d_out = WIDTH, .plain_matrices = 1};
    const mha_variant_input in = {
        .size = sizeof in, .batch = 1, .q_len = TOKENS, .query = x, .want_scores = 1, .want_weights = 1};

    mha_rng_manual_seed(&rng, 123);
    mha_status status = mha_rng_embedding(&rng, TOKENS, WIDTH, -1, x, &err); /* in PyTorch: nn.Embedding(5, 4).weight */
    mha_rng_manual_seed(&rng, 123);
    if (status == MHA_OK) status = mha_self_attention_create(NULL, &options, &head, &err);
    if (status == MHA_OK)
        status = mha_variant_init(head, &rng, &err); /* in PyTorch: w_q, w_k, w_v = torch.rand(4, 4) */
    if (status == MHA_OK) status = mha_trace_create(NULL, &trace, &err);
    if (status == MHA_OK) status = mha_variant_forward(head, &in, context, trace, &err);
    if (status != MHA_OK) return fprintf(stderr, "%s\n", err.message), 1;

    if (mha_trace_step(trace, MHA_STEP_Q, &view)) print("Q = X W_Q", &view);
    if (mha_trace_step(trace, MHA_STEP_SCORES, &view)) print("scores = Q K^T / sqrt(4)", &view);
    if (mha_trace_step(trace, MHA_STEP_WEIGHTS, &view)) print("weights = softmax(scores)", &view);
    if (mha_trace_step(trace, MHA_STEP_CONTEXT, &view)) print("context = weights V", &view);
    mha_trace_free(trace);
    mha_variant_free(head);
}
