/* isas.c - implements isas.h. */
#include "support/isas.h"

#include "kernel/kernel.h"
#include "support/check.h"
#include <stdlib.h>
#include <string.h>

mha_ctx *isa_contexts[PROBLEM_ISAS];
int isa_count;

/* Returns true if attention on this type calls the same functions in both contexts. The products of layers are not
 * compared, and those of bf16 pairs only for bf16. */
static bool same_kernels(mha_ctx *a, mha_ctx *b, mha_dtype dtype)
{
    mha__kernels x = *mha__kernels_of(a, dtype), y = *mha__kernels_of(b, dtype);
    x.isa = y.isa;
    x.product_split = y.product_split;
    memcpy(x.dense, y.dense, sizeof x.dense);
    if (dtype != MHA_BF16) {
        x.pairs = y.pairs;
        x.pairs_back = y.pairs_back;
        x.narrow[MHA__BF16] = y.narrow[MHA__BF16];
    }
    return memcmp(&x, &y, sizeof x) == 0;
}

static bool repeats(mha_ctx *const *ctx, int n, mha_dtype dtype)
{
    for (int m = 0; m < n; m++)
        if (same_kernels(ctx[m], ctx[n], dtype)) return true;
    return false;
}

int isa_count_of(mha_dtype dtype)
{
    int count = isa_count;
    while (count > 1 && repeats(isa_contexts, count - 1, dtype))
        count--;
    return count;
}

/* Returns the only ISA to test, or NULL for all ISAs. With the thread sanitizer, which is slow, one ISA is enough,
 * since threads synchronize at the same points on every ISA. */
static const char *only_isa(const char *const *names, int listed)
{
    const char *wanted = getenv("MHA_ISA");
#ifdef __SANITIZE_THREAD__
    if (!wanted) wanted = names[listed - 1];
#else
    (void)names, (void)listed;
#endif
    return wanted;
}

int isas_create(mha_ctx *ctx[PROBLEM_ISAS], int threads)
{
    const char *names[PROBLEM_ISAS];
    int listed = mha_isa_list(names, PROBLEM_ISAS), count = 0;
    assert_in_range(listed, 1, PROBLEM_ISAS);
    const char *only = only_isa(names, listed);
    for (int n = 0; n < listed; n++) {
        mha_error err = {0};
        mha_ctx_options options = {.size = sizeof options, .threads = threads, .isa = names[n]};
        if (only && strcmp(only, names[n]) != 0) continue;
        if (mha_ctx_create(&options, &ctx[count], &err) != MHA_OK)
            fail_msg("cannot create a context for %s: %s", names[n], err.message);
        assert_string_equal(mha_ctx_isa(ctx[count]), names[n]);
        if (repeats(ctx, count, MHA_BF16))
            mha_ctx_free(ctx[count]);
        else
            count++;
    }
    if (count == 0) fail_msg("MHA_ISA must be an ISA of this machine (got %s)", only);
    return count;
}

void isas_free(mha_ctx *ctx[PROBLEM_ISAS], int count)
{
    for (int n = 0; n < count; n++)
        mha_ctx_free(ctx[n]);
}

static int make(int threads)
{
    isa_count = isas_create(isa_contexts, threads);
    return 0;
}

int isa_setup(void **state)
{
    (void)state;
    return make(1);
}

int isa_setup_two(void **state)
{
    (void)state;
    return make(2);
}

int isa_setup_three(void **state)
{
    (void)state;
    return make(3);
}

int isa_teardown(void **state)
{
    (void)state;
    isas_free(isa_contexts, isa_count);
    return 0;
}
