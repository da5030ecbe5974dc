/* test_attn_example.c - compiles and runs the short example of mha/attn.h. The test first compares the example in the
 * header with the code in this file, so that the two cannot diverge. */
#include "mha/mha.h"
#include "support/attn/problem.h"
#include "support/check.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void example(const float *q, const float *k, const float *v, float *out)
{
    /* clang-format off */
    mha_attn_desc desc = { .size = sizeof desc, .batch = 1, .heads = 12, .q_len = 512, .kv_len = 512,
                           .head_dim = 64, .causal = 1 };
    mha_attn_args args = { .size = sizeof args, .q.data = q, .k.data = k, .v.data = v, .out.data = out };
    mha_error err;
    if (mha_attention(NULL, &desc, &args, &err) != MHA_OK) fprintf(stderr, "%s\n", err.message);
    /* clang-format on */
}

/* Returns the contents of a text file without white space and asterisks (of comment blocks). */
static char *squeezed(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("cannot open %s", path);
    size_t capacity = 1 << 20, n = 0;
    char *text = malloc(capacity);
    assert_non_null(text);
    bool line_start = true;
    for (int c; (c = fgetc(file)) != EOF && n + 1 < capacity;) {
        if (!isspace(c) && !(c == '*' && line_start)) text[n++] = (char)c;
        line_start = c == '\n' || (line_start && isspace(c));
    }
    text[n] = 0;
    fclose(file);
    return text;
}

static void test_same_text(void **state)
{
    (void)state;
    /* uses an absolute path, because __FILE__ may be relative with a compiler cache */
    char *header = squeezed(MHA_TEST_DATA "/../../../include/mha/attn.h");
    char *here = squeezed(MHA_TEST_DATA "/../../property/attn/test_attn_example.c");
    static const char first[] = "mha_attn_descdesc={", last[] = "err.message);";
    const char *begin = strstr(header, first), *end = begin ? strstr(begin, last) : NULL;
    assert_non_null(end);
    size_t length = (size_t)(end - begin) + sizeof last - 1;
    char *example_text = strndup(begin, length);
    assert_true(length > 200); /* the comparison must cover the whole example, not just one line */
    assert_non_null(strstr(here, example_text));
    free(example_text);
    free(header);
    free(here);
}

static void test_runs(void **state)
{
    (void)state;
    mha_attn_desc desc = {
        .size = sizeof desc, .batch = 1, .heads = 12, .q_len = 512, .kv_len = 512, .head_dim = 64, .causal = 1};
    problem p;
    problem_make(&p, &desc, NULL, 51);
    size_t count = 12 * 512 * 64;
    float *out = calloc(count, sizeof *out);
    assert_non_null(out);
    example(p.q.data, p.k.data, p.v.data, out);
    problem_run(NULL, &p);
    assert_memory_equal(out, p.out.data, count * sizeof *out);
    for (size_t d = 0; d < 64; d++) /* row 0 of a causal call attends to key 0 only */
        assert_true(out[d] == ((const float *)p.v.data)[d]);
    free(out);
    problem_free(&p);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_text), cmocka_unit_test(test_runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
