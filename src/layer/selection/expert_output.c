/* expert_output.c - sums the outputs of kept experts. Each expert is packed separately. The weights of experts that no
 * sequence keeps are not read, and their gradients stay unchanged. */
#include "layer/selection/expert_output.h"

#include "base/error.h"
#include <string.h>

/* One kept expert of one sequence. */
typedef struct expert {
    int64_t next;                 /* index among the kept experts of all sequences */
    int64_t e, i, n, first, rows; /* expert e is entry i in the list of sequence n */
    double gate;
} expert;

/* Advances to kept expert x->next, sequence by sequence; returns false after the last expert. */
static bool next_expert(const mha_attn_layer *l, const mha_layer_input *in, const mha__chosen *chosen, expert *x)
{
    const int64_t experts = l->options.heads, keep = l->options.choice.keep;
    if (x->next == mha__layer_sequences(in) * keep) return false;
    x->n = x->next / keep;
    x->i = x->next++ % keep;
    x->e = chosen->list[x->n * experts + x->i];
    x->first = mha__layer_first_row(in, x->n);
    x->rows = mha__layer_first_row(in, x->n + 1) - x->first;
    x->gate = mha__rounded(l->options.dtype, chosen->gate[x->n * experts + x->e]);
    return true;
}

/* Returns the offset of an expert's columns in the context. */
static int64_t columns_of(const mha_attn_layer *l, const expert *x)
{
    return x->first * mha__context_width(l) + x->i * l->options.head_dim;
}

static char *at(const mha_attn_layer *l, const void *x, int64_t element)
{
    return (char *)x + (size_t)element * mha__attn_real(l);
}

/* ---- forward pass ---- */

static void project(const mha_attn_layer *l, const expert *x, const void *context, char *y)
{
    const mha_dtype dtype = l->options.dtype;
    const int64_t E = l->options.hidden;
    mha__linear_run(l->expert_o, &(mha__linear_call){.x = at(l, context, columns_of(l, x)),
                                                     .x_stride = mha__context_width(l),
                                                     .rows = x->rows,
                                                     .y = y,
                                                     .y_stride = E,
                                                     .y_first = x->e * E,
                                                     .parts = l->one_head + (l->options.heads - 1 - x->e),
                                                     .accumulate = true});
    for (int64_t i = 0; i < x->rows * E; i++)
        mha__put(dtype, y, i, mha__get(dtype, y, i) + x->gate * mha__get(dtype, l->expert_bias, x->e * E + i % E));
}

void mha__experts_sum(const mha_attn_layer *l, const mha_layer_input *in, const mha__chosen *chosen,
                      const void *context, void *sum)
{
    const mha_dtype dtype = l->options.dtype;
    const int64_t E = l->options.hidden, row = mha__context_width(l);
    memset(sum, 0, (size_t)(in->batch * in->length * E) * mha__attn_real(l));
    for (expert x = {0}; next_expert(l, in, chosen, &x);) {
        if (l->expert_output == MHA_EXPERT_PROJECT) {
            project(l, &x, context, at(l, sum, x.first * E));
            continue;
        }
        for (int64_t i = 0; i < x.rows * E; i++)
            mha__add_to(dtype, sum, x.first * E + i, mha__get(dtype, context, columns_of(l, &x) + i / E * row + i % E));
    }
}

/* ---- backward pass ---- */

mha_status mha__experts_back(const mha_attn_layer *l, const mha_layer_input *in, const mha__chosen *chosen,
                             const mha__grad_slot *slot, const void *context, const void *dsum, void *dcontext,
                             mha_error *err)
{
    const int64_t E = l->options.hidden, D = l->options.head_dim, row = mha__context_width(l);
    for (expert x = {0}; next_expert(l, in, chosen, &x);) {
        const char *dy = at(l, dsum, x.first * E);
        char *dx = at(l, dcontext, columns_of(l, &x));
        mha__linear_grad g = {.slot = *slot, .rows = x.rows, .in = D, .out = E, .dy = dy, .dx = dx};
        g.x = at(l, context, columns_of(l, &x));
        g.x_stride = g.dx_stride = row;
        g.slot.weight = at(l, slot->weight, x.e * E * D);
        g.slot.dweight = at(l, slot->dweight, x.e * E * D);
        g.slot.dbias = NULL;
        if (l->expert_output == MHA_EXPERT_PROJECT) MHA__TRY(mha__linear_backward(l->ctx, &g, err));
        for (int64_t r = 0; l->expert_output == MHA_EXPERT_PLAIN && r < x.rows; r++)
            memcpy(at(l, dx, r * row), at(l, dy, r * E), (size_t)E * mha__attn_real(l));
    }
    return MHA_OK;
}

/* Adds the gradients of the kept experts' biases. The gate multiplies the bias too, so its gradient through the bias is
 * also added. */
void mha__experts_gates_back(const mha_attn_layer *l, const mha_layer_input *in, const mha__chosen *chosen,
                             const mha__grad_slot *slot, const void *dsum, void *dgates)
{
    const mha_dtype dtype = l->options.dtype;
    const int64_t E = l->options.hidden;
    if (l->expert_output != MHA_EXPERT_PROJECT) return;
    for (expert x = {0}; next_expert(l, in, chosen, &x);)
        for (int64_t e = 0; e < E; e++) {
            const int64_t bias = x.e * E + e;
            double sum = 0;
            for (int64_t r = 0; r < x.rows; r++)
                sum += mha__get(dtype, dsum, (x.first + r) * E + e);
            mha__put(dtype, slot->dbias, bias, mha__get(dtype, slot->dbias, bias) + x.gate * sum);
            mha__add_to(dtype, dgates, x.n * l->options.heads + x.e, sum * mha__get(dtype, l->expert_bias, bias));
        }
}
