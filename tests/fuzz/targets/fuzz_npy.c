/* fuzz_npy.c - reads bytes as an .npy file. An accepted file must be readable, with the same contents whether it is
 * mapped or copied. Every input is also tested with a valid header length, which ends the header at the first newline.
 */
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>

static void try_bytes(const uint8_t *bytes, size_t n)
{
    mha_file *mapped = fuzz_open(bytes, n, 0);
    if (mapped) {
        fuzz_read(mapped);
        mha_file *copied = fuzz_open(bytes, n, 1);
        fuzz_check(copied != NULL && mha_file_count(copied) == mha_file_count(mapped),
                   "mapped and copied files must be equal");
        for (int64_t i = 0; i < mha_file_count(mapped); i++) {
            const mha_tensor *x = mha_file_tensor(mapped, i), *y = mha_file_tensor(copied, i);
            fuzz_check(x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0,
                       "mapped and copied files must be equal");
        }
        mha_file_free(copied);
    }
    mha_file_free(mapped);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    try_bytes(bytes, n);
    const uint8_t *newline = n > 10 ? memchr(bytes + 10, '\n', n - 10) : NULL;
    if (!newline || newline - bytes - 9 > 65535) return 0;
    uint8_t *fitted = malloc(n);
    const uint16_t length = (uint16_t)(newline - bytes - 9);
    memcpy(fitted, bytes, n);
    memcpy(fitted, "\x93NUMPY\1", 8);
    memcpy(fitted + 8, &length, 2);
    try_bytes(fitted, n);
    free(fitted);
    return 0;
}
