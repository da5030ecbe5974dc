/* test_io_locale.c - numbers and saved models must be bytewise identical to those written in the C locale. Tests
 * locales with a decimal comma (de_DE), a two-byte decimal separator (ps_AF) and the dotless i (tr_TR).
 *
 * localedef compiles the locales in a temporary folder. */
#include "io/json/json_write.h"
#include "mha/model_save.h"
#include "support/files.h"
#include "support/model/model_case.h"
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *const names[] = {"de_DE", "ps_AF", "tr_TR"};
enum { LOCALES = sizeof names / sizeof *names };
static const char *folder, *saved;

static void run(const char *command, const char *a, const char *b)
{
    char line[900];
    snprintf(line, sizeof line, command, a, b);
    if (system(line) != 0) fail_msg("%s", line);
}

static int make_locales(void **state)
{
    (void)state;
    folder = files_folder();
    saved = files_folder();
    for (size_t i = 0; i < LOCALES; i++) {
        char line[600];
        snprintf(line, sizeof line, "localedef -c -i %s -f UTF-8 %s/%s.UTF-8 >%s/log 2>&1", names[i], folder, names[i],
                 folder);
        if (system(line) == 0) continue;
        printf("skipped: localedef cannot compile the locale %s\n", names[i]);
        run("rm -rf %s %s", folder, saved);
        exit(77);
    }
    return setenv("LOCPATH", folder, 1);
}

static int remove_locales(void **state)
{
    (void)state;
    setlocale(LC_ALL, "C");
    run("rm -rf %s %s", folder, saved);
    return 0;
}

static void enter(size_t i)
{
    char name[32];
    snprintf(name, sizeof name, "%s.UTF-8", names[i]);
    if (!setlocale(LC_ALL, name)) fail_msg("setlocale must find %s in %s", name, folder);
    assert_string_not_equal(localeconv()->decimal_point, ".");
}

/* Returns a JSON list of parsed numbers and keys as written by the JSON writer, followed by the numbers as quoted in
 * error messages. The caller must free the list. */
static char *numbers(void)
{
    static const char text[] = "{\"n\":[0,-0,9223372036854775807,2.0,0.1,1e-12,1E+5,1e22,-2.5e-5,123456789.123456789,"
                               "5e-324,1.7976931348623157e308,"
                               "1e-400,-0.0,0.30000000000000004,1234567890123456789012345.5,0."
                               "1000000000000000055511151231257827021181583404541015625],"
                               "\"I\":\"i\",\"true\":true,\"1,5\":null}";
    const mha__json *root = NULL;
    mha__json_writer w = {0};
    mha__quoted shown;
    char *written = NULL;
    assert_int_equal(mha__json_parse(NULL, "x.json", text, sizeof text - 1, 0, &root, NULL), MHA_OK);
    mha__json_open(&w, '[');
    mha__json_put(&w, root);
    for (mha__json_step i = {0}; mha__json_each(mha__json_get(root, "n"), &i);) {
        mha__json_show(&shown, i.value);
        mha__json_put_bytes(&w, shown.text, strlen(shown.text));
    }
    mha__json_close(&w, ']');
    mha__json_free(root);
    assert_int_equal(mha__json_written(&w, "x.json", &written, NULL, NULL), MHA_OK);
    return written;
}

static void test_numbers(void **state)
{
    (void)state;
    char *want = numbers();
    assert_non_null(strstr(want, "0.10000000000000001,9.9999999999999998e-13,100000.0,1e22,-2.5000000000000001e-5"));
    for (size_t i = 0; i < LOCALES; i++) {
        enter(i);
        char *got = numbers();
        setlocale(LC_ALL, "C");
        assert_string_equal(got, want);
        free(got);
    }
    free(want);
}

static void save(const char *model, const char *name)
{
    mha_error err = {0};
    mha_ctx *ctx = NULL;
    assert_int_equal(mha_ctx_create(NULL, &ctx, NULL), MHA_OK);
    mha_model *m = case_model(ctx, model, NULL);
    const mha_model_save_options bf16 = {.size = sizeof bf16, .dtype = MHA_BF16};
    if (mha_model_save(m, files_path(saved, name), &bf16, &err) != MHA_OK) fail_msg("%s", err.message);
    mha_model_free(m);
    mha_ctx_free(ctx);
}

static void test_models(void **state)
{
    (void)state;
    static const char *const models[] = {"models/bert-tiny", "models/gpt2-tiny"};
    for (size_t n = 0; n < sizeof models / sizeof *models; n++) {
        char first[16], other[16];
        snprintf(first, sizeof first, "c%zu", n);
        save(models[n], first);
        for (size_t i = 0; i < LOCALES; i++) {
            snprintf(other, sizeof other, "%s%zu", names[i], n);
            enter(i);
            save(models[n], other);
            setlocale(LC_ALL, "C");
            run("diff -r %s %s", files_path(saved, first), files_path(saved, other));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers), cmocka_unit_test(test_models)};
    return cmocka_run_group_tests(tests, make_locales, remove_locales);
}
