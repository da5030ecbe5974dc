/* test_attn_bits.c - rows must be bitwise identical for any batch and any division of queries and keys among calls,
 * tiles and kernels, on every ISA. */
#include "support/attn/problem.h"
#include "support/check.h"
#include "support/isas.h"
#include "support/masked.h"
#include <string.h>

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
    tensor_copy_part(&part->q, &whole->q, b, first);
    tensor_copy_part(&part->k, &whole->k, b, 0);
    tensor_copy_part(&part->v, &whole->v, b, 0);
    if (d.inputs & MHA_ATTN_KEEP) tensor_copy_part(&part->keep, &whole->keep, b, first);
    if (d.inputs & MHA_ATTN_BIAS) tensor_copy_part(&part->bias, &whole->bias, b, first);
    if (d.inputs & MHA_ATTN_SLOPES) tensor_copy_part(&part->slopes, &whole->slopes, b, 0);
    if (d.inputs & MHA_ATTN_SINKS) tensor_copy_part(&part->sinks, &whole->sinks, b, 0);
    if (d.inputs & MHA_ATTN_GATES) tensor_copy_part(&part->gates, &whole->gates, b, 0);
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
    const mha_attn_desc half = masked_halves(), bf16 = masked_bf16(masked_desc);
    mha_attn_desc plain = bf16;
    plain.inputs = 0;
    mha_attn_desc functions = masked_desc, functions_bf16;
    functions.inputs = MHA_ATTN_FUNCTIONS | MHA_ATTN_KEEP | MHA_ATTN_BIAS;
    functions.softcap = 5;
    functions_bf16 = masked_bf16(functions);
    mha_attn_desc wide = masked_desc; /* heads of several groups of columns */
    wide.heads = 2, wide.kv_heads = 1;
    wide.head_dim = 1100, wide.v_head_dim = 1030;
    wide.inputs = MHA_ATTN_KEEP | MHA_ATTN_FUNCTIONS;
    const mha_attn_desc all[] = {masked_desc, half, functions, wide};
    for (int n = 0; n < isa_count; n++) {
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            if (n < isa_count_of(all[k].dtype)) check_parts(isa_contexts[n], &all[k]);
        if (!masked_multiplies_bf16(isa_contexts[n])) continue;
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
    const mha_attn_desc types[] = {causal, masked_bf16(causal)};
    for (int n = 0; n < 2 * isa_count; n++) {
        problem whole;
        if (n / 2 >= isa_count_of(types[n % 2].dtype)) continue;
        if (n % 2 == 1 && !masked_multiplies_bf16(isa_contexts[n / 2])) continue;
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
        if (masked_multiplies_bf16(many[n])) check_decode(many[n], &window);
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
            const mha_attn_desc bf16 = masked_bf16(d);
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

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts), cmocka_unit_test(test_decode), cmocka_unit_test(test_causal_prefix),
        cmocka_unit_test(test_short), cmocka_unit_test(test_blocks),
    };
    return cmocka_run_group_tests(tests, isa_setup, isa_teardown);
}
