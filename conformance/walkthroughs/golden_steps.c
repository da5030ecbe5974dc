/* golden_steps.c - walk-throughs of single steps: products of heads, masks, softmax, dropout, embedding, splitting into
 * heads. The library's operator or layer computes each step from inputs that isolate it. */
#include "conformance/walkthroughs/golden_seeds.h"
#include <math.h>
#include <string.h>

/* Returns the identity matrix [n, n]. */
static float *identity(seed_case *c, int64_t n)
{
    float *eye = seed_alloc(c, n * n);
    for (int64_t i = 0; eye && i < n; i++)
        eye[i * n + i] = 1;
    return eye;
}

/* Runs the operator's forward pass, and its backward pass for the recorded gradient of the output. `grads` holds dout
 * and the requested gradients; out and dout must have the same layout. */
static bool attend(seed_case *c, mha_attn_desc desc, mha_attn_args args, mha_attn_grads grads, int64_t lse_count)
{
    mha_error error = {0};
    args.lse.data = seed_alloc(c, lse_count);
    if (!args.lse.data) return false;
    desc.outputs |= MHA_ATTN_LSE;
    if (!seed_ok(c, mha_attention(c->ctx, &desc, &args, &error), &error)) return false;
    grads.out.data = args.out.data;
    grads.lse.data = args.lse.data;
    desc.outputs = MHA_ATTN_LSE | MHA_ATTN_GRADS;
    desc.scores = MHA_SCORES_RAW;
    return seed_ok(c, mha_attention_backward(c->ctx, &desc, &args, &grads, &error), &error);
}

/* ---- products of a matrix and its transpose ---- */

/* Compares a a^T, which a linear layer with the input a and the weight a computes. The gradient of a is the sum of the
 * gradients of input and weight. */
static void check_product(seed_case *c)
{
    int64_t shape[4] = {-1, -1, -1, -1};
    const float *a = seed_values(c, "input.a", 4, shape);
    const int64_t heads = shape[0] * shape[1], rows = shape[2], cols = shape[3];
    int64_t square[4] = {shape[0], shape[1], rows, rows};
    const float *dy = seed_values(c, "cotangent.output", 4, square);
    float *y = a ? seed_alloc(c, heads * rows * rows) : NULL, *da = a ? seed_alloc(c, heads * rows * cols) : NULL;
    mha_error error = {0};
    for (int64_t h = 0; dy && y && da && h < heads; h++) {
        const float *head = a + h * rows * cols;
        mha_linear *linear = NULL;
        if (!seed_ok(c, mha_linear_create(c->ctx, cols, rows, head, NULL, &linear, &error), &error)) return;
        const mha_status status = mha_linear_forward(linear, head, rows, y + h * rows * rows, &error);
        mha_linear_free(linear);
        const mha_linear_gradient g = {.size = sizeof g,
                                       .rows = rows,
                                       .in = cols,
                                       .matrix = {.weight = head, .out = rows},
                                       .x = head,
                                       .dy = dy + h * rows * rows,
                                       .dx = da + h * rows * cols};
        mha_linear_gradient as_weight = g;
        as_weight.dx = NULL;
        as_weight.dweight = g.dx;
        if (!seed_ok(c, status, &error) || !seed_ok(c, mha_linear_backward(c->ctx, &g, &error), &error) ||
            !seed_ok(c, mha_linear_backward(c->ctx, &as_weight, &error), &error))
            return;
    }
    seed_compare(c, "input.a", a, heads * rows * cols);
    seed_compare(c, "expect.output", y, heads * rows * rows);
    seed_compare(c, "grad.input.a", da, heads * rows * cols);
}

/* ---- a matrix split into heads ---- */

/* Compares a matrix that is split into heads. If every token attends only to itself, attention returns v. This tests
 * how the operator's strides split and merge heads. */
static void check_split(seed_case *c)
{
    const int64_t heads = verify_int(&c->config, "heads"), D = verify_int(&c->config, "head_dim");
    int64_t shape[2] = {-1, heads * D};
    const float *a = seed_values(c, "input.a", 2, shape);
    const int64_t T = shape[0], count = T * heads * D;
    int64_t by_head_shape[3] = {heads, T, D};
    const float *dy = a ? seed_values(c, "cotangent.output", 3, by_head_shape) : NULL;
    float *split = dy ? seed_alloc(c, count) : NULL, *merged = dy ? seed_alloc(c, count) : NULL;
    float *da = dy ? seed_alloc(c, count) : NULL;
    mha_error error = {0};
    if (!split || !merged || !da) return;
    const mha_attn_desc desc = {.size = sizeof desc,
                                .batch = 1,
                                .heads = heads,
                                .q_len = T,
                                .kv_len = T,
                                .head_dim = D,
                                .align = MHA_ALIGN_TOP_LEFT,
                                .window = {1, 0, 0}};
    const mha_cview by_token = {a, {count, D, heads * D, 1}}, by_head = {split, {count, T * D, D, 1}};
    mha_attn_args args = {.size = sizeof args, .q = by_token, .k = by_token, .v = by_token, .out = {split, {0}}};
    const mha_attn_grads grads = {.size = sizeof grads, .dout.data = dy, .dv = {da, {count, D, heads * D, 1}}};
    if (!attend(c, desc, args, grads, heads * T)) return;
    args.q = args.k = args.v = by_head;
    args.out = (mha_view){merged, {count, D, heads * D, 1}};
    if (!seed_ok(c, mha_attention(c->ctx, &desc, &args, &error), &error)) return;
    seed_compare(c, "input.a", a, count);
    seed_compare(c, "expect.view", a, count);
    seed_compare(c, "expect.output", split, count);
    seed_compare(c, "expect.merged", merged, count);
    seed_compare(c, "grad.input.a", da, count);
}

/* ---- mask, softmax and dropout of given scores ---- */

/* Describes one causal head of T rows whose scores are its queries. */
static mha_attn_desc scores_as_given(int64_t T, double dropout)
{
    return (mha_attn_desc){.size = sizeof(mha_attn_desc),
                           .batch = 1,
                           .heads = 1,
                           .q_len = T,
                           .kv_len = T,
                           .head_dim = T,
                           .scale = 1,
                           .causal = 1,
                           .align = MHA_ALIGN_TOP_LEFT,
                           .dropout = dropout,
                           .inputs = MHA_ATTN_DROPOUT_KEEP,
                           .scores = MHA_SCORES_BIASED,
                           .outputs = MHA_ATTN_PROBS | MHA_ATTN_SCORES};
}

/* Compares masked scores and weights. With identity matrices as k and v and scale 1, the scores are q, and the output
 * is the weights after dropout. */
static void check_masking(seed_case *c)
{
    int64_t shape[2] = {-1, -1};
    const float *q = seed_values(c, "input.scaled_scores", 2, shape);
    const int64_t T = shape[0], count = T * shape[1];
    if (q && T != shape[1]) verify_fault(&c->entry, "\"input.scaled_scores\" must be square");
    const float *mask = seed_values(c, "mask.dropout", 2, shape);
    const float *dy = seed_values(c, "cotangent.output", 2, shape);
    const float *eye = q && mask && dy ? identity(c, T) : NULL;
    if (!eye) return;
    float *out = seed_alloc(c, count), *probs = seed_alloc(c, count), *scores = seed_alloc(c, count);
    float *tril = seed_alloc(c, count), *added = seed_alloc(c, count), *dq = seed_alloc(c, count);
    uint8_t *keep = verify_alloc(&c->memory, count, 1, &c->entry);
    if (!out || !probs || !scores || !tril || !added || !dq || !keep) return;
    for (int64_t n = 0; n < count; n++)
        keep[n] = mask[n] != 0;
    const mha_attn_desc desc = scores_as_given(T, verify_real(&c->config, "dropout"));
    const mha_attn_args args = {.size = sizeof args,
                                .q.data = q,
                                .k.data = eye,
                                .v.data = eye,
                                .out.data = out,
                                .dropout_keep = {keep, {0, 0, T, 1}},
                                .probs.data = probs,
                                .scores.data = scores};
    const mha_attn_grads grads = {.size = sizeof grads, .dout.data = dy, .dq.data = dq};
    if (!attend(c, desc, args, grads, T)) return;
    for (int64_t n = 0; n < count; n++) {
        tril[n] = isfinite(scores[n]) ? 1 : 0;
        added[n] = isfinite(scores[n]) ? 0 : scores[n];
    }
    seed_compare(c, "input.scaled_scores", q, count);
    seed_compare(c, "expect.tril", tril, count);
    seed_compare(c, "expect.additive_mask", added, count);
    seed_compare(c, "expect.masked_scores", scores, count);
    seed_compare(c, "expect.attention", probs, count);
    seed_compare(c, "expect.output", out, count);
    seed_compare(c, "grad.input.scaled_scores", dq, count);
}

/* Compares softmax(x, 0), computed from queries x, keys 1 and 0, and the identity matrix as v. */
static void check_curve(seed_case *c)
{
    int64_t points[1] = {-1};
    const float *x = seed_values(c, "input.x", 1, points), *eye = x ? identity(c, 2) : NULL;
    int64_t pairs[2] = {points[0], 2};
    const float *dy = eye ? seed_values(c, "cotangent.output", 2, pairs) : NULL;
    float *out = dy ? seed_alloc(c, 2 * points[0]) : NULL, *dx = dy ? seed_alloc(c, points[0]) : NULL;
    const float keys[2] = {1, 0};
    if (!out || !dx) return;
    const mha_attn_desc desc = {.size = sizeof desc,
                                .batch = 1,
                                .heads = 1,
                                .q_len = points[0],
                                .kv_len = 2,
                                .head_dim = 1,
                                .v_head_dim = 2,
                                .scale = 1};
    const mha_attn_args args = {.size = sizeof args, .q.data = x, .k.data = keys, .v.data = eye, .out.data = out};
    const mha_attn_grads grads = {.size = sizeof grads, .dout.data = dy, .dq.data = dx};
    if (!attend(c, desc, args, grads, points[0])) return;
    seed_compare(c, "expect.output", out, 2 * points[0]);
    seed_compare(c, "grad.input.x", dx, points[0]);
}

/* Applies dropout: the stored mask or, from the seed, a mask that is sampled again. */
static bool drop(seed_case *c, const float *x, const float *mask, float *y, int64_t count)
{
    mha_error error = {0};
    mha_rng rng = c->at_dropout;
    for (int64_t n = 0; n < count; n++)
        y[n] = x[n] * mask[n];
    return !c->from_seed ||
           seed_ok(
               c, mha_rng_dropout(&rng, verify_real(&c->config, "dropout"), MHA_RNG_ROUTE_DEFAULT, x, y, count, &error),
               &error);
}

static void check_dropout(seed_case *c)
{
    int64_t shape[2] = {-1, -1};
    const float *x = seed_values(c, "input.x", 2, shape), *mask = seed_values(c, "mask.dropout", 2, shape);
    const float *dy = seed_values(c, "cotangent.output", 2, shape);
    const int64_t count = x ? shape[0] * shape[1] : 0;
    float *y = seed_alloc(c, count), *dx = seed_alloc(c, count), zeros = 0;
    double sum = 0;
    if (!x || !mask || !dy || !y || !dx || !drop(c, x, mask, y, count) || !drop(c, dy, mask, dx, count)) return;
    for (int64_t n = 0; n < count; n++) {
        zeros += y[n] == 0;
        sum += (double)y[n];
    }
    const float mean = (float)(sum / (double)count);
    seed_compare(c, "input.x", x, count);
    seed_compare(c, "expect.output", y, count);
    seed_compare(c, "expect.zeros", &zeros, 1);
    seed_compare(c, "expect.mean", &mean, 1);
    seed_compare(c, "grad.input.x", dx, count);
}

/* ---- embedding ---- */

static void check_embedding(seed_case *c)
{
    int64_t table_shape[2] = {-1, -1}, rows[1] = {-1};
    const float *table = seed_values(c, "param.embedding.weight", 2, table_shape);
    const float *indices = seed_values(c, "const.indices", 1, rows);
    if (!table || !indices) return;
    const int64_t count = table_shape[0], width = table_shape[1];
    int64_t shape[2] = {rows[0], width};
    const float *dy = seed_values(c, "cotangent.output", 2, shape);
    int32_t *ids = verify_alloc(&c->memory, rows[0], sizeof *ids, &c->entry);
    float *y = seed_alloc(c, rows[0] * width), *dtable = seed_alloc(c, count * width);
    mha_error error = {0};
    if (!dy || !ids || !y || !dtable) return;
    for (int64_t n = 0; n < rows[0]; n++)
        ids[n] = indices[n] >= 0 && indices[n] < 1e6f ? (int32_t)indices[n] : -1;
    if (!seed_ok(c, mha_embedding_forward("ids", table, count, width, ids, rows[0], 0, y, &error), &error) ||
        !seed_ok(c, mha_embedding_backward("ids", dtable, count, width, ids, rows[0], dy, &error), &error))
        return;
    seed_compare(c, "expect.output", y, rows[0] * width);
    seed_compare(c, "grad.param.embedding.weight", dtable, count * width);
}

bool seed_step(seed_case *c)
{
    static const struct {
        const char *tensor;
        void (*check)(seed_case *c);
    } steps[] = {
        {"expect.view", check_split},           {"input.a", check_product},
        {"input.scaled_scores", check_masking}, {"param.embedding.weight", check_embedding},
        {"mask.dropout", check_dropout},        {"input.x", check_curve},
    };
    for (size_t n = 0; n < sizeof steps / sizeof *steps; n++)
        if (seed_has(c, steps[n].tensor)) {
            steps[n].check(c);
            return true;
        }
    return false;
}
