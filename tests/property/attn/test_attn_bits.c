/* test_attn_bits.c - results must be bitwise identical for any batching, layout, number of threads and split, on every
 * ISA. */
#include "support/attn/paged.h"
#include "support/attn/problem.h"
#include "support/check.h"
#include "support/isas.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const mha_attn_desc masked = {.size = sizeof masked,
                                     .batch = 3,
                                     .heads = 6,
                                     .kv_heads = 2,
                                     .q_len = 67,
                                     .kv_len = 131,
                                     .head_dim = 40,
                                     .v_head_dim = 24,
                                     .causal = 1,
                                     .align = MHA_ALIGN_BOTTOM_RIGHT,
                                     .window = {1, 50, -1},
                                     .inputs = MHA_ATTN_KEEP | MHA_ATTN_BIAS | MHA_ATTN_SLOPES | MHA_ATTN_SINKS |
                                               MHA_ATTN_GATES | MHA_ATTN_PREFIX_LENS,
                                     .top_keys = 3,
                                     .outputs = MHA_ATTN_LSE | MHA_ATTN_PROBS | MHA_ATTN_STATS};

/* Returns the description `masked` with a 16-bit type for every tensor that supports one. */
static mha_attn_desc halves(void)
{
    mha_attn_desc d = masked;
    d.dtype = MHA_BF16;
    d.kv_dtype = MHA_F16;
    d.bias_dtype = MHA_BF16;
    return d;
}

/* Returns `d` with all types set to bf16. The ISAs avx512bf16 and amx multiply bf16 directly, while other ISAs convert
 * to f32 first, as for f16. */
static mha_attn_desc all_bf16(mha_attn_desc d)
{
    d.dtype = d.kv_dtype = d.bias_dtype = MHA_BF16;
    return d;
}

static bool multiplies_bf16(mha_ctx *ctx)
{
    return strcmp(mha_ctx_isa(ctx), "avx512bf16") == 0 || strcmp(mha_ctx_isa(ctx), "amx") == 0;
}

/* Copies the elements of `from` from batch entry b and row l on to `to`. If `from` has fewer heads, each of its heads
 * is repeated. */
static void copy_block(tensor *to, const tensor *from, int64_t b, int64_t l)
{
    int64_t share = to->dim[1] / from->dim[1];
    for (int64_t n = 0; n < to->dim[0]; n++)
        for (int64_t h = 0; h < to->dim[1]; h++)
            for (int64_t i = 0; i < to->dim[2]; i++)
                for (int64_t d = 0; d < to->dim[3]; d++)
                    tensor_set(to, n, h, i, d, tensor_get(from, b + n, h / share, l + i, d));
}

/* Makes the problem that consists of rows [first, first + count) of batch entry b and the first `keys` keys. */
static void cut(problem *part, const problem *whole, int64_t b, int64_t first, int64_t count, int64_t keys)
{
    mha_attn_desc d = whole->desc;
    d.batch = 1;
    d.q_len = count;
    d.kv_len = keys;
    d.align = MHA_ALIGN_OFFSETS;
    d.shard.batch = b; /* for user functions */
    problem_make(part, &d, NULL, 1);
    copy_block(&part->q, &whole->q, b, first);
    copy_block(&part->k, &whole->k, b, 0);
    copy_block(&part->v, &whole->v, b, 0);
    if (d.inputs & MHA_ATTN_KEEP) copy_block(&part->keep, &whole->keep, b, first);
    if (d.inputs & MHA_ATTN_BIAS) copy_block(&part->bias, &whole->bias, b, first);
    if (d.inputs & MHA_ATTN_SLOPES) copy_block(&part->slopes, &whole->slopes, b, 0);
    if (d.inputs & MHA_ATTN_SINKS) copy_block(&part->sinks, &whole->sinks, b, 0);
    if (d.inputs & MHA_ATTN_GATES) copy_block(&part->gates, &whole->gates, b, 0);
    part->prefix_lens[0] = whole->prefix_lens[b] < keys ? whole->prefix_lens[b] : keys;
    /* the offset that bottom-right alignment gives row `first` of the whole problem */
    part->offsets[0] = whole->desc.kv_len - whole->desc.q_len + first;
}

/* Fails unless every row of `part` is bitwise identical to the row of batch entry b in `whole`, from row `first` on. */
static void assert_rows_equal(const tensor *whole, int64_t b, int64_t first, const tensor *part)
{
    for (int64_t h = 0; h < part->dim[1]; h++)
        for (int64_t i = 0; i < part->dim[2]; i++)
            for (int64_t d = 0; d < part->dim[3]; d++) {
                double x = tensor_get(whole, b, h, first + i, d), y = tensor_get(part, 0, h, i, d);
                if (memcmp(&x, &y, sizeof x) != 0)
                    fail_msg(
                        "row %lld of entry %lld, head %lld, column %lld: expected %.9g as in the whole problem, got "
                        "%.9g in the part",
                        (long long)(first + i), (long long)b, (long long)h, (long long)d, x, y);
            }
}

static void check_cut(mha_ctx *ctx, const problem *whole, int64_t b, int64_t first, int64_t count, int64_t keys)
{
    problem part;
    cut(&part, whole, b, first, count, keys);
    problem_run(ctx, &part);
    assert_rows_equal(&whole->out, b, first, &part.out);
    if (whole->lse.memory) assert_rows_equal(&whole->lse, b, first, &part.lse);
    if (whole->probs.memory) assert_rows_equal(&whole->probs, b, first, &part.probs);
    for (int n = 0; n < PROBLEM_STATS; n++)
        if (whole->stats[n].memory && (n != RECEIVED || count == whole->desc.q_len))
            assert_rows_equal(&whole->stats[n], b, n == RECEIVED ? 0 : first, &part.stats[n]);
    problem_free(&part);
}

static void check_parts(mha_ctx *ctx, const mha_attn_desc *d)
{
    problem whole;
    problem_make(&whole, d, NULL, 11);
    problem_run(ctx, &whole);
    for (int64_t b = 0; b < d->batch; b++)
        check_cut(ctx, &whole, b, 0, d->q_len, d->kv_len);
    for (int64_t i = 0; i < d->q_len; i += 11)
        check_cut(ctx, &whole, i % d->batch, i, 1, d->kv_len);
    for (int64_t chunk = 5; chunk < d->q_len; chunk = 2 * chunk + 3)
        for (int64_t i = 0; i < d->q_len; i += chunk)
            check_cut(ctx, &whole, 2, i, chunk < d->q_len - i ? chunk : d->q_len - i, d->kv_len);
    problem_free(&whole);
}

/* Single batch entries, single rows, and prefill in chunks with offsets must give the same rows as the whole
 * problem. */
static void test_parts(void **state)
{
    (void)state;
    const mha_attn_desc half = halves(), bf16 = all_bf16(masked);
    mha_attn_desc plain = bf16;
    plain.inputs = 0;
    mha_attn_desc functions = masked, functions_bf16;
    functions.inputs = MHA_ATTN_FUNCTIONS | MHA_ATTN_KEEP | MHA_ATTN_BIAS;
    functions.softcap = 5;
    functions_bf16 = all_bf16(functions);
    mha_attn_desc wide = masked; /* heads of several groups of columns */
    wide.heads = 2, wide.kv_heads = 1;
    wide.head_dim = 1100, wide.v_head_dim = 1030;
    wide.inputs = MHA_ATTN_KEEP | MHA_ATTN_FUNCTIONS;
    const mha_attn_desc all[] = {masked, half, functions, wide};
    for (int n = 0; n < isa_count; n++) {
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            if (n < isa_count_of(all[k].dtype)) check_parts(isa_contexts[n], &all[k]);
        if (!multiplies_bf16(isa_contexts[n])) continue;
        check_parts(isa_contexts[n], &bf16);
        check_parts(isa_contexts[n], &plain);
        check_parts(isa_contexts[n], &functions_bf16);
    }
}

/* Row t of a causal problem attends to keys 0 to t. It must be bitwise identical to row t of a problem without later
 * keys: alone (token-by-token decoding), and with rows 0 to t - 1 (a shorter problem). Tests lengths near the ends of
 * key blocks. */
static void test_causal_prefix(void **state)
{
    (void)state;
    static const mha_attn_desc causal = {.size = sizeof causal,
                                         .batch = 1,
                                         .heads = 2,
                                         .kv_heads = 1,
                                         .q_len = 1100,
                                         .kv_len = 1100,
                                         .head_dim = 32,
                                         .causal = 1,
                                         .align = MHA_ALIGN_BOTTOM_RIGHT,
                                         .outputs = MHA_ATTN_LSE};
    static const int64_t rows[] = {0,   1,   62,  63,  64,  65,  126, 127,  128,  129,  254, 255,
                                   256, 257, 510, 511, 512, 513, 600, 1023, 1024, 1025, 1099};
    const mha_attn_desc types[] = {causal, all_bf16(causal)};
    for (int n = 0; n < 2 * isa_count; n++) {
        problem whole;
        if (n / 2 >= isa_count_of(types[n % 2].dtype)) continue;
        if (n % 2 == 1 && !multiplies_bf16(isa_contexts[n / 2])) continue;
        problem_make(&whole, &types[n % 2], NULL, 12);
        problem_run(isa_contexts[n / 2], &whole);
        for (size_t t = 0; t < sizeof rows / sizeof *rows; t++)
            check_cut(isa_contexts[n / 2], &whole, 0, rows[t], 1, rows[t] + 1);
        for (size_t t = 0; t < sizeof rows / sizeof *rows; t += 5)
            check_cut(isa_contexts[n / 2], &whole, 0, 0, rows[t] + 1, rows[t] + 1);
        problem_free(&whole);
    }
}

/* Decodes a few tokens per call, with the heads of a group folded into one tile and keys split over threads. Every row
 * must be bitwise identical to prefill. */
static void check_decode(mha_ctx *ctx, const mha_attn_desc *d)
{
    static const int64_t sizes[] = {1, 2, 7, 16};
    problem whole;
    problem_make(&whole, d, NULL, 18);
    problem_run(ctx, &whole);
    for (int64_t b = 0; b < d->batch; b++)
        for (int n = 0; n < 4; n++)
            for (int64_t i = 0; i + sizes[n] <= d->q_len; i += 3 * sizes[n])
                check_cut(ctx, &whole, b, i, sizes[n], d->kv_len - d->q_len + i + sizes[n]);
    problem_free(&whole);
}

static void test_decode(void **state)
{
    (void)state;
    mha_ctx *many[PROBLEM_ISAS];
    const int count = isas_create(many, 3);
    mha_attn_desc d = {.size = sizeof d,
                       .batch = 2,
                       .heads = 10,
                       .kv_heads = 2,
                       .q_len = 20,
                       .kv_len = 3090,
                       .head_dim = 48,
                       .v_head_dim = 136,
                       .causal = 1,
                       .align = MHA_ALIGN_BOTTOM_RIGHT,
                       .outputs = MHA_ATTN_LSE};
    mha_attn_desc masked_too = d, half = d, far = d, f16, window, functions, kept;
    masked_too.inputs = MHA_ATTN_KEEP | MHA_ATTN_BIAS;
    masked_too.outputs |= MHA_ATTN_PROBS;
    masked_too.kv_len = 2100;
    half.dtype = MHA_BF16;
    half.heads = 2;
    half.kv_len = 1500;
    f16 = half;
    f16.dtype = MHA_F16;
    functions = masked_too;
    functions.inputs = MHA_ATTN_FUNCTIONS;
    window = half;
    window.heads = 6;
    window.window = (mha_window){1, 300, -1};
    kept = window;
    kept.inputs = MHA_ATTN_KEEP;
    kept.head_dim = kept.v_head_dim = 31; /* bf16 pairs are not whole */
    far.batch = 1;
    far.heads = 3;
    far.kv_heads = 1;
    far.head_dim = 5;
    far.v_head_dim = 3;
    far.kv_len = 69000; /* more key chunks than splits */
    far.q_len = 17;
    const mha_attn_desc all[] = {d, masked_too, half, f16, functions, kept, far};
    for (int n = 0; n < count; n++) {
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            if (n < isa_count_of(all[k].dtype)) check_decode(many[n], &all[k]);
        if (multiplies_bf16(many[n])) check_decode(many[n], &window);
    }
    isas_free(many, count);
}

/* A block mask must give the same bits as the mask of single keys that it stands for. */
static void check_blocks(mha_ctx *ctx, const mha_attn_desc *d)
{
    problem blocks, keys;
    mha_attn_desc by_block = *d, by_key = *d;
    by_block.inputs |= MHA_ATTN_BLOCK_KEEP, by_block.block_q = 2, by_block.block_k = 50;
    by_key.inputs |= MHA_ATTN_KEEP;
    problem_make(&blocks, &by_block, NULL, 31);
    problem_make(&keys, &by_key, NULL, 31);
    for (int64_t h = 0; h < d->heads; h++)
        for (int64_t i = 0; i < d->q_len; i++)
            for (int64_t j = 0; j < d->kv_len; j++)
                tensor_set(&keys.keep, 0, h, i, j, tensor_get(&blocks.block_keep, 0, h, i / 2, j / 50));
    problem_run(ctx, &blocks);
    problem_run(ctx, &keys);
    if (!problem_same_bits(&blocks, &keys))
        fail_msg("%s, %s, %lld queries: a block mask must be bitwise identical to its keys", mha_ctx_isa(ctx),
                 mha_dtype_name(d->dtype), (long long)d->q_len);
    problem_free(&blocks);
    problem_free(&keys);
}

static void test_blocks(void **state)
{
    (void)state;
    mha_attn_desc d = {.size = sizeof d,
                       .batch = 1,
                       .heads = 6,
                       .kv_heads = 2,
                       .kv_len = 1300,
                       .head_dim = 24,
                       .outputs = MHA_ATTN_LSE | MHA_ATTN_PROBS};
    for (int n = 0; n < isa_count; n++)
        for (d.q_len = 1; d.q_len <= 3; d.q_len += 2) {
            const mha_attn_desc bf16 = all_bf16(d);
            if (n < isa_count_of(d.dtype)) check_blocks(isa_contexts[n], &d);
            check_blocks(isa_contexts[n], &bf16);
        }
}

/* Compares the path for short sequences (forward_single_block.c) with the tiled path, which is used for a problem with
 * gates of 1. */
static void check_short(mha_ctx *ctx, const mha_attn_desc *d, uint64_t seed)
{
    problem one, tiled;
    mha_attn_desc gated = *d;
    gated.inputs |= MHA_ATTN_GATES;
    problem_make(&one, d, NULL, seed);
    problem_make(&tiled, &gated, NULL, seed);
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t h = 0; h < d->heads; h++)
            tensor_set(&tiled.gates, b, h, 0, 0, 1);
    problem_run(ctx, &one);
    problem_run(ctx, &tiled);
    if (!problem_same_bits(&one, &tiled))
        fail_msg("%s, %lld queries, %lld keys: must be bitwise identical to the tiled path", mha_ctx_isa(ctx),
                 (long long)d->q_len, (long long)d->kv_len);
    problem_free(&one);
    problem_free(&tiled);
}

static void test_short(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 5, 16, 17, 33, 64, 127, 128, 200};
    mha_attn_desc d = {.size = sizeof d,
                       .batch = 3,
                       .heads = 4,
                       .kv_heads = 2,
                       .align = MHA_ALIGN_BOTTOM_RIGHT,
                       .inputs = MHA_ATTN_Q_LENS | MHA_ATTN_KV_LENS,
                       .outputs = MHA_ATTN_LSE};
    for (int n = 0; n < isa_count_of(d.dtype); n++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (size_t j = 0; lengths[j] <= 128; j++) {
                d.q_len = lengths[i];
                d.kv_len = lengths[j];
                d.head_dim = 1 + (int64_t)(7 * i + 5 * j) % 70;
                d.v_head_dim = 1 + (int64_t)(11 * i + 3 * j) % 70;
                d.causal = (int)(i + j) % 2;
                d.window = i % 3 == 0 ? (mha_window){1, 9, 4} : (mha_window){0};
                check_short(isa_contexts[n], &d, 100 * i + j);
            }
}

/* Returns true if the plan for `p` folds the heads of a group into one tile. */
static bool is_folded(mha_ctx *ctx, const problem *p)
{
    char text[4096];
    mha_attn_plan *plan;
    mha_error err = {0};
    if (mha_attn_plan_create(ctx, &p->desc, &plan, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_attn_plan_describe(plan, 1, text, sizeof text);
    mha_attn_plan_free(plan);
    return strstr(text, "\"folded\": true") != NULL;
}

static const mha_dtype folded_types[] = {MHA_F32, MHA_BF16, MHA_F16, MHA_F64, MHA_F32};

/* Two to sixteen queries of a group, folded into one tile, must give the same result as a call with a list of all
 * heads, which is not folded. Problems vary in layout, type, lengths, causal mask, window and paging. */
static void check_folded(mha_ctx *ctx, uint64_t number)
{
    problem p;
    char text[400];
    rng r = rng_make(91, number);
    mha_attn_desc d = {.size = sizeof d, .batch = rng_range(&r, 1, 2), .kv_heads = rng_range(&r, 1, 3)};
    d.heads = d.kv_heads * rng_range(&r, 2, 5);
    d.q_len = rng_range(&r, 2, 16);
    d.kv_len = rng_range(&r, 1025, 2600);
    if (rng_chance(&r, 0.3)) d.kv_len = rng_range(&r, 129, 400), d.batch = 2, d.kv_heads = 4, d.heads = 8;
    d.head_dim = rng_range(&r, 1, 40);
    d.v_head_dim = rng_range(&r, 1, 40);
    d.dtype = folded_types[number % 5];
    d.kv_dtype = number % 5 == 4 ? MHA_Q8_0 : MHA_DTYPE_DEFAULT;
    d.causal = rng_chance(&r, 0.7);
    d.align = MHA_ALIGN_BOTTOM_RIGHT;
    if (rng_chance(&r, 0.3)) d.window = (mha_window){1, rng_range(&r, 0, 1500), -1};
    if (rng_chance(&r, 0.5)) d.inputs |= MHA_ATTN_Q_LENS;
    if (rng_chance(&r, 0.5)) d.inputs |= MHA_ATTN_KV_LENS;
    if (rng_chance(&r, 0.6)) d.outputs |= MHA_ATTN_LSE;
    const problem_layouts at = {.q = tensor_layout_random(&r, true),
                                .k = tensor_layout_random(&r, true),
                                .v = tensor_layout_random(&r, true),
                                .out = tensor_layout_random(&r, false),
                                .lse = tensor_layout_random(&r, false)};
    problem_make(&p, &d, &at, number);
    if (rng_chance(&r, 0.3) && d.kv_dtype != MHA_Q8_0) tensor_set(&p.v, 0, 0, d.kv_len / 2, 0, NAN);
    if (rng_chance(&r, 0.4)) paged_make(&p, INT64_C(16) << rng_range(&r, 0, 4), number);
    if (!is_folded(ctx, &p)) fail_msg("%s: the heads of a group must be folded", problem_text(&p, text, sizeof text));
    problem_run(ctx, &p);
    problem one = p;
    one.desc.inputs |= MHA_ATTN_HEAD_LIST;
    one.desc.listed_heads = d.heads;
    for (int64_t h = 0; h < d.heads; h++)
        one.head_list[h] = (int32_t)h;
    tensor_make(&one.out, p.out.dtype, p.out.dim, &at.out, TEST_CANARY);
    if (d.outputs & MHA_ATTN_LSE) tensor_make(&one.lse, p.lse.dtype, p.lse.dim, &at.lse, TEST_CANARY);
    problem_bind(&one);
    assert_false(is_folded(ctx, &one));
    problem_run(ctx, &one);
    if (!problem_same_bits(&p, &one))
        fail_msg("%s: case %d: results must not depend on folding: %s", mha_ctx_isa(ctx), (int)number,
                 problem_text(&p, text, sizeof text));
    tensor_free(&one.out);
    tensor_free(&one.lse);
    problem_free(&p);
}

static void test_folded(void **state)
{
    (void)state;
    mha_ctx *many[PROBLEM_ISAS];
    const int count = isas_create(many, 3);
    for (int n = 0; n < count; n++)
        for (uint64_t number = 0; number < 40; number++)
            if (n < isa_count_of(folded_types[number % 5])) check_folded(many[n], number);
    isas_free(many, count);
}

static void test_grouped_heads(void **state)
{
    (void)state;
    for (int n = 0; n < isa_count_of(masked.dtype); n++) {
        problem grouped, repeated;
        mha_attn_desc d = masked;
        problem_make(&grouped, &masked, NULL, 13);
        d.kv_heads = 0;
        problem_make(&repeated, &d, NULL, 13);
        copy_block(&repeated.k, &grouped.k, 0, 0);
        copy_block(&repeated.v, &grouped.v, 0, 0);
        problem_run(isa_contexts[n], &grouped);
        problem_run(isa_contexts[n], &repeated);
        if (!problem_same_bits(&grouped, &repeated))
            fail_msg("%s: shared key/value heads must give the same result as copied heads",
                     mha_ctx_isa(isa_contexts[n]));
        problem_free(&grouped);
        problem_free(&repeated);
    }
}

/* ---- memory layouts ---- */

static const struct {
    const char *name;
    tensor_layout layout; /* layout of q, k, v, out and probs */
} layouts[] = {
    {"default strides", {.unspecified = true}},
    {"[B, L, H, D]", {.order = {0, 2, 1, 3}}},
    {"packed [B, L, q k v, H, D]", {.order = {0, 2, 1, 3}, .pad = {0, 12, 0, 0}}},
    {"[L, B, H, D]", {.order = {2, 0, 1, 3}}},
    {"[B, H, D, L]", {.order = {0, 1, 3, 2}}},
    {"padded rows", {.pad = {0, 0, 0, 3}}},
    {"padded everywhere", {.pad = {1, 2, 3, 5}}},
    {"rows backwards", {.flip = {false, false, true, false}}},
    {"all axes reversed", {.flip = {true, true, true, true}}},
    {"offset by one element", {.shift = 1}},
    {"offset by five elements, unaligned rows", {.shift = 5, .pad = {0, 0, 0, 1}}},
};

static void check_layout(mha_ctx *ctx, const problem *reference, const tensor_layout *layout, const char *name)
{
    problem p;
    problem_layouts at = {.q = *layout,
                          .k = *layout,
                          .v = *layout,
                          .out = *layout,
                          .keep = *layout,
                          .bias = *layout,
                          .lse = *layout,
                          .probs = *layout};
    at.keep.unspecified = at.bias.unspecified = false; /* with default strides, keep and bias would be broadcast */
    problem_make(&p, &reference->desc, &at, 14);
    problem_run(ctx, &p);
    if (!problem_same_bits(reference, &p))
        fail_msg("%s: layout \"%s\" must not change the result", mha_ctx_isa(ctx), name);
    problem_free(&p);
}

static void test_layouts(void **state)
{
    (void)state;
    mha_attn_desc whole_steps = all_bf16(masked);
    whole_steps.head_dim = whole_steps.v_head_dim = 64;
    const mha_attn_desc types[] = {masked, halves(), all_bf16(masked), whole_steps};
    enum { TYPES = sizeof types / sizeof *types };
    for (int n = 0; n < TYPES * isa_count; n++) {
        problem reference;
        if (n / TYPES >= isa_count_of(types[n % TYPES].dtype)) continue;
        if (n % TYPES >= 2 && !multiplies_bf16(isa_contexts[n / TYPES])) continue;
        problem_make(&reference, &types[n % TYPES], NULL, 14);
        problem_run(isa_contexts[n / TYPES], &reference);
        for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++)
            check_layout(isa_contexts[n / TYPES], &reference, &layouts[k].layout, layouts[k].name);
        problem_free(&reference);
    }
}

/* Inputs broadcast with a stride of 0 must give the same result as explicit copies; tests the batch, head and row
 * axis. */
static void test_broadcast(void **state)
{
    (void)state;
    for (int n = 0; n < isa_count_of(masked.dtype); n++)
        for (int axis = 0; axis < 3; axis++) {
            problem thin, thick;
            problem_layouts at = {0};
            at.q.repeat[axis] = at.k.repeat[axis] = at.v.repeat[axis] = true;
            at.keep.repeat[axis] = at.bias.repeat[axis] = true;
            problem_make(&thin, &masked, &at, 15);
            problem_make(&thick, &masked, NULL, 15);
            tensor_copy(&thick.q, &thin.q);
            tensor_copy(&thick.k, &thin.k);
            tensor_copy(&thick.v, &thin.v);
            tensor_copy(&thick.keep, &thin.keep);
            tensor_copy(&thick.bias, &thin.bias);
            problem_run(isa_contexts[n], &thin);
            problem_run(isa_contexts[n], &thick);
            if (!problem_same_bits(&thin, &thick))
                fail_msg("%s: broadcast over axis %d must equal explicit copies", mha_ctx_isa(isa_contexts[n]), axis);
            problem_free(&thin);
            problem_free(&thick);
        }
}

/* ---- number of threads ---- */

static void check_threads(const mha_attn_desc *d)
{
    static const int threads[] = {2, 3, 7};
    problem one, many;
    problem_make(&one, d, NULL, 16);
    problem_make(&many, d, NULL, 16);
    for (int n = 0; n < isa_count_of(d->dtype); n++) {
        problem_run(isa_contexts[n], &one);
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            mha_ctx *ctx;
            mha_error err = {0};
            mha_ctx_options options = {
                .size = sizeof options, .threads = threads[t], .isa = mha_ctx_isa(isa_contexts[n])};
            if (mha_ctx_create(&options, &ctx, &err) != MHA_OK) fail_msg("%s", err.message);
            assert_int_equal(mha_ctx_threads(ctx), threads[t]);
            problem_run(ctx, &many);
            if (!problem_same_bits(&one, &many))
                fail_msg("%s: %d threads must not change the result", mha_ctx_isa(isa_contexts[n]), threads[t]);
            mha_ctx_free(ctx);
        }
    }
    problem_free(&one);
    problem_free(&many);
}

static void test_threads(void **state)
{
    (void)state;
    mha_attn_desc d = masked;
    d.dropout = 0.25;
    check_threads(&d);
    d.inputs |= MHA_ATTN_FUNCTIONS;
    check_threads(&d);
    d = all_bf16(d);
    check_threads(&d);
}

/* If out overwrites q, the result must be the same. */
static void test_out_is_q(void **state)
{
    (void)state;
    const mha_attn_desc types[] = {masked, halves(), all_bf16(masked)};
    for (int n = 0; n < 3 * isa_count; n++) {
        mha_ctx *ctx = isa_contexts[n / 3];
        mha_attn_desc d = types[n % 3];
        problem apart, in_place;
        d.v_head_dim = 0;
        if (n / 3 >= isa_count_of(d.dtype)) continue;
        problem_make(&apart, &d, NULL, 17);
        problem_make(&in_place, &d, NULL, 17);
        problem_run(ctx, &apart);
        in_place.args.out = tensor_view(&in_place.q);
        problem_run(ctx, &in_place);
        if (!tensor_same_bits(&apart.out, &in_place.q) || !tensor_same_bits(&apart.lse, &in_place.lse) ||
            !tensor_same_bits(&apart.probs, &in_place.probs))
            fail_msg("%s: overwriting q must not change the result", mha_ctx_isa(ctx));
        if (!tensor_guards_intact(&in_place.q, TEST_POISON))
            fail_msg("%s: elements around q must not be written", mha_ctx_isa(ctx));
        problem_free(&apart);
        problem_free(&in_place);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),         cmocka_unit_test(test_folded),    cmocka_unit_test(test_decode),
        cmocka_unit_test(test_causal_prefix), cmocka_unit_test(test_short),     cmocka_unit_test(test_grouped_heads),
        cmocka_unit_test(test_layouts),       cmocka_unit_test(test_broadcast), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_out_is_q),      cmocka_unit_test(test_blocks)};
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
