/* test_attn_machine_peak.c - tests mha/machine_peak.h: the measured rates must be plausible, and error messages
 * must contain the invalid value. The accuracy of the rates is not tested. */
#include "mha/machine_peak.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { BYTES = 1 << 20 };

static mha_ctx *context(int threads, const char *isa)
{
    mha_ctx *ctx;
    const mha_ctx_options options = {.size = sizeof options, .threads = threads, .isa = isa};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    return ctx;
}

/* On every ISA, with 1 to 3 threads, the rates of multiply-adds and of bytes read must be between 1e6 and 1e15 per
 * second. */
static void test_rates(void **state)
{
    (void)state;
    const char *names[16];
    const int count = mha_isa_list(names, 16);
    char *memory = calloc(1, BYTES + 4); /* tests memory that is aligned to 4 bytes only */
    assert_non_null(memory);
    for (int i = 0; i < count; i++) {
        mha_ctx *ctx = context(1 + i % 3, names[i]);
        double fma = 0, read = 0;
        assert_int_equal(mha_machine_peak_fma(ctx, &fma, NULL), MHA_OK);
        assert_int_equal(mha_machine_peak_read(ctx, memory + 4, BYTES, &read, NULL), MHA_OK);
        assert_true(fma > 1e6 && fma < 1e15);
        assert_true(read > 1e6 && read < 1e15);
        mha_ctx_free(ctx);
    }
    free(memory);
}

/* A byte count that is not a multiple of 4 must be accepted; sanitizers detect accesses past the end. A ctx of NULL
 * selects the default context. */
static void test_odd_bytes(void **state)
{
    (void)state;
    char *memory = calloc(1, 4097);
    double read = 0;
    assert_non_null(memory);
    assert_int_equal(mha_machine_peak_read(NULL, memory, 4097, &read, NULL), MHA_OK);
    assert_true(read > 0);
    free(memory);
}

static void test_refusals(void **state)
{
    (void)state;
    mha_error error = {0};
    double rate;
    char byte = 0;
    assert_int_equal(mha_machine_peak_fma(NULL, NULL, &error), MHA_ERR_ARG);
    assert_int_equal(mha_machine_peak_read(NULL, NULL, BYTES, &rate, &error), MHA_ERR_ARG);
    assert_string_equal(error.message, "memory must not be NULL");
    assert_int_equal(mha_machine_peak_read(NULL, &byte, BYTES, NULL, &error), MHA_ERR_ARG);
    assert_int_equal(mha_machine_peak_read(NULL, &byte, 100, &rate, &error), MHA_ERR_ARG);
    assert_non_null(strstr(error.message, "bytes must be at least 4096 (got 100)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_odd_bytes),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
