/* past_keys.c - past keys and values that the caller passes instead of a cache. Variants compute the gradients of past
 * keys and values, and may use f64. Therefore past keys and values are arrays [B, Hkv, P, D] of the caller, not an
 * mha_cache. */
#include "layer/attention/attention_layer.h"
#include <string.h>

static void copy(bool join, char *all, char *part, size_t bytes)
{
    if (part) memcpy(join ? all : part, join ? part : all, bytes);
}

/* Copies `past` [B, Hkv, P, D] and the new rows `fresh` of k or v to `all` [B, Hkv, P + Ln, D]. Without `join`, copies
 * in the opposite direction. */
static void move(const mha_attn_layer *l, const mha__attn_call *call, bool join, char *fresh, int64_t row, char *all,
                 char *past)
{
    const int64_t H = l->options.kv_heads, D = l->options.head_dim, P = call->past, L = mha__attn_kv_length(l, call);
    const size_t real = mha__attn_real(l), head = (size_t)D * real;
    for (int64_t n = 0; n < call->in->batch * H; n++, all += (size_t)(P + L) * head) {
        copy(join, all, past ? past + (size_t)(n * P) * head : NULL, (size_t)P * head);
        for (int64_t i = 0; i < L; i++)
            copy(join, all + (size_t)(P + i) * head, fresh + (size_t)((n / H * L + i) * row + n % H * D) * real, head);
    }
}

void mha__attn_move_past(const mha_attn_layer *l, const mha__attn_call *call, bool join, void *qkv, void *k, void *v,
                         void *past_k, void *past_v)
{
    const mha__qkv at = mha__qkv_of(l, call, qkv, mha__attn_real(l));
    if (!call->past) return;
    move(l, call, join, at.k, at.kv_row, k, past_k);
    move(l, call, join, at.v, at.kv_row, v, past_v);
}
