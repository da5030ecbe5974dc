/* golden_recorded.c - compares every recorded step and gradient of a layer. */
#include "conformance/walkthroughs/golden_seeds.h"
#include <math.h>
#include <string.h>

/* ---- steps ---- */

/* Compares a step of the trace, without the first `skip` rows of its third dimension. */
static void compare_step(layer_case *l, const char *name, mha_step step, int64_t skip)
{
    mha_step_view v;
    if (!seed_has(l->c, name) || !mha_trace_step(l->trace, step, &v)) return;
    int64_t shape[4] = {1, 1, 1, 1}, stride[4] = {0, 0, 0, 0};
    for (int n = 0; n < v.rank; n++) {
        shape[4 - v.rank + n] = v.shape[n];
        stride[4 - v.rank + n] = v.stride[n];
    }
    const int64_t count = shape[0] * shape[1] * (shape[2] - skip) * shape[3];
    float *flat = seed_alloc(l->c, count), *at = flat;
    for (int64_t a = 0; flat && a < shape[0]; a++)
        for (int64_t b = 0; b < shape[1]; b++)
            for (int64_t i = skip; i < shape[2]; i++)
                for (int64_t d = 0; d < shape[3]; d++)
                    *at++ = ((const float *)v.data)[a * stride[0] + b * stride[1] + i * stride[2] + d * stride[3]];
    seed_compare(l->c, name, flat, count);
}

/* Compares the steps of adaptive heads. The file stores the heads of each sample in a separate tensor. */
static void compare_adaptive(layer_case *l)
{
    mha_step_view v;
    if (!mha_trace_step(l->trace, MHA_STEP_WEIGHTS, &v)) return;
    for (int64_t b = 0; b < l->in.batch; b++) {
        char name[48];
        snprintf(name, sizeof name, "expect.attention.%lld", (long long)b);
        seed_compare(l->c, name, (const float *)v.data + b * v.stride[0],
                     mha_trace_heads(l->trace, b) * v.shape[2] * v.shape[3]);
    }
}

static void compare_choice(layer_case *l)
{
    int64_t count = 0, heads = 0;
    seed_case *c = l->c;
    mha_step_view v;
    if (!mha_trace_chosen(l->trace, 0, &count) || !mha_trace_step(l->trace, MHA_STEP_LOGITS, &v)) return;
    heads = v.shape[1];
    int64_t *chosen = verify_alloc(&c->memory, l->in.batch * count, sizeof *chosen, &c->entry);
    float *kept = seed_alloc(c, l->in.batch * heads);
    for (int64_t b = 0; chosen && kept && b < l->in.batch; b++) {
        const int32_t *list = mha_trace_chosen(l->trace, b, &count);
        for (int64_t i = 0; i < count; i++) {
            chosen[b * count + i] = list[i];
            kept[b * heads + list[i]] = 1;
        }
    }
    seed_compare_integers(c, "expect.expert_indices", chosen, l->in.batch * count);
    seed_compare_integers(c, "expect.selected_heads", chosen, l->in.batch * count);
    seed_compare_integers(c, "expect.head_choice", chosen, l->in.batch * count);
    if (seed_has(c, "expect.head_mask")) seed_compare(c, "expect.head_mask", kept, l->in.batch * heads);
}

/* Compares the cosine between the attention weights of each pair of heads, over all samples. */
static void compare_similarity(layer_case *l)
{
    mha_step_view v;
    if (!seed_has(l->c, "expect.head_similarity") || !mha_trace_step(l->trace, MHA_STEP_WEIGHTS, &v)) return;
    const int64_t B = v.shape[0], H = v.shape[1], plane = v.shape[2] * v.shape[3];
    const float *w = v.data;
    float *got = seed_alloc(l->c, H * (H - 1) / 2), *at = got;
    for (int64_t i = 0; got && i < H; i++)
        for (int64_t j = i + 1; j < H; j++) {
            double ij = 0, ii = 0, jj = 0;
            for (int64_t n = 0; n < B * plane; n++) {
                const int64_t first = n / plane * H * plane + n % plane;
                const double x = (double)w[first + i * plane], y = (double)w[first + j * plane];
                ij += x * y;
                ii += x * x;
                jj += y * y;
            }
            *at++ = (float)(ij / sqrt(ii * jj));
        }
    seed_compare(l->c, "expect.head_similarity", got, H * (H - 1) / 2);
}

/* The recording has the attention weights of all heads, but a pruned layer computes only kept heads. The same layer
 * without pruning returns all weights; the weights of kept heads must be equal in both. */
static void compare_pruned(layer_case *l)
{
    seed_case *c = l->c;
    mha_error error = {0};
    mha_variant *all = NULL;
    mha_step_view v, full;
    int64_t count;
    const mha_head_pruning_options o = {
        .size = sizeof o, .d_model = seed_integer(c, "d_model"), .num_heads = seed_integer(c, "heads")};
    float *output = seed_alloc(c, l->in.batch * l->in.q_len * l->d_out);
    mha_trace *trace = NULL;
    const mha_named_tensor *from = mha_variant_parameters(l->layer, &count);
    bool ok = output && seed_ok(c, mha_head_pruning_create(c->ctx, &o, &all, &error), &error) &&
              seed_ok(c, mha_variant_init(all, NULL, &error), &error) &&
              seed_ok(c, mha_trace_create(c->ctx, &trace, &error), &error);
    for (int64_t n = 0; ok && n < count; n++)
        memcpy(mha_variant_parameters(all, &count)[n].data, from[n].data,
               (size_t)(from[n].shape[0] * (from[n].rank == 2 ? from[n].shape[1] : 1)) * sizeof(float));
    ok = ok && seed_ok(c, mha_variant_update(all, &error), &error) &&
         seed_ok(c, mha_variant_forward(all, &l->in, output, trace, &error), &error) &&
         mha_trace_step(l->trace, MHA_STEP_WEIGHTS, &v) && mha_trace_step(trace, MHA_STEP_WEIGHTS, &full);
    const int64_t plane = ok ? full.shape[2] * full.shape[3] : 0;
    float *ordered = ok ? seed_alloc(c, full.shape[0] * full.shape[1] * plane) : NULL;
    for (int64_t b = 0; ordered && b < l->in.batch; b++) {
        const int32_t *list = mha_trace_chosen(trace, b, &count); /* all heads, in descending order of their scores */
        const float *w = (const float *)full.data + b * full.stride[0];
        for (int64_t i = 0; i < count; i++)
            memcpy(ordered + (b * count + list[i]) * plane, w + i * plane, (size_t)plane * sizeof *w);
        verify_measured(c->outcome, "weights of kept heads",
                        memcmp(w, (const float *)v.data + b * v.stride[0], (size_t)v.stride[0] * sizeof *w) != 0, 0);
    }
    if (ordered) seed_compare(c, "expect.attention", ordered, full.shape[0] * full.shape[1] * plane);
    mha_trace_free(trace);
    mha_variant_free(all);
}

/* Compares the scores before scaling, computed by the operator from the layer's q and k. */
static void compare_raw_scores(layer_case *l)
{
    seed_case *c = l->c;
    mha_error error = {0};
    mha_step_view q, k;
    if (!seed_has(c, "expect.scores") || !mha_trace_step(l->trace, MHA_STEP_Q, &q) ||
        !mha_trace_step(l->trace, MHA_STEP_K, &k))
        return;
    const int64_t count = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2];
    float *scores = seed_alloc(c, count), *out = seed_alloc(c, q.shape[0] * q.shape[1] * q.shape[2] * q.shape[3]);
    const mha_attn_desc desc = {.size = sizeof desc,
                                .batch = q.shape[0],
                                .heads = q.shape[1],
                                .q_len = q.shape[2],
                                .kv_len = k.shape[2],
                                .head_dim = q.shape[3],
                                .scale = 1,
                                .outputs = MHA_ATTN_SCORES};
    mha_attn_args args = {.size = sizeof args, .q.data = q.data, .k.data = k.data, .v.data = k.data};
    args.out.data = out;
    args.scores.data = scores;
    memcpy(args.q.stride, q.stride, sizeof q.stride);
    memcpy(args.k.stride, k.stride, sizeof k.stride);
    memcpy(args.v.stride, k.stride, sizeof k.stride);
    if (scores && out && seed_ok(c, mha_attention(c->ctx, &desc, &args, &error), &error))
        seed_compare(c, "expect.scores", scores, count);
}

void layer_compare_forward(layer_case *l)
{
    const int64_t past = l->in.past_len;
    seed_compare(l->c, "expect.output", l->output, l->in.batch * l->in.q_len * l->d_out);
    if (seed_has(l->c, "param.head_importance.weight"))
        compare_pruned(l);
    else
        compare_step(l, "expect.attention", MHA_STEP_WEIGHTS, 0);
    if (seed_has(l->c, "param.head_predictor.0.weight")) compare_adaptive(l);
    compare_step(l, "expect.scaled_scores", MHA_STEP_SCORES, 0);
    compare_step(l, "expect.q", MHA_STEP_Q, 0);
    compare_step(l, "expect.k", MHA_STEP_K, 0);
    compare_step(l, "expect.v", MHA_STEP_V, 0);
    compare_step(l, "expect.q_rotated", MHA_STEP_Q, 0);
    compare_step(l, "expect.k_rotated", MHA_STEP_K, past);
    compare_step(l, "expect.key_cache", MHA_STEP_K, 0);
    compare_step(l, "expect.value_cache", MHA_STEP_V, 0);
    compare_step(l, "expect.context", MHA_STEP_CONTEXT, 0);
    compare_step(l, "expect.mixed", MHA_STEP_MIXED, 0);
    compare_step(l, "expect.router_logits", MHA_STEP_LOGITS, 0);
    compare_step(l, "expect.head_scores", MHA_STEP_LOGITS, 0);
    compare_step(l, "expect.head_logits", MHA_STEP_LOGITS, 0);
    compare_step(l, "expect.expert_weights", MHA_STEP_GATES, 0);
    compare_choice(l);
    compare_similarity(l);
    compare_raw_scores(l);
}

/* ---- gradients ---- */

static float *gradient_of(layer_case *l, const char *input, int64_t *count)
{
    char name[64];
    snprintf(name, sizeof name, "grad.%s", input ? input : "");
    const mha_tensor *t = input ? mha_file_find(l->c->file, input) : NULL;
    *count = t ? t->elements : 0;
    return t && seed_has(l->c, name) ? seed_alloc(l->c, *count) : NULL;
}

/* Computes each head's mean absolute gradient over its rows in q, k and v. */
static void compare_importance(layer_case *l)
{
    static const char *const names[] = {"q_proj.weight", "k_proj.weight", "v_proj.weight"};
    seed_case *c = l->c;
    int64_t count;
    if (!seed_has(c, "expect.head_importance")) return;
    const int64_t heads = seed_integer(c, "heads");
    float *sum = seed_alloc(c, heads);
    const mha_named_tensor *list = mha_variant_gradients(l->layer, &count);
    for (int64_t n = 0; sum && n < 3 * count; n++) {
        const mha_named_tensor *t = &list[n % count];
        if (strcmp(t->name, names[n / count]) != 0) continue;
        const int64_t each = verify_elements(t) / heads;
        for (int64_t h = 0; h < heads; h++) {
            double mean = 0;
            for (int64_t i = 0; i < each; i++)
                mean += fabs((double)((const float *)t->data)[h * each + i]) / (double)each;
            sum[h] += (float)mean;
        }
    }
    seed_compare(c, "expect.head_importance", sum, heads);
}

void layer_compare_backward(layer_case *l)
{
    seed_case *c = l->c;
    mha_error error = {0};
    const mha_tensor *cotangent = mha_file_find(c->file, "cotangent.output");
    int64_t shape[4] = {l->in.batch, l->in.q_len, l->d_out, 0}, count[5];
    const bool flat = cotangent && cotangent->rank == 2;
    const char *const inputs[5] = {l->query, l->key, l->value, "input.past_key", "input.past_value"};
    float *grads[5];
    for (int n = 0; n < 5; n++)
        grads[n] = gradient_of(l, inputs[n], &count[n]);
    const mha_variant_gradient g = {.size = sizeof g,
                                    .output = seed_values(c, "cotangent.output", flat ? 2 : 3, shape + flat),
                                    .query = grads[0],
                                    .key = grads[1],
                                    .value = grads[2],
                                    .past_key = grads[3],
                                    .past_value = grads[4]};
    if (c->entry.error->status != MHA_OK) return;
    if (!seed_ok(c, mha_variant_backward(l->layer, &l->in, l->trace, &g, &error), &error)) return;
    for (int n = 0; n < 5; n++) {
        char name[64];
        snprintf(name, sizeof name, "grad.%s", inputs[n] ? inputs[n] : "");
        if (grads[n]) seed_compare(c, name, grads[n], count[n]);
    }
    int64_t parameters;
    const mha_named_tensor *list = mha_variant_gradients(l->layer, &parameters);
    for (int64_t n = 0; n < parameters; n++) {
        char name[96];
        snprintf(name, sizeof name, "grad.param.%s", list[n].name);
        seed_compare(c, name, list[n].data, verify_elements(&list[n]));
    }
    compare_importance(l);
}
