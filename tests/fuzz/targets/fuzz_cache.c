/* fuzz_cache.c - decodes bytes as a sequence of operations on a KV cache (support/cached_program.h), and compares
 * the cache with a simple reference implementation after each operation. */
#include "fuzz.h"
#include "support/attn/cached_program.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static cached_tally tally;
    const char *law = cached_program(bytes, n, &tally);
    fuzz_check(law == NULL, law ? law : "");
    return 0;
}
