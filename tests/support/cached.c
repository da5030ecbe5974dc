/* cached.c - see cached.h. */
#include "support/cached.h"
#include "support/check.h"
#include <stdlib.h>
#include <string.h>

const mha_cache_desc cached_plain = {.size = sizeof cached_plain,
                                     .batch = CACHED_B,
                                     .kv_heads = CACHED_HKV,
                                     .head_dim = CACHED_D,
                                     .v_head_dim = CACHED_DV,
                                     .page_size = 16};

mha_cache *cached_create(mha_ctx *ctx, const mha_cache_desc *desc)
{
    mha_cache *cache;
    mha_error err = {0};
    if (mha_cache_create(ctx, desc, &cache, &err) != MHA_OK) fail_msg("create: %s", err.message);
    return cache;
}

/* ---- tokens: number d of head g of token `id` says which one it is ---- */

static float number(int64_t id, int64_t g, int64_t d, bool value)
{
    return (float)((id * CACHED_HKV + g) * 8 + d) + (value ? 0.5F : 0);
}

mha_status cached_append(mha_cache *cache, int64_t sequence, int64_t n, int64_t count, const int64_t *counts,
                         int64_t first, mha_error *err)
{
    float *k = malloc((size_t)(n * count * CACHED_HKV * CACHED_D + 1) * sizeof *k);
    float *v = malloc((size_t)(n * count * CACHED_HKV * CACHED_DV + 1) * sizeof *v);
    assert_true(k && v);
    for (int64_t t = 0; t < n * count; t++)
        for (int64_t g = 0; g < CACHED_HKV; g++) {
            for (int64_t d = 0; d < CACHED_D; d++)
                k[(t * CACHED_HKV + g) * CACHED_D + d] = number(first + t, g, d, false);
            for (int64_t d = 0; d < CACHED_DV; d++)
                v[(t * CACHED_HKV + g) * CACHED_DV + d] = number(first + t, g, d, true);
        }
    const mha_cache_tokens tokens = {.size = sizeof tokens,
                                     .count = count,
                                     .counts = counts,
                                     .k = {k, {count * CACHED_HKV * CACHED_D, CACHED_D, CACHED_HKV * CACHED_D, 1}},
                                     .v = {v, {count * CACHED_HKV * CACHED_DV, CACHED_DV, CACHED_HKV * CACHED_DV, 1}}};
    const mha_status status = mha_cache_append(cache, sequence, &tokens, err);
    free(k);
    free(v);
    return status;
}

void cached_note(cached_model *m, int64_t b, int64_t count, int64_t first)
{
    for (int64_t t = 0; t < count; t++)
        m->id[b][m->length[b]++] = first + t;
}

static void check_token(const mha_cache_tensor *t, int32_t page, int64_t slot, int64_t id)
{
    const int64_t size = t[2].shape[2];
    const float *k = t[2].data, *v = t[3].data;
    for (int64_t g = 0; g < CACHED_HKV; g++) {
        for (int64_t d = 0; d < CACHED_D; d++)
            assert_true(k[((page * CACHED_HKV + g) * size + slot) * CACHED_D + d] == number(id, g, d, false));
        for (int64_t d = 0; d < CACHED_DV; d++)
            assert_true(v[((page * CACHED_HKV + g) * size + slot) * CACHED_DV + d] == number(id, g, d, true));
    }
}

void cached_holds(const mha_cache *cache, const cached_model *m, int64_t window, int64_t keep_first)
{
    mha_cache_tensor t[MHA_CACHE_TENSORS];
    mha_cache_save(cache, t);
    bool *used = calloc((size_t)t[2].shape[0] + 1, sizeof *used);
    assert_non_null(used);
    const int64_t size = t[2].shape[2], width = t[1].shape[1];
    int64_t pages = 0;
    for (int64_t b = 0; b < CACHED_B; b++) {
        assert_int_equal(mha_cache_length(cache, b), m->length[b]);
        for (int64_t n = 0; n < width; n++) {
            const int32_t page = ((const int32_t *)t[1].data)[b * width + n];
            assert_true(page >= -1 && page < t[2].shape[0]);
            if (n * size >= m->length[b]) assert_int_equal(page, -1);
            if (page < 0 || used[page]) continue;
            used[page] = true;
            pages++;
        }
        for (int64_t j = 0; j < m->length[b]; j++) {
            const int32_t page = ((const int32_t *)t[1].data)[b * width + j / size];
            if (page >= 0)
                check_token(t, page, j % size, m->id[b][j]);
            else
                assert_true(window > 0 && j >= keep_first && j < m->length[b] - window + 1);
        }
    }
    assert_int_equal(mha_cache_pages(cache), pages);
    free(used);
}

void cached_change(mha_cache *cache, cached_model *m, rng *r, int64_t *next_id, const mha_cache_desc *desc)
{
    mha_error err = {0};
    const int64_t b = rng_range(r, 0, CACHED_B - 1), other = (b + rng_range(r, 1, CACHED_B - 1)) % CACHED_B;
    const int64_t length = rng_range(r, 0, m->length[b]), kind = rng_range(r, 0, 9);
    if (kind < 4 && m->length[b] + 40 < CACHED_MOST) {
        const int64_t count = rng_range(r, 0, 40);
        assert_int_equal(cached_append(cache, b, 1, count, NULL, *next_id, &err), MHA_OK);
        cached_note(m, b, count, *next_id);
        *next_id += count;
    } else if (kind < 7) {
        int64_t counts[CACHED_B];
        for (int64_t n = 0; n < CACHED_B; n++)
            counts[n] = m->length[n] + 20 < CACHED_MOST ? rng_range(r, 0, 20) : 0;
        assert_int_equal(cached_append(cache, MHA_CACHE_ALL, CACHED_B, 20, counts, *next_id, &err), MHA_OK);
        for (int64_t n = 0; n < CACHED_B; n++)
            cached_note(m, n, counts[n], *next_id + 20 * n);
        *next_id += (int64_t)CACHED_B * 20;
    } else if (kind == 7) {
        const mha_status status = mha_cache_truncate(cache, b, length, &err);
        if (status == MHA_OK) m->length[b] = length;
        if (desc->window == 0) assert_int_equal(status, MHA_OK);
    } else if (kind == 8) {
        const mha_status status = mha_cache_fork(cache, b, other, length, &err);
        if (desc->window == 0) assert_int_equal(status, MHA_OK);
        if (status != MHA_OK) return;
        memcpy(m->id[other], m->id[b], sizeof m->id[b]);
        m->length[other] = length;
    } else if (rng_chance(r, 0.3)) {
        assert_int_equal(mha_cache_clear(cache, b, &err), MHA_OK);
        m->length[b] = 0;
    }
}
