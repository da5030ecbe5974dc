/* test_attn_refusals.c - invalid descriptions must be rejected with the correct status and a message that names the
 * field and the value. */
#include "support/attn/problem.h"
#include "support/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- invalid descriptions ---- */

/* An assignment to one field of a description. kind is the type of the field: l int64_t, z size_t, i int, u enum or
 * uint32_t, d double. */
typedef struct edit {
    size_t offset;
    char kind;
    int64_t integer;
    double real;
} edit;
#define KIND(field) \
    _Generic(((mha_attn_desc *)0)->field, int64_t: 'l', size_t: 'z', double: 'd', int: 'i', default: 'u')
#define SET(field, value)                                                \
    {                                                                    \
        offsetof(mha_attn_desc, field), KIND(field), (int64_t)(value), 0 \
    }
#define SET_REAL(field, value)                          \
    {                                                   \
        offsetof(mha_attn_desc, field), 'd', 0, (value) \
    }

static void apply(mha_attn_desc *desc, const edit *e)
{
    char *at = (char *)desc + e->offset;
    int integer = (int)e->integer;
    uint32_t bits = (uint32_t)e->integer;
    size_t size = (size_t)e->integer;
    if (e->kind == 'l') memcpy(at, &e->integer, sizeof e->integer);
    if (e->kind == 'i') memcpy(at, &integer, sizeof integer);
    if (e->kind == 'u') memcpy(at, &bits, sizeof bits);
    if (e->kind == 'z') memcpy(at, &size, sizeof size);
    if (e->kind == 'd') memcpy(at, &e->real, sizeof e->real);
}

typedef struct refusal {
    mha_status status;
    const char *field, *value; /* the error message must contain both */
    edit edits[4];             /* ends with an edit whose offset and kind are 0 */
} refusal;

#define ARG MHA_ERR_ARG
#define NOT_BUILT MHA_ERR_UNSUPPORTED
#define HUGE_LENGTH ((int64_t)1 << 62)
#define PACKED_PAGES (MHA_ATTN_CU_SEQLENS | MHA_ATTN_BLOCK_TABLE)

static const refusal refusals[] = {
    /* invalid sizes */
    {ARG, "size", "0", {SET(size, 0)}},
    {ARG, "size", "12", {SET(size, 12)}},
    {ARG, "batch", "0", {SET(batch, 0)}},
    {ARG, "batch", "-1", {SET(batch, -1)}},
    {ARG, "batch", "-9223372036854775808", {SET(batch, INT64_MIN)}},
    {ARG, "heads", "0", {SET(heads, 0), SET(kv_heads, 0)}},
    {ARG, "heads", "-6", {SET(heads, -6)}},
    {ARG, "kv_heads", "-2", {SET(kv_heads, -2)}},
    {ARG, "kv_heads", "4", {SET(kv_heads, 4)}},
    {ARG, "kv_heads", "5", {SET(kv_heads, 5)}},
    {ARG, "kv_heads", "12", {SET(kv_heads, 12)}},
    {ARG, "q_len", "-1", {SET(q_len, -1)}},
    {ARG, "kv_len", "-1", {SET(kv_len, -1)}},
    {ARG, "kv_len", "-9223372036854775808", {SET(kv_len, INT64_MIN)}},
    {ARG, "head_dim", "0", {SET(head_dim, 0)}},
    {ARG, "head_dim", "-16", {SET(head_dim, -16)}},
    {ARG, "head_dim", "4097", {SET(head_dim, 4097)}},
    {ARG, "head_dim", "9223372036854775807", {SET(head_dim, INT64_MAX)}},
    {ARG, "v_head_dim", "-8", {SET(v_head_dim, -8)}},
    {ARG, "v_head_dim", "4097", {SET(v_head_dim, 4097)}},
    /* sizes that are valid, but whose product overflows */
    {ARG, "batch", "4611686018427387904", {SET(batch, HUGE_LENGTH)}},
    {ARG, "heads", "4611686018427387904", {SET(heads, HUGE_LENGTH), SET(kv_heads, 0)}},
    {ARG, "q_len", "4611686018427387904", {SET(q_len, HUGE_LENGTH)}},
    {ARG, "kv_len", "4611686018427387904", {SET(kv_len, HUGE_LENGTH)}},
    /* invalid types */
    {ARG, "dtype", "77", {SET(dtype, 77)}},
    {ARG, "dtype", "u8", {SET(dtype, MHA_U8)}},
    {ARG, "dtype", "i64", {SET(dtype, MHA_I64)}},
    {NOT_BUILT, "kv_dtype", "f32", {SET(dtype, MHA_F64), SET(kv_dtype, MHA_F32)}},
    {NOT_BUILT, "kv_dtype", "f64", {SET(dtype, MHA_BF16), SET(kv_dtype, MHA_F64)}},
    {NOT_BUILT, "bias_dtype", "f64", {SET(bias_dtype, MHA_F64), SET(inputs, MHA_ATTN_BIAS)}},
    {ARG, "dtype", "q8_0", {SET(dtype, MHA_Q8_0)}},
    {NOT_BUILT, "kv_dtype", "q8_0", {SET(dtype, MHA_F64), SET(kv_dtype, MHA_Q8_0)}},
    {ARG, "kv_dtype", "bool", {SET(kv_dtype, MHA_BOOL)}},
    {ARG, "bias_dtype", "i32", {SET(bias_dtype, MHA_I32), SET(inputs, MHA_ATTN_BIAS)}},
    /* invalid floating-point options */
    {ARG, "scale", "nan", {SET_REAL(scale, NAN)}},
    {ARG, "scale", "inf", {SET_REAL(scale, INFINITY)}},
    {ARG, "softcap", "-1", {SET_REAL(softcap, -1)}},
    {ARG, "softcap", "nan", {SET_REAL(softcap, NAN)}},
    {ARG, "softcap", "inf", {SET_REAL(softcap, INFINITY)}},
    {ARG, "softcap", "1e+39", {SET_REAL(softcap, 1e39)}},  /* 1e39 is infinite in f32 */
    {ARG, "softcap", "1e-39", {SET_REAL(softcap, 1e-39)}}, /* 1 / 1e-39 is infinite in f32 */
    {ARG, "softcap", "2.9e-39", {SET_REAL(softcap, 2.9e-39)}},
    {ARG, "softcap", "1e-300", {SET_REAL(softcap, 1e-300)}},
    {ARG, "softcap", "5e-309", {SET_REAL(softcap, 5e-309), SET(dtype, MHA_F64)}},
    {ARG, "scale", "1e+39", {SET_REAL(scale, 1e39)}},
    {ARG, "dropout", "-0.5", {SET_REAL(dropout, -0.5)}},
    {ARG, "dropout", "1.5", {SET_REAL(dropout, 1.5)}},
    {ARG, "dropout", "nan", {SET_REAL(dropout, NAN)}},
    /* invalid alignment and windows */
    {ARG, "align", "causal", {SET(causal, 1)}},
    {ARG, "align", "window", {SET(window.on, 1), SET(window.left, 3)}},
    {ARG, "align", "9", {SET(align, 9)}},
    {ARG, "align", "1000000", {SET(align, 1000000)}},
    {ARG, "causal", "2", {SET(causal, 2), SET(align, MHA_ALIGN_TOP_LEFT)}},
    {ARG, "causal", "-1", {SET(causal, -1), SET(align, MHA_ALIGN_TOP_LEFT)}},
    {ARG, "window.on", "2", {SET(window.on, 2), SET(align, MHA_ALIGN_TOP_LEFT)}},
    {ARG, "window.left", "-2", {SET(window.on, 1), SET(window.left, -2), SET(align, MHA_ALIGN_TOP_LEFT)}},
    {ARG, "window.right", "-7", {SET(window.on, 1), SET(window.right, -7), SET(align, MHA_ALIGN_TOP_LEFT)}},
    /* invalid keep masks */
    {ARG, "keep_keys", "-1", {SET(keep_keys, -1), SET(inputs, MHA_ATTN_KEEP)}},
    {ARG, "keep_keys", "10", {SET(keep_keys, 10), SET(inputs, MHA_ATTN_KEEP)}},
    {ARG, "keep_keys", "3", {SET(keep_keys, 3)}},
    /* invalid pages */
    {ARG, "page_size", "-1", {SET(page_size, -1)}},
    {ARG, "page_size", "16", {SET(page_size, 16)}},
    {ARG, "page_size", "0", {SET(inputs, MHA_ATTN_BLOCK_TABLE), SET(pages, 3)}},
    {ARG, "page_size", "8", {SET(inputs, MHA_ATTN_BLOCK_TABLE), SET(page_size, 8), SET(pages, 3)}},
    {ARG, "page_size", "48", {SET(inputs, MHA_ATTN_BLOCK_TABLE), SET(page_size, 48), SET(pages, 3)}},
    {ARG, "pages", "-1", {SET(inputs, MHA_ATTN_BLOCK_TABLE), SET(page_size, 16), SET(pages, -1)}},
    {ARG, "pages", "2147483648", {SET(inputs, MHA_ATTN_BLOCK_TABLE), SET(page_size, 16), SET(pages, 1LL << 31)}},
    {ARG, "pages", "2", {SET(pages, 2)}},
    {ARG,
     "page_size",
     "4611686018427387904",
     {SET(inputs, MHA_ATTN_BLOCK_TABLE), SET(page_size, HUGE_LENGTH), SET(pages, 3)}},
    /* invalid packed sequences */
    {ARG, "max_q_len", "-1", {SET(inputs, MHA_ATTN_CU_SEQLENS), SET(max_q_len, -1)}},
    {ARG, "max_kv_len", "-2", {SET(inputs, MHA_ATTN_CU_SEQLENS), SET(max_kv_len, -2)}},
    {ARG, "max_q_len", "5", {SET(max_q_len, 5)}},
    {ARG, "max_q_len", "9223372036854775807", {SET(inputs, MHA_ATTN_CU_SEQLENS), SET(max_q_len, INT64_MAX)}},
    {ARG, "max_kv_len", "9223372036854775807", {SET(inputs, MHA_ATTN_CU_SEQLENS), SET(max_kv_len, INT64_MAX)}},
    {ARG, "max_kv_len", "9", {SET(max_kv_len, 9)}},
    {ARG, "max_kv_len", "4", {SET(inputs, PACKED_PAGES), SET(max_kv_len, 4), SET(page_size, 16), SET(pages, 1)}},
    {ARG, "keep_keys", "4", {SET(inputs, MHA_ATTN_CU_SEQLENS | MHA_ATTN_KEEP), SET(max_kv_len, 3), SET(keep_keys, 4)}},
    {ARG,
     "max_q_len",
     "4611686018427387904",
     {SET(inputs, MHA_ATTN_CU_SEQLENS), SET(max_q_len, HUGE_LENGTH), SET(outputs, MHA_ATTN_PROBS)}},
    /* invalid selections of heads and rows of maps */
    {ARG, "map_heads", "2", {SET(map_heads, 2), SET(outputs, MHA_ATTN_PROBS)}},
    {ARG, "map_rows", "3", {SET(map_rows, 3), SET(outputs, MHA_ATTN_SCORES)}},
    {ARG, "map_heads", "0", {SET(inputs, MHA_ATTN_MAP_HEADS), SET(outputs, MHA_ATTN_PROBS)}},
    {ARG, "map_rows", "-1", {SET(inputs, MHA_ATTN_MAP_ROWS), SET(map_rows, -1), SET(outputs, MHA_ATTN_PROBS)}},
    {ARG, "map_heads", "2", {SET(inputs, MHA_ATTN_MAP_HEADS), SET(map_heads, 2), SET(outputs, MHA_ATTN_LSE)}},
    {ARG, "map_rows", "2", {SET(inputs, MHA_ATTN_MAP_ROWS), SET(map_rows, 2)}},
    {ARG,
     "q_len",
     "4611686018427387904",
     {SET(inputs, MHA_ATTN_MAP_ROWS), SET(map_rows, HUGE_LENGTH), SET(outputs, MHA_ATTN_PROBS)}},
    /* invalid flags */
    {ARG, "inputs", "0x80000000", {SET(inputs, 0x80000000u)}},
    {ARG, "outputs", "0x80", {SET(outputs, 128)}},
    {ARG, "scores", "7", {SET(outputs, MHA_ATTN_SCORES), SET(scores, 7)}},
    {ARG, "scores", "2", {SET(scores, MHA_SCORES_BIASED)}},
    /* invalid lists of heads, top keys and block masks */
    {ARG, "listed_heads", "0", {SET(inputs, MHA_ATTN_HEAD_LIST)}},
    {ARG, "listed_heads", "7", {SET(inputs, MHA_ATTN_HEAD_LIST), SET(listed_heads, 7)}},
    {ARG, "top_keys", "33", {SET(outputs, MHA_ATTN_STATS), SET(top_keys, 33)}},
    {ARG, "top_keys", "-1", {SET(outputs, MHA_ATTN_STATS), SET(top_keys, -1)}},
    {ARG, "top_keys", "4", {SET(top_keys, 4)}},
    {ARG, "block_q", "16", {SET(block_q, 16)}},
    {ARG, "block_k", "8", {SET(block_k, 8)}},
    {ARG, "block_q", "0", {SET(inputs, MHA_ATTN_BLOCK_KEEP), SET(block_k, 16)}},
    {ARG, "block_k", "-3", {SET(inputs, MHA_ATTN_BLOCK_KEEP), SET(block_q, 16), SET(block_k, -3)}},
    {ARG, "listed_heads", "2", {SET(listed_heads, 2)}},
    /* invalid values must be reported before unsupported features */
    {ARG, "head_dim", "0", {SET(head_dim, 0), SET(outputs, MHA_ATTN_STATS)}},
    {ARG, "align", "slopes", {SET(inputs, MHA_ATTN_SLOPES)}},
    {ARG, "block_q", "-1", {SET(block_q, -1)}},
    {ARG, "listed_heads", "-1", {SET(listed_heads, -1)}},
};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

/* Returns NULL if status, plan and error are as expected, otherwise the rule that they violate. */
static const char *find_fault(const refusal *r, mha_status status, const mha_attn_plan *plan, const mha_error *err)
{
    if (status != r->status) return "must have the expected status";
    if (plan) return "must set the plan to NULL";
    if (err->status != status) return "must have the returned status in err";
    if (!strstr(err->message, r->field)) return "must name the field";
    if (!check_has_word(err->message, r->value)) return "must name the value";
    if (strpbrk(err->message, "\n\r\t")) return "must be one line";
    return NULL;
}

static void test_descriptions(void **state)
{
    (void)state;
    int wrong = 0;
    mha_attn_plan *plan = NULL;
    mha_error err = {0};
    if (mha_attn_plan_create(NULL, &problem_valid, &plan, &err) != MHA_OK)
        fail_msg("the valid description must be accepted: %s", err.message);
    mha_attn_plan_free(plan);
    for (int n = 0; n < REFUSALS; n++) {
        const refusal *r = &refusals[n];
        mha_attn_desc desc = problem_valid;
        for (int e = 0; e < 4 && r->edits[e].kind; e++)
            apply(&desc, &r->edits[e]);
        plan = (mha_attn_plan *)&err; /* plan must be set to NULL on failure */
        err = (mha_error){0};
        mha_status status = mha_attn_plan_create(NULL, &desc, &plan, &err);
        const char *fault = find_fault(r, status, plan, &err);
        if (!fault) continue;
        print_error("%d: %s = %s: the call %s (got status %s): %s\n", n, r->field, r->value, fault,
                    mha_status_text(status), err.message);
        wrong++;
    }
    print_message("%d invalid descriptions rejected\n", REFUSALS - wrong);
    assert_int_equal(wrong, 0);
}

/* Tests the smallest accepted softcap of both types. It caps all scores to nearly the same value, so all probabilities
 * must be equal and not NaN. */
static void test_min_softcap(void **state)
{
    (void)state;
    const double min[] = {3e-39, 6e-309};
    for (int n = 0; n < 2; n++) {
        problem p;
        mha_attn_desc d = problem_valid;
        d.dtype = n ? MHA_F64 : MHA_F32;
        d.softcap = min[n];
        d.outputs = MHA_ATTN_PROBS;
        problem_make(&p, &d, NULL, 12);
        for (int64_t i = 0; i < d.head_dim; i++)
            tensor_set(&p.q, 0, 0, 0, i, 0);
        problem_run(NULL, &p);
        for (int64_t j = 0; j < d.kv_len; j++) {
            assert_true(fabs(tensor_get(&p.probs, 0, 0, 0, j) - 1.0 / 9) < 1e-6);
            assert_true(fabs(tensor_get(&p.probs, 1, 3, 2, j) - 1.0 / 9) < 1e-6);
        }
        problem_free(&p);
    }
}

static void test_null(void **state)
{
    (void)state;
    mha_attn_plan *plan = (mha_attn_plan *)state;
    mha_error err = {0};
    assert_int_equal(mha_attn_plan_create(NULL, NULL, &plan, &err), MHA_ERR_ARG);
    assert_null(plan);
    assert_non_null(strstr(err.message, "desc"));
    assert_int_equal(mha_attn_plan_create(NULL, &problem_valid, NULL, &err), MHA_ERR_ARG);
    assert_int_equal(mha_attn_plan_create(NULL, NULL, &plan, NULL), MHA_ERR_ARG); /* a NULL err must be accepted */
    mha_attn_plan_free(NULL);
    char text[8] = "text";
    assert_int_equal(mha_attn_plan_describe(NULL, 0, text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_int_equal(mha_attn_plan_describe(NULL, 1, NULL, 0), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_descriptions), cmocka_unit_test(test_min_softcap),
                                              cmocka_unit_test(test_null)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
