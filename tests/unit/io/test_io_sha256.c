/* test_io_sha256.c - compares SHA-256 with the test vectors of the standard and with the independent implementation of
 * the tests. */
#include "base/ctx.h"
#include "io/files/sha256.h"
#include "support/check.h"
#include "support/files.h"
#include "support/sha256.h"
#include <stdlib.h>
#include <string.h>

static void expect(const char *what, const void *bytes, size_t n, const char *want)
{
    mha__sha256 hash;
    char hex[MHA__SHA256_HEX];
    mha__sha256_begin(&hash);
    mha__sha256_add(&hash, bytes, n);
    mha__sha256_end(&hash, hex);
    if (strcmp(hex, want) != 0) fail_msg("%s: expected %s, got %s", what, want, hex);
}

/* Compares digests with NIST's "Examples with intermediate values" and its two long messages. */
static void test_vectors_of_the_standard(void **state)
{
    (void)state;
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    const char *four =
        "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrs"
        "mnopqrstnopqrstu";
    expect("nothing", "", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect("one block", "abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect("two blocks", two, strlen(two), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect("two blocks, 112 bytes", four, strlen(four),
           "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    char *a = malloc(1000000);
    memset(a, 'a', 1000000);
    expect("a million a", a, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(a);
}

/* Tests every length from 0 to 300 bytes, hashed in one call and in pieces of every size. */
static void test_pieces(void **state)
{
    (void)state;
    unsigned char bytes[300];
    char want[65], hex[MHA__SHA256_HEX];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 131 + 7);
    for (size_t n = 0; n <= sizeof bytes; n++) {
        sha256_hex(bytes, n, want);
        expect("whole", bytes, n, want);
        mha__sha256 hash;
        mha__sha256_begin(&hash);
        const size_t step = n % 67 + 1;
        for (size_t at = 0; at < n; at += step)
            mha__sha256_add(&hash, bytes + at, n - at < step ? n - at : step);
        mha__sha256_end(&hash, hex);
        assert_string_equal(hex, want);
    }
}

static void test_a_file(void **state)
{
    (void)state;
    const size_t n = ((size_t)1 << 20) + 12345; /* larger than the buffer for reading a file */
    const char *folder = files_folder(), *path = files_path(folder, "x");
    char want[65], hex[MHA__SHA256_HEX];
    unsigned char *bytes = malloc(n);
    mha_error err = {0};
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(i >> 3);
    files_write(path, bytes, n);
    sha256_hex(bytes, n, want);
    assert_int_equal(mha__sha256_file(mha__ctx(NULL), path, hex, &err), MHA_OK);
    assert_string_equal(hex, want);
    assert_int_equal(mha__sha256_file(mha__ctx(NULL), files_path(folder, "none"), hex, &err), MHA_ERR_IO);
    assert_non_null(strstr(err.message, "none"));
    free(bytes);
    files_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors_of_the_standard), cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_a_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
