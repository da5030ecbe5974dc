/* test_attn_pages.c - results with paged keys must be bitwise identical to those of a dense call for any page size and
 * order, on every ISA. Unused memory must not be read, dropped pages must be masked, and invalid page tables must be
 * rejected. */
#include "support/attn/paged.h"
#include "support/check.h"
#include "support/isas.h"
#include <string.h>

#define SIZES .size = sizeof(mha_attn_desc), .batch = 3, .heads = 4, .kv_heads = 2, .kv_len = 1300
static const mha_attn_desc shapes[] = {
    {SIZES, .q_len = 5, .outputs = MHA_ATTN_LSE | MHA_ATTN_STATS, .head_dim = 32, .causal = 1,
     .align = MHA_ALIGN_BOTTOM_RIGHT, .inputs = MHA_ATTN_KV_LENS},
    {SIZES, .q_len = 1, .outputs = MHA_ATTN_LSE, .head_dim = 40, .v_head_dim = 24,
     .inputs = MHA_ATTN_KV_LENS | MHA_ATTN_KEEP},
    {SIZES, .q_len = 140, .outputs = MHA_ATTN_LSE, .head_dim = 16, .v_head_dim = 64, .window = {1, 200, 0},
     .align = MHA_ALIGN_BOTTOM_RIGHT},
    {SIZES, .q_len = 3, .head_dim = 7, .inputs = MHA_ATTN_BIAS, .outputs = MHA_ATTN_LSE | MHA_ATTN_PROBS},
    {SIZES, .q_len = 2, .outputs = MHA_ATTN_LSE, .head_dim = 8, .dtype = MHA_F64},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Paged keys must give the result of dense keys. paged_make sets unused pages and the memory after each sequence to
 * NaN. */
static void test_paged_is_dense(void **state)
{
    (void)state;
    static const int64_t sizes[] = {16, 64, 128, 256, 2048};
    for (int shape = 0; shape < SHAPES; shape++)
        for (int n = 0; n < isa_count; n++) {
            problem dense;
            if (n >= isa_count_of(shapes[shape].dtype)) continue;
            problem_make(&dense, &shapes[shape], NULL, 71);
            problem_run(isa_contexts[n], &dense);
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                problem paged;
                problem_make(&paged, &shapes[shape], NULL, 71);
                paged_make(&paged, sizes[s], 72 + s);
                problem_run(isa_contexts[n], &paged);
                if (!problem_same_bits(&dense, &paged))
                    fail_msg("%s: shape %d: pages of %lld keys must not change the result",
                             mha_ctx_isa(isa_contexts[n]), shape, (long long)sizes[s]);
                problem_free(&paged);
            }
            problem_free(&dense);
        }
}

/* Dropping a page must give the result of masking its keys with `keep` in a dense problem. */
static void test_dropped_is_masked(void **state)
{
    (void)state;
    static const int64_t sizes[] = {16, 32, 128, 512};
    mha_attn_desc d = shapes[0];
    d.inputs = MHA_ATTN_KEEP;
    d.outputs |= MHA_ATTN_PROBS;
    for (int n = 0; n < isa_count_of(d.dtype); n++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            problem paged, masked;
            problem_make(&paged, &d, NULL, 73);
            problem_make(&masked, &d, NULL, 73);
            paged_make(&paged, sizes[s], 74);
            for (int64_t page = 1; page * sizes[s] < d.kv_len; page += page % 5 ? 1 : 2) {
                paged_drop(&paged, 1, page);
                for (int64_t j = page * sizes[s]; j < d.kv_len && j < (page + 1) * sizes[s]; j++)
                    for (int64_t row = 0; row < d.heads * d.q_len; row++)
                        tensor_set(&masked.keep, 1, row / d.q_len, row % d.q_len, j, 0);
            }
            problem_run(isa_contexts[n], &paged);
            problem_run(isa_contexts[n], &masked);
            if (!problem_same_bits(&paged, &masked))
                fail_msg("%s: dropped pages of %lld keys must give the result of masked keys",
                         mha_ctx_isa(isa_contexts[n]), (long long)sizes[s]);
            problem_free(&paged);
            problem_free(&masked);
        }
}

/* If all pages of a sequence are dropped, out and probs must be 0 and lse -inf for its rows. */
static void test_all_dropped(void **state)
{
    (void)state;
    for (int n = 0; n < isa_count; n++)
        for (int64_t size = 16; size <= 256; size *= 4) {
            problem p;
            problem_make(&p, &shapes[3], NULL, 75);
            paged_make(&p, size, 76);
            for (int64_t page = 0; page < p.table_width; page++)
                paged_drop(&p, 2, page);
            problem_run(isa_contexts[n], &p);
            assert_true(tensor_get(&p.out, 2, 3, 1, 0) == 0 && tensor_get(&p.probs, 2, 3, 1, 700) == 0);
            assert_true(tensor_get(&p.lse, 2, 3, 1, 0) == (double)-INFINITY);
            assert_true(isfinite(tensor_get(&p.lse, 1, 3, 1, 0)));
            problem_free(&p);
        }
}

/* Sequences that share pages must give the result of sequences with separate copies. */
static void test_shared(void **state)
{
    (void)state;
    for (int n = 0; n < isa_count_of(shapes[2].dtype); n++) {
        problem shared, apart;
        problem_make(&shared, &shapes[2], NULL, 77);
        problem_make(&apart, &shapes[2], NULL, 77);
        for (int64_t at = 0; at < 2 * 1300 * 16; at++) /* copies keys 0 to 639 of entry 0 to entry 1 */
            if (at / 16 % 1300 < 640)
                tensor_set(&apart.k, 1, at / (1300 * 16), at / 16 % 1300, at % 16,
                           tensor_get(&apart.k, 0, at / (1300 * 16), at / 16 % 1300, at % 16));
        for (int64_t at = 0; at < 2 * 1300 * 64; at++)
            if (at / 64 % 1300 < 640)
                tensor_set(&apart.v, 1, at / (1300 * 64), at / 64 % 1300, at % 64,
                           tensor_get(&apart.v, 0, at / (1300 * 64), at / 64 % 1300, at % 64));
        paged_make(&shared, 64, 78);
        memcpy(shared.table + shared.table_width, shared.table, 10 * sizeof *shared.table);
        problem_run(isa_contexts[n], &shared);
        problem_run(isa_contexts[n], &apart);
        if (!problem_same_bits(&shared, &apart))
            fail_msg("%s: shared pages must not change the result", mha_ctx_isa(isa_contexts[n]));
        problem_free(&shared);
        problem_free(&apart);
    }
}

static void expect_refusal(problem *p, const char *field, const char *value)
{
    mha_error err = {0};
    assert_int_equal(mha_attention(NULL, &p->desc, &p->args, &err), MHA_ERR_ARG);
    if (!strstr(err.message, field) || !check_has_word(err.message, value))
        fail_msg("message must contain %s and %s (got \"%s\")", field, value, err.message);
    assert_true(tensor_get(&p->out, 0, 0, 0, 0) == TEST_CANARY);
}

static void test_wrong_tables(void **state)
{
    (void)state;
    problem p;
    problem_make(&p, &shapes[0], NULL, 79);
    p.kv_lens[0] = p.kv_lens[1] = p.kv_lens[2] = 200;
    paged_make(&p, 64, 80);
    const int64_t pages = p.desc.pages;
    int32_t *entry = &p.table[2 * p.table_width + 3], right = *entry;
    *entry = (int32_t)pages;
    expect_refusal(&p, "block_table[2][3]", "66");
    assert_int_equal(pages, 66);
    *entry = -2;
    expect_refusal(&p, "block_table[2][3]", "-2");
    *entry = right;
    p.args.block_table.data = (const char *)p.table + 2;
    expect_refusal(&p, "block_table", "4");
    problem_bind(&p);
    p.args.block_table.data = NULL;
    expect_refusal(&p, "block_table", "NULL");
    problem_bind(&p);
    p.args.k.data = NULL;
    expect_refusal(&p, "k", "NULL");
    problem_bind(&p);
    p.args.out = tensor_view(&p.v);
    mha_error err = {0};
    assert_int_equal(mha_attention(NULL, &p.desc, &p.args, &err), MHA_ERR_ARG);
    problem_bind(&p);
    for (int n = 0; n < isa_count; n++)
        problem_run(isa_contexts[n], &p);
    problem_free(&p);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paged_is_dense), cmocka_unit_test(test_dropped_is_masked),
        cmocka_unit_test(test_all_dropped), cmocka_unit_test(test_shared), cmocka_unit_test(test_wrong_tables)};
    return cmocka_run_group_tests(tests, isa_setup_two, isa_teardown);
}
