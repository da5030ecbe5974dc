/* fuzz_cache_file.c - reads bytes as a safetensors file of a saved KV cache (cache.h); the first byte selects the cache
 * options. A cache loaded from an accepted file must save equal tensors, accept another token, and be usable for
 * attention.
 */
#include "fuzz.h"
#include "mha/attn.h"
#include "mha/cache.h"
#include "mutate.h"
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, KV_HEADS = 1, WIDTH_MAX = 32, PAGE = 16 };

#ifdef MHA_FUZZ
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed)
{
    return n < 2 ? fuzz_mutate_json(bytes, n, max, seed) : 1 + fuzz_mutate_header(bytes + 1, n - 1, max - 1, seed);
}
#endif

/* Creates a cache whose options (window, number of first tokens to keep, capacity and dtype) are decoded from the bits
 * of `how`. */
static mha_cache *make(unsigned how)
{
    static const mha_dtype dtypes[] = {MHA_F32, MHA_BF16, MHA_F16, MHA_Q8_0, MHA_Q4_0, MHA_F8_E4M3};
    const mha_dtype dtype = dtypes[(how >> 3) % (sizeof dtypes / sizeof *dtypes)];
    const mha_cache_desc desc = {.size = sizeof desc,
                                 .batch = BATCH,
                                 .kv_heads = KV_HEADS,
                                 .head_dim = dtype == MHA_Q4_0 ? WIDTH_MAX : 4, /* q4_0 stores whole blocks */
                                 .dtype = dtype,
                                 .page_size = PAGE,
                                 .capacity = how & 4 ? 64 : 0,
                                 .window = how & 1 ? 20 : 0,
                                 .keep_first = (how & 3) == 3 ? 2 : 0};
    mha_cache *cache = NULL;
    mha_error err = {0};
    fuzz_check(mha_cache_create(fuzz_ctx(), &desc, &cache, &err) == MHA_OK, err.message);
    return cache;
}

/* Writes to `to` the tensors of the file that mha_named_tensor can represent; returns their number. */
static int list(const mha_file *file, mha_named_tensor *to, int max)
{
    int count = 0;
    for (int64_t i = 0; i < mha_file_count(file) && count < max; i++) {
        const mha_tensor *t = mha_file_tensor(file, i);
        if (t->rank > 4 || t->dtype == MHA_DTYPE_OTHER) continue;
        to[count] = (mha_named_tensor){.name = t->name, .dtype = t->dtype, .rank = t->rank, .data = (void *)t->data};
        memcpy(to[count++].shape, t->shape, (size_t)t->rank * sizeof *t->shape);
    }
    return count;
}

static size_t bytes_of(const mha_named_tensor *t)
{
    size_t bytes = mha_dtype_size(t->dtype);
    for (int i = 0; i < t->rank; i++)
        bytes *= (size_t)t->shape[i];
    return bytes;
}

/* A cache loaded from the saved tensors must save equal tensors. */
static void check_again(const mha_cache *cache, unsigned how)
{
    mha_named_tensor a[MHA_CACHE_TENSORS], b[MHA_CACHE_TENSORS];
    mha_error err = {0};
    mha_cache *other = make(how);
    mha_cache_save(cache, a);
    fuzz_check(mha_cache_load(other, a, MHA_CACHE_TENSORS, &err) == MHA_OK, "a saved cache must be accepted again");
    mha_cache_save(other, b);
    for (int i = 0; i < MHA_CACHE_TENSORS; i++)
        fuzz_check(bytes_of(&a[i]) == bytes_of(&b[i]) && memcmp(a[i].data, b[i].data, bytes_of(&a[i])) == 0,
                   "loading a saved cache must reproduce it exactly");
    mha_cache_free(other);
}

/* Appends one token to each sequence and computes attention. Appending may fail if the capacity is exhausted. */
static void use(mha_cache *cache)
{
    static const float k[BATCH * KV_HEADS * WIDTH_MAX] = {1, 0, 0, 0, 0, 1, 0, 0};
    static const float q[BATCH * WIDTH_MAX] = {1, 2, 3, 4};
    float out[BATCH * WIDTH_MAX];
    const mha_cache_tokens tokens = {.size = sizeof tokens, .count = 1, .dtype = MHA_F32, .k.data = k, .v.data = k};
    mha_attn_desc desc = {.size = sizeof desc, .heads = 1, .q_len = 1, .causal = 1};
    mha_attn_args args = {.size = sizeof args, .q.data = (void *)q, .out.data = out};
    mha_error err = {0};
    if (mha_cache_append(cache, MHA_CACHE_ALL, &tokens, &err) != MHA_OK) return;
    if (mha_cache_bind(cache, MHA_CACHE_ALL, NULL, &desc, &args, &err) != MHA_OK) return;
    fuzz_check(mha_attention(fuzz_ctx(), &desc, &args, &err) == MHA_OK, "attention must succeed after bind");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (n == 0) return 0;
    mha_file *file = fuzz_open(bytes + 1, n - 1, 1);
    if (!file) return 0;
    mha_named_tensor tensors[8];
    mha_error err = {0};
    mha_cache *cache = make(bytes[0]);
    const int count = list(file, tensors, 8);
    const mha_status status = mha_cache_load(cache, tensors, count, &err);
    fuzz_refusal(status, &err, "");
    mha_file_free(file);
    if (status == MHA_OK) check_again(cache, bytes[0]);
    use(cache);
    mha_cache_free(cache);
    return 0;
}
