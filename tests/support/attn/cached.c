/* cached.c - implements the reference model of a KV cache, and compares a cache with it. */
#include "support/attn/cached.h"

#include "support/check.h"
#include "support/reference/half.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const mha_cache_desc cached_plain = {.size = sizeof cached_plain,
                                     .batch = CACHED_B,
                                     .kv_heads = CACHED_HKV,
                                     .head_dim = CACHED_D,
                                     .v_head_dim = CACHED_DV,
                                     .page_size = CACHED_PAGE_MIN};

mha_cache *cached_create(mha_ctx *ctx, const mha_cache_desc *desc)
{
    mha_cache *cache;
    mha_error err = {0};
    if (mha_cache_create(ctx, desc, &cache, &err) != MHA_OK) fail_msg("create: %s", err.message);
    return cache;
}

/* ---- keys and values of tokens ---- */

static uint64_t hash_of(const mha_cache_desc *desc, int64_t id, int64_t g, int64_t d, bool value)
{
    const uint64_t place = (uint64_t)(id * desc->kv_heads + g) * 1024 + (uint64_t)d * 2 + value;
    return (place + 1) * 0x9E3779B97F4A7C15u;
}

/* Returns element d of a row in q4_0 after its rotation: in each block of 32, element 0 is -8, so that the scale is 1,
 * and the elements at powers of two differ between tokens. */
static int rotated_element(const mha_cache_desc *desc, int64_t id, int64_t g, int64_t d, bool value)
{
    const int64_t at = d % Q4_ELEMENTS;
    if (at == 0) return -8;
    return at & (at - 1) ? 0 : (int)(hash_of(desc, id, g, d, value) >> 60) - 8;
}

/* The Hadamard matrix has ones in column 0; column 2^n is negative in the rows that have bit n. */
static double restored_element(const mha_cache_desc *desc, int64_t id, int64_t g, int64_t d, bool value)
{
    const int64_t block = d - d % Q4_ELEMENTS;
    int sum = rotated_element(desc, id, g, block, value);
    for (int64_t bit = 1; bit < Q4_ELEMENTS; bit *= 2) {
        const int x = rotated_element(desc, id, g, block + bit, value);
        sum += d & bit ? -x : x;
    }
    return sum / sqrt(Q4_ELEMENTS);
}

/* Elements are integers from -127 to 127. For q8_0, the first element of each block of 32 is 127, so that the scale of
 * the block is 1. For f8_e4m3, elements are its numbers from -120 to 120; for q4_0, restored blocks. */
double cached_element(const mha_cache_desc *desc, int64_t id, int64_t g, int64_t d, bool value)
{
    if (desc->dtype == MHA_Q8_0 && d % Q8_ELEMENTS == 0) return 127;
    if (desc->dtype == MHA_Q4_0) return restored_element(desc, id, g, d, value);
    const uint64_t hash = hash_of(desc, id, g, d, value);
    if (desc->dtype == MHA_F8_E4M3) return e4m3_value((uint8_t)((hash >> 56 & 0x80) | (hash >> 56) % 0x70));
    return hash >> 56 & 1 ? -(double)(hash >> 57) : (double)(hash >> 57);
}

void cached_tokens(tensor *t, const mha_cache_desc *desc, bool value, const int64_t shape[2], mha_dtype dtype,
                   const tensor_layout *layout, int64_t first)
{
    const int64_t width = value && desc->v_head_dim ? desc->v_head_dim : desc->head_dim;
    const int64_t n = shape[0], count = shape[1];
    tensor_make(t, dtype, (const int64_t[]){n, desc->kv_heads, count, width}, layout, NAN);
    for (int64_t at = 0; at < n * count; at++)
        for (int64_t g = 0; g < desc->kv_heads; g++)
            for (int64_t d = 0; d < width; d++)
                tensor_set(t, at / count, g, at % count, d, cached_element(desc, first + at, g, d, value));
}

mha_status cached_append(mha_cache *cache, const mha_cache_desc *desc, int64_t sequence, int64_t n, int64_t count,
                         const int64_t *counts, int64_t first, mha_error *err)
{
    static const tensor_layout by_token = {.order = {0, 2, 1, 3}};
    tensor k, v;
    const int64_t shape[] = {n, count};
    cached_tokens(&k, desc, false, shape, MHA_F32, &by_token, first);
    cached_tokens(&v, desc, true, shape, MHA_F32, &by_token, first);
    const mha_cache_tokens tokens = {.size = sizeof tokens,
                                     .count = count,
                                     .counts = counts,
                                     .dtype = MHA_F32,
                                     .k = tensor_cview(&k),
                                     .v = tensor_cview(&v)};
    const mha_status status = mha_cache_append(cache, sequence, &tokens, err);
    tensor_free(&k);
    tensor_free(&v);
    return status;
}

/* ---- updates of the reference model ---- */

void cached_start(cached_model *m, const mha_cache_desc *desc)
{
    memset(m, 0, sizeof *m);
    m->desc = *desc;
    if (m->desc.dtype == MHA_DTYPE_DEFAULT) m->desc.dtype = MHA_F32;
    if (m->desc.v_head_dim == 0) m->desc.v_head_dim = m->desc.head_dim;
    if (m->desc.page_size == 0) m->desc.page_size = 128;
}

int64_t cached_pinned(const cached_model *m)
{
    return (m->desc.keep_first + m->desc.page_size - 1) / m->desc.page_size * m->desc.page_size;
}

/* Updates the model after an append. A page is freed if the first new row attends to none of its keys. */
void cached_note(cached_model *m, int64_t b, int64_t count, int64_t first)
{
    const int64_t size = m->desc.page_size;
    for (int64_t begin = cached_pinned(m); count > 0 && m->desc.window > 0; begin += size) {
        if (begin + size > m->length[b] - m->desc.window + 1) break;
        m->gone[b][begin / size] = true;
    }
    for (int64_t t = 0; t < count; t++)
        m->id[b][m->length[b]++] = first + t;
}

void cached_note_length(cached_model *m, int64_t b, int64_t length)
{
    m->length[b] = length;
    for (int64_t begin = 0; begin < CACHED_MAX; begin += m->desc.page_size)
        if (begin >= length) m->gone[b][begin / m->desc.page_size] = false;
}

void cached_note_fork(cached_model *m, int64_t from, int64_t to, int64_t length)
{
    memcpy(m->id[to], m->id[from], sizeof m->id[to]);
    memcpy(m->gone[to], m->gone[from], sizeof m->gone[to]);
    cached_note_length(m, to, length);
}

bool cached_seen(const cached_model *m, int64_t b, int64_t position)
{
    const int64_t size = m->desc.page_size, first = m->desc.window > 0 ? position - m->desc.window + 1 : 0;
    for (int64_t n = 0; n * size < CACHED_MAX; n++)
        if (m->gone[b][n] && (n + 1) * size > first) return false;
    return true;
}

/* ---- comparison with the reference model ---- */

/* Returns the 16-bit encoding of an integer from -127 to 127. */
static uint16_t small_half(double x, int fraction)
{
    static uint16_t bits[2][255];
    uint16_t *at = &bits[fraction == F16_FRACTION][(int)x + 127];
    if (*at == 0 && x != 0) *at = half_bits(x, fraction);
    return *at;
}

/* Returns element d of the key or value of a token as it is stored: rotated in q4_0. */
static double stored_element(const mha_cache_desc *desc, int64_t id, int64_t g, int64_t d, bool value)
{
    return desc->dtype == MHA_Q4_0 ? rotated_element(desc, id, g, d, value) : cached_element(desc, id, g, d, value);
}

/* Returns true if element d of a row of a page is x in the stored type; a zero may have either sign. */
static bool is_stored(const mha_named_tensor *t, const mha_cache_desc *desc, int64_t row, int64_t d, double x)
{
    const char *at = (const char *)t->data + (size_t)(row * t->shape[3]) * mha_dtype_size(t->dtype);
    const uint16_t *halves = (const uint16_t *)(const void *)at;
    switch (desc->dtype) {
    case MHA_F64:
        return ((const double *)(const void *)at)[d] == x;
    case MHA_BF16:
        return halves[d] == small_half(x, BF16_FRACTION) || (x == 0 && halves[d] == 0x8000);
    case MHA_F16:
        return halves[d] == small_half(x, F16_FRACTION) || (x == 0 && halves[d] == 0x8000);
    case MHA_Q8_0:
        at += d / Q8_ELEMENTS * Q8_BYTES; /* the scale of the block must be 1 (0x3C00) */
        return memcmp(at, "\x00\x3C", 2) == 0 && (double)((const int8_t *)at)[2 + d % Q8_ELEMENTS] == x;
    case MHA_Q4_0:
        at += d / Q4_ELEMENTS * Q4_BYTES; /* the scale of the block must be 1 */
        return memcmp(at, "\x00\x3C", 2) == 0 && q4_rotated(at, (int)(d % Q4_ELEMENTS)) == x;
    case MHA_F8_E4M3:
        return e4m3_value(((const uint8_t *)at)[d]) == x;
    default:
        return (double)((const float *)(const void *)at)[d] == x;
    }
}

static bool holds_token(const mha_named_tensor *t, const mha_cache_desc *desc, int64_t page, int64_t slot, int64_t id)
{
    for (int64_t g = 0; g < desc->kv_heads; g++) {
        const int64_t row = (page * desc->kv_heads + g) * desc->page_size + slot;
        for (int64_t d = 0; d < desc->head_dim; d++)
            if (!is_stored(&t[2], desc, row, d, stored_element(desc, id, g, d, false))) return false;
        for (int64_t d = 0; d < desc->v_head_dim; d++)
            if (!is_stored(&t[3], desc, row, d, stored_element(desc, id, g, d, true))) return false;
    }
    return true;
}

/* Checks the tensors of sequence b against the model and marks its pages in `used`. Returns NULL, or the violated
 * invariant. */
static const char *broken_sequence(const mha_named_tensor *t, const cached_model *m, int64_t b, bool *used)
{
    const int64_t size = m->desc.page_size, width = t[1].shape[1], length = m->length[b];
    const int32_t *pages = width > 0 ? (const int32_t *)t[1].data + b * width : NULL;
    if (((const int64_t *)t[0].data)[b] != length) return "the saved length must be the length of the sequence";
    if (width * size < length) return "the page table must cover the whole sequence";
    for (int64_t n = 0; n < width; n++) {
        const bool wanted = n * size < length && !m->gone[b][n];
        if (pages[n] < -1 || pages[n] >= t[2].shape[0]) return "an entry of the page table must be -1 or a page number";
        if ((pages[n] >= 0) != wanted) return "a sequence must keep exactly the pages with tokens in its window";
        if (wanted) used[pages[n]] = true;
    }
    for (int64_t j = 0; j < length; j++)
        if (!m->gone[b][j / size] && !holds_token(t, &m->desc, pages[j / size], j % size, m->id[b][j]))
            return "a token must have the keys and values that were appended";
    return NULL;
}

const char *cached_broken(const mha_cache *cache, const cached_model *m)
{
    mha_named_tensor t[MHA_CACHE_TENSORS];
    int64_t pages = 0;
    const char *law = NULL;
    mha_cache_save(cache, t);
    bool *used = calloc((size_t)t[2].shape[0] + 1, sizeof *used);
    if (!used) return "the test must have enough memory";
    for (int64_t b = 0; b < m->desc.batch && !law; b++) {
        if (mha_cache_length(cache, b) != m->length[b]) law = "the length of a sequence must be its number of tokens";
        if (!law) law = broken_sequence(t, m, b, used);
    }
    for (int64_t page = 0; page < t[2].shape[0]; page++)
        pages += used[page];
    free(used);
    return law || mha_cache_pages(cache) == pages ? law : "the pages in use must be the pages of the sequences";
}

void cached_holds(const mha_cache *cache, const cached_model *m)
{
    const char *law = cached_broken(cache, m);
    if (law) fail_msg("rule violated: %s", law);
}
