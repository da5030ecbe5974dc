/* test_attn_flags.c - a pointer without its flag and a flag without its pointer must be rejected with a message that
 * names both. Structs of older or newer headers must be read up to their size. */
#include "mha/attn_grads.h"
#include "support/attn/problem.h"
#include "support/check.h"
#include <stdlib.h>
#include <string.h>

/* Zeroed memory, to which every operand of the calls below points. The calls must fail before they read an operand. */
static int64_t memory[4096];

typedef struct field {
    const char *name, *flag_name;
    size_t offset; /* offset of the pointer in the args; the first field of a view is its pointer */
    uint32_t flag;
} field;

#define ARG(name, flag)                                   \
    {                                                     \
        #name, #flag, offsetof(mha_attn_args, name), flag \
    }
static const field inputs[] = {
    ARG(keep, MHA_ATTN_KEEP),
    ARG(bias, MHA_ATTN_BIAS),
    ARG(q_lens, MHA_ATTN_Q_LENS),
    ARG(kv_lens, MHA_ATTN_KV_LENS),
    ARG(cu_seqlens_q, MHA_ATTN_CU_SEQLENS),
    ARG(cu_seqlens_k, MHA_ATTN_CU_SEQLENS),
    ARG(prefix_lens, MHA_ATTN_PREFIX_LENS),
    ARG(block_keep, MHA_ATTN_BLOCK_KEEP),
    ARG(block_table, MHA_ATTN_BLOCK_TABLE),
    ARG(slopes, MHA_ATTN_SLOPES),
    ARG(sinks, MHA_ATTN_SINKS),
    ARG(gates, MHA_ATTN_GATES),
    ARG(head_list, MHA_ATTN_HEAD_LIST),
    ARG(dropout_keep, MHA_ATTN_DROPOUT_KEEP),
    ARG(map_heads, MHA_ATTN_MAP_HEADS),
    ARG(map_rows, MHA_ATTN_MAP_ROWS),
    ARG(functions, MHA_ATTN_FUNCTIONS),
    ARG(rope, MHA_ATTN_ROPE_Q),
};
static const field results[] = {
    ARG(lse, MHA_ATTN_LSE),       ARG(probs, MHA_ATTN_PROBS),  ARG(stats, MHA_ATTN_STATS),
    ARG(scores, MHA_ATTN_SCORES), ARG(on_rows, MHA_ATTN_ROWS),
};
#define COUNT(list) (sizeof list / sizeof *list)

/* Returns a description with the input `flag` and the sizes that the input requires. */
static mha_attn_desc with_input(uint32_t flag)
{
    mha_attn_desc d = {
        .size = sizeof d, .batch = 2, .heads = 4, .q_len = 5, .kv_len = 5, .head_dim = 8, .inputs = flag};
    if (flag == MHA_ATTN_BLOCK_KEEP) d.block_q = d.block_k = 4;
    if (flag == MHA_ATTN_BLOCK_TABLE) d.page_size = 16, d.pages = 2;
    if (flag == MHA_ATTN_HEAD_LIST) d.listed_heads = 2;
    if (flag == MHA_ATTN_MAP_HEADS) d.map_heads = 2;
    if (flag == MHA_ATTN_MAP_ROWS) d.map_rows = 2;
    if (flag == MHA_ATTN_MAP_HEADS || flag == MHA_ATTN_MAP_ROWS) d.outputs = MHA_ATTN_PROBS;
    return d;
}

static mha_attn_args plain_args(void)
{
    mha_attn_args a = {.size = sizeof a, .q.data = memory, .k.data = memory + 256, .v.data = memory + 512};
    a.out.data = memory + 768;
    return a;
}

static void put(mha_attn_args *a, const field *f)
{
    const void *to = memory + 1024;
    memcpy((char *)a + f->offset, &to, sizeof to);
}

static void expect_refused(const mha_attn_desc *d, const mha_attn_args *a, const field *f)
{
    mha_error err = {0};
    const mha_status status = mha_attention(NULL, d, a, &err);
    if (status != MHA_ERR_ARG || !check_has_word(err.message, f->name) || !check_has_word(err.message, f->flag_name))
        fail_msg("%s, %s: %s: %s", f->name, f->flag_name, mha_status_text(status), err.message);
}

static void test_pointer_without_flag(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT(inputs) + COUNT(results); n++) {
        const field *f = n < COUNT(inputs) ? &inputs[n] : &results[n - COUNT(inputs)];
        const mha_attn_desc d = with_input(0);
        mha_attn_args a = plain_args();
        put(&a, f);
        expect_refused(&d, &a, f);
    }
}

static void test_flag_without_pointer(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT(inputs); n++) {
        const mha_attn_desc d = with_input(inputs[n].flag);
        mha_attn_args a = plain_args();
        a.probs.data = d.outputs & MHA_ATTN_PROBS ? memory + 2048 : NULL;
        if (strcmp(inputs[n].name, "cu_seqlens_k") == 0) a.cu_seqlens_q = memory + 1024;
        expect_refused(&d, &a, &inputs[n]);
    }
    for (size_t n = 0; n < COUNT(results); n++) {
        mha_attn_desc d = with_input(0);
        d.outputs = results[n].flag;
        const mha_attn_args a = plain_args();
        expect_refused(&d, &a, &results[n]);
    }
}

/* Offsets have no flag. Instead, args.offsets must be set if and only if desc.align is MHA_ALIGN_OFFSETS. */
static void test_offsets(void **state)
{
    (void)state;
    static const field offsets = {"offsets", "MHA_ALIGN_OFFSETS", offsetof(mha_attn_args, offsets), 0};
    mha_attn_desc d = with_input(0);
    mha_attn_args a = plain_args();
    put(&a, &offsets);
    expect_refused(&d, &a, &offsets);
    d.align = MHA_ALIGN_OFFSETS;
    d.causal = 1;
    a.offsets = NULL;
    expect_refused(&d, &a, &offsets);
}

/* mha_attention_backward must check the inputs in args, but ignore forward results that args may still contain. */
static void test_backward(void **state)
{
    (void)state;
    mha_attn_desc d = with_input(0);
    mha_attn_grads g = {.size = sizeof g, .dout.data = memory + 3072, .out.data = memory + 768};
    g.lse.data = memory + 3584;
    for (size_t n = 0; n < COUNT(inputs); n++) {
        mha_attn_args a = plain_args();
        mha_error err = {0};
        put(&a, &inputs[n]);
        assert_int_equal(mha_attention_backward(NULL, &d, &a, &g, &err), MHA_ERR_ARG);
        assert_true(check_has_word(err.message, inputs[n].name) && check_has_word(err.message, inputs[n].flag_name));
    }
    mha_attn_args a = plain_args();
    a.lse.data = a.probs.data = memory + 3584;
    assert_int_equal(mha_attention_backward(NULL, &d, &a, &g, NULL), MHA_OK);
}

/* Fields that a shorter struct lacks must be read as zero. A longer struct must be accepted if its unknown fields are
 * zero. */
static void test_sizes(void **state)
{
    (void)state;
    struct {
        mha_attn_desc desc;
        int64_t later;
    } newer = {with_input(0), 0};
    mha_attn_args older = plain_args();
    older.size = offsetof(mha_attn_args, keep);
    older.keep.data = memory; /* beyond older.size, so it must not be read */
    newer.desc.size = sizeof newer;
    mha_error err = {0};
    assert_int_equal(mha_attention(NULL, &newer.desc, &older, &err), MHA_OK);
    newer.later = 1;
    assert_int_equal(mha_attention(NULL, &newer.desc, &older, &err), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "mha_attn_desc.size"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointer_without_flag),
        cmocka_unit_test(test_flag_without_pointer),
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_backward),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
