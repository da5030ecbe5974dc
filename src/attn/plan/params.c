/* params.c - checks a description and sets its defaults. Later code does not repeat the checks.
 *
 * Invalid descriptions are detected before unsupported ones, so MHA_ERR_UNSUPPORTED implies that the description is
 * valid. */
#include "attn/plan/params.h"

#include "attn/plan/map_lists.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "math/types/element.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { TOP_KEYS_MAX = 32, PAGE_SIZE_MIN = 16 };

/* ---- sizes ---- */

_Static_assert((int)MHA_HEAD_DIM_MAX == (int)MHA__ROW_MAX, "kernels must support the largest head_dim");

mha_status mha__attn_check_width(const char *field, int64_t width, bool zero, mha_error *err)
{
    if (width >= (zero ? 0 : 1) && width <= MHA_HEAD_DIM_MAX) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "%s must be %sfrom 1 to %d (got %" PRId64 ")", field,
                     zero ? "0 (use head_dim) or " : "", MHA_HEAD_DIM_MAX, width);
}

static mha_status check_sizes(const mha_attn_desc *d, mha_error *err)
{
    if (d->batch <= 0) return mha__fail_int(err, "batch", d->batch, "positive");
    if (d->heads <= 0) return mha__fail_int(err, "heads", d->heads, "positive");
    if (d->kv_heads < 0) return mha__fail_int(err, "kv_heads", d->kv_heads, "0 (use heads) or positive");
    if (d->q_len < 0) return mha__fail_int(err, "q_len", d->q_len, "at least 0");
    if (d->kv_len < 0) return mha__fail_int(err, "kv_len", d->kv_len, "at least 0");
    MHA__TRY(mha__attn_check_width("head_dim", d->head_dim, false, err));
    MHA__TRY(mha__attn_check_width("v_head_dim", d->v_head_dim, true, err));
    if (d->kv_heads > 0 && d->heads % d->kv_heads != 0)
        return mha__fail(err, MHA_ERR_ARG, "heads must be a multiple of kv_heads = %" PRId64 " (got %" PRId64 ")",
                         d->kv_heads, d->heads);
    return MHA_OK;
}

static mha_status check_longest(const mha_attn_desc *d, mha_error *err)
{
    if (d->max_q_len < 0) return mha__fail_int(err, "max_q_len", d->max_q_len, "0 (use q_len) or positive");
    if (d->max_kv_len < 0) return mha__fail_int(err, "max_kv_len", d->max_kv_len, "0 (use kv_len) or positive");
    if ((d->inputs & MHA_ATTN_BLOCK_TABLE) && d->max_kv_len > 0)
        return mha__fail_int(err, "max_kv_len", d->max_kv_len, "0 if inputs contains MHA_ATTN_BLOCK_TABLE");
    return MHA_OK;
}

/* Checks that the size of a tensor in bytes does not overflow. `names` lists its axes for the message. */
static mha_status check_bytes(const char *names, const int64_t shape[4], mha_error *err)
{
    size_t bytes;
    if (mha__bytes(shape, 4, sizeof(double), &bytes) && bytes <= PTRDIFF_MAX) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG,
                     "%s must be at most %td bytes (got %" PRId64 " * %" PRId64 " * %" PRId64 " * %" PRId64
                     " elements)",
                     names, (ptrdiff_t)PTRDIFF_MAX, shape[0], shape[1], shape[2], shape[3]);
}

/* Checks the sizes of all operands. Masks and biases are checked in their broadcast shape, which is that of
 * probabilities, although they are never stored in this shape. */
static mha_status check_products(const mha_attn_desc *d, mha_error *err)
{
    const int64_t widest = mha__max64(d->head_dim, d->v_head_dim), rows = mha__max64(d->q_len, 1);
    const int64_t keys = mha__max64(d->kv_len, 1), page = mha__max64(d->page_size, 1);
    const int64_t queries[] = {d->batch, d->heads, rows, widest}, cached[] = {d->batch, d->kv_heads, keys, widest};
    const int64_t paged[] = {mha__max64(d->pages, 1), d->kv_heads, page, widest};
    const int64_t stats[] = {d->batch, d->heads, mha__max64(rows, keys), mha__max64(d->top_keys, 1)};
    const int64_t visited[] = {d->max_kv_len, MHA__NR_MAX, 1, 1}; /* this memory is allocated per worker, for any
                                                                    * batch */
    const int64_t longest[] = {mha__max64(d->max_q_len, d->max_kv_len), 2, 1, 1};
    int64_t map[4];
    mha__maps_shape(d, map);
    MHA__TRY(check_bytes("batch * heads * q_len * head_dim", queries, err));
    MHA__TRY(check_bytes("batch * kv_heads * kv_len * head_dim", cached, err));
    MHA__TRY(check_bytes("pages * kv_heads * page_size * head_dim", paged, err));
    if (d->inputs & MHA_ATTN_CU_SEQLENS) /* dbias has sums for max_q_len + max_kv_len - 1 distances */
        MHA__TRY(check_bytes("2 * the larger of max_q_len and max_kv_len", longest, err));
    if (d->outputs & MHA_ATTN_STATS) MHA__TRY(check_bytes("batch * heads * length * top_keys of stats", stats, err));
    if (d->outputs & MHA_ATTN_ROWS) MHA__TRY(check_bytes("kv_len * 64 rows for on_rows", visited, err));
    const bool mapped = d->outputs & (MHA_ATTN_PROBS | MHA_ATTN_SCORES);
    return mapped ? check_bytes("batch * heads * q_len * kv_len of probs or scores", map, err) : MHA_OK;
}

/* ---- floating-point parameters ---- */

/* Returns true if x is finite in the kernels' type: f64 if `wide` is set, otherwise f32. */
static bool is_finite(double x, bool wide)
{
    return wide ? isfinite(x) : isfinite((float)x);
}

static mha_status check_numbers(const mha_attn_desc *d, mha_error *err)
{
    const bool wide = d->dtype == MHA_F64;
    if (!is_finite(d->scale, wide))
        return mha__fail(err, MHA_ERR_ARG, "scale must be finite%s (got %g)", wide ? "" : " in f32", d->scale);
    if (!is_finite(d->softcap, wide) || d->softcap < 0)
        return mha__fail(err, MHA_ERR_ARG, "softcap must be 0 (off) or positive and finite (got %g)", d->softcap);
    if (d->softcap > 0 &&
        !is_finite(1 / d->softcap, wide)) /* scores are multiplied by 1 / softcap, and 0 * inf would be NaN */
        return mha__fail(err, MHA_ERR_ARG, "softcap must be 0 or large enough for a finite 1 / softcap%s (got %g)",
                         wide ? "" : " in f32", d->softcap);
    if (!(d->dropout >= 0 && d->dropout <= 1))
        return mha__fail(err, MHA_ERR_ARG, "dropout must be from 0 to 1 (got %g)", d->dropout);
    return MHA_OK;
}

/* ---- masks ---- */

bool mha__attn_positional(const mha_attn_desc *d)
{
    return d->causal || (d->window.on && (d->window.left >= 0 || d->window.right >= 0)) ||
           (d->inputs & (MHA_ATTN_SLOPES | MHA_ATTN_FUNCTIONS)) != 0;
}

static mha_status check_masks(const mha_attn_desc *d, mha_error *err)
{
    if (d->causal != 0 && d->causal != 1) return mha__fail_int(err, "causal", d->causal, "0 or 1");
    if (d->align < MHA_ALIGN_UNSET || d->align > MHA_ALIGN_OFFSETS)
        return mha__fail_int(err, "align", (int64_t)d->align, "a value of mha_align");
    if (d->window.on != 0 && d->window.on != 1) return mha__fail_int(err, "window.on", d->window.on, "0 or 1");
    if (d->window.on && d->window.left < -1)
        return mha__fail_int(err, "window.left", d->window.left, "-1 (open) or at least 0");
    if (d->window.on && d->window.right < -1)
        return mha__fail_int(err, "window.right", d->window.right, "-1 (open) or at least 0");
    const bool comparable = !(d->inputs & MHA_ATTN_CU_SEQLENS) || !(d->inputs & MHA_ATTN_BLOCK_TABLE);
    if (d->align == MHA_ALIGN_UNSET && mha__attn_positional(d) && d->q_len != d->kv_len && comparable)
        return mha__fail(err, MHA_ERR_ARG,
                         "align must be set for causal, window, slopes or functions with q_len = %" PRId64
                         " and kv_len = %" PRId64 " (got MHA_ALIGN_UNSET)",
                         d->q_len, d->kv_len);
    const int64_t keys = d->max_kv_len ? d->max_kv_len : d->kv_len;
    if (d->keep_keys < 0 || d->keep_keys > keys)
        return mha__fail(err, MHA_ERR_ARG, "keep_keys must be from 0 (all) to %s = %" PRId64 " (got %" PRId64 ")",
                         d->max_kv_len ? "max_kv_len" : "kv_len", keys, d->keep_keys);
    return MHA_OK;
}

/* ---- types, flags and optional inputs ---- */

mha_status mha__attn_check_dtype(const char *field, mha_dtype dtype, bool cache, mha_error *err)
{
    const bool is_float = dtype == MHA_F32 || dtype == MHA_BF16 || dtype == MHA_F16 || dtype == MHA_F64;
    if (dtype == MHA_DTYPE_DEFAULT || is_float || (cache && mha__is_cache_only(dtype))) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "%s must be one of f32, f64, bf16, f16%s (got %s)", field,
                     cache ? ", q8_0, q4_0, f8_e4m3" : "", mha__quote_dtype(&(mha__quoted){0}, dtype));
}

static mha_status check_flags(const char *field, uint32_t value, uint32_t known, mha_error *err)
{
    if ((value & ~known) == 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "%s must be a combination of flags without 0x%" PRIx32 " (got 0x%" PRIx32 ")",
                     field, value & ~known, value);
}

/* Checks that the size fields of an input are 0 without its flag. */
static mha_status check_owners(const mha_attn_desc *d, mha_error *err)
{
    static const struct {
        const char *name;
        size_t field;
        uint32_t flag;
    } sizes[] = {
        {"max_q_len", offsetof(mha_attn_desc, max_q_len), MHA_ATTN_CU_SEQLENS},
        {"max_kv_len", offsetof(mha_attn_desc, max_kv_len), MHA_ATTN_CU_SEQLENS},
        {"keep_keys", offsetof(mha_attn_desc, keep_keys), MHA_ATTN_KEEP},
        {"block_q", offsetof(mha_attn_desc, block_q), MHA_ATTN_BLOCK_KEEP},
        {"block_k", offsetof(mha_attn_desc, block_k), MHA_ATTN_BLOCK_KEEP},
        {"page_size", offsetof(mha_attn_desc, page_size), MHA_ATTN_BLOCK_TABLE},
        {"pages", offsetof(mha_attn_desc, pages), MHA_ATTN_BLOCK_TABLE},
        {"listed_heads", offsetof(mha_attn_desc, listed_heads), MHA_ATTN_HEAD_LIST},
        {"map_heads", offsetof(mha_attn_desc, map_heads), MHA_ATTN_MAP_HEADS},
        {"map_rows", offsetof(mha_attn_desc, map_rows), MHA_ATTN_MAP_ROWS},
    };
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        int64_t value;
        memcpy(&value, (const char *)d + sizes[n].field, sizeof value);
        if (value != 0 && !(d->inputs & sizes[n].flag))
            return mha__fail(err, MHA_ERR_ARG, "%s must be 0 without %s in inputs (got %" PRId64 ")", sizes[n].name,
                             mha__input_flag_name(sizes[n].flag), value);
    }
    return MHA_OK;
}

static mha_status check_pages(const mha_attn_desc *d, mha_error *err)
{
    if (!(d->inputs & MHA_ATTN_BLOCK_TABLE)) return MHA_OK;
    if (d->page_size < PAGE_SIZE_MIN || !mha__is_power_of_two(d->page_size))
        return mha__fail_int(err, "page_size", d->page_size, "a power of two of at least 16");
    if (d->pages < 0 || d->pages > INT32_MAX) return mha__fail_int(err, "pages", d->pages, "from 0 to 2147483647");
    return MHA_OK;
}

static mha_status check_block_mask(const mha_attn_desc *d, mha_error *err)
{
    if (!(d->inputs & MHA_ATTN_BLOCK_KEEP)) return MHA_OK;
    if (d->block_q <= 0) return mha__fail_int(err, "block_q", d->block_q, "positive with MHA_ATTN_BLOCK_KEEP");
    if (d->block_k <= 0) return mha__fail_int(err, "block_k", d->block_k, "positive with MHA_ATTN_BLOCK_KEEP");
    return MHA_OK;
}

static mha_status check_head_list(const mha_attn_desc *d, mha_error *err)
{
    if (!(d->inputs & MHA_ATTN_HEAD_LIST) || (d->listed_heads > 0 && d->listed_heads <= d->heads)) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "listed_heads must be from 1 to heads = %" PRId64 " (got %" PRId64 ")", d->heads,
                     d->listed_heads);
}

/* Checks a list of heads or rows for maps, which requires an output that has maps. */
static mha_status check_map_list(const char *field, int64_t entries, uint32_t flag, const mha_attn_desc *d,
                                 mha_error *err)
{
    if (!(d->inputs & flag)) return MHA_OK;
    if (entries < 1)
        return mha__fail(err, MHA_ERR_ARG, "%s must be positive with %s (got %" PRId64 ")", field,
                         mha__input_flag_name(flag), entries);
    if (d->outputs & (MHA_ATTN_PROBS | MHA_ATTN_SCORES | MHA_ATTN_ROWS)) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG,
                     "%s must be 0 unless outputs contains MHA_ATTN_PROBS, MHA_ATTN_SCORES or MHA_ATTN_ROWS "
                     "(got %" PRId64 ")",
                     field, entries);
}

/* Checks the position of a shard. The limit prevents overflow in sums of positions. MHA_ALIGN_BOTTOM_RIGHT and an
 * unset align derive offsets from the lengths of the whole call, which are unknown in a shard. */
static mha_status check_shard(const mha_attn_desc *d, mha_error *err)
{
    const struct {
        const char *name;
        int64_t value;
    } firsts[] = {{"shard.batch", d->shard.batch},
                  {"shard.head", d->shard.head},
                  {"shard.row", d->shard.row},
                  {"shard.key", d->shard.key}};
    for (size_t n = 0; n < sizeof firsts / sizeof *firsts; n++)
        if (firsts[n].value < 0 || firsts[n].value > MHA__POSITION_MAX)
            return mha__fail_int(err, firsts[n].name, firsts[n].value, "from 0 to 2^60");
    const bool counted = d->align == MHA_ALIGN_TOP_LEFT || d->align == MHA_ALIGN_OFFSETS;
    const bool positional = mha__attn_positional(d) || (d->inputs & MHA_ATTN_ROPE_Q);
    if (counted || !positional || (d->shard.row == 0 && d->shard.key == 0)) return MHA_OK;
    return mha__fail_int(err, "align", (int64_t)d->align,
                         "MHA_ALIGN_TOP_LEFT or MHA_ALIGN_OFFSETS if shard.row or shard.key is not 0");
}

/* Checks that the keys of a partial result form exactly one subtree of the merge tree. */
static mha_status check_partial(const mha_attn_desc *d, mha_error *err)
{
    if (!(d->outputs & MHA_ATTN_PARTIAL) || mha__chunk_level(d->shard.key, d->kv_len) >= 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG,
                     "shard.key must begin a subtree of %d-key chunks that contains kv_len = %" PRId64
                     " keys with MHA_ATTN_PARTIAL (got %" PRId64 "); see mha_attn_subtree",
                     MHA_ATTN_CHUNK, d->kv_len, d->shard.key);
}

static mha_status check_extras(const mha_attn_desc *d, mha_error *err)
{
    MHA__TRY(check_flags("inputs", d->inputs, mha__inputs_with(0), err));
    MHA__TRY(check_flags("outputs", d->outputs, mha__outputs_with(0) | MHA_ATTN_GRADS, err));
    MHA__TRY(mha__attn_check_dtype("dtype", d->dtype, false, err));
    MHA__TRY(mha__attn_check_dtype("kv_dtype", d->kv_dtype, true, err));
    MHA__TRY(mha__attn_check_dtype("bias_dtype", d->bias_dtype, false, err));
    MHA__TRY(check_owners(d, err));
    MHA__TRY(check_block_mask(d, err));
    MHA__TRY(check_pages(d, err));
    MHA__TRY(check_shard(d, err));
    MHA__TRY(check_partial(d, err));
    MHA__TRY(check_head_list(d, err));
    MHA__TRY(check_map_list("map_heads", d->map_heads, MHA_ATTN_MAP_HEADS, d, err));
    MHA__TRY(check_map_list("map_rows", d->map_rows, MHA_ATTN_MAP_ROWS, d, err));
    if (d->top_keys < 0 || d->top_keys > TOP_KEYS_MAX)
        return mha__fail_int(err, "top_keys", d->top_keys, "from 0 to 32");
    if (d->top_keys > 0 && !(d->outputs & MHA_ATTN_STATS))
        return mha__fail_int(err, "top_keys", d->top_keys, "0 unless outputs contains MHA_ATTN_STATS");
    if (d->scores < MHA_SCORES_RAW || d->scores > MHA_SCORES_PROBS)
        return mha__fail_int(err, "scores", (int64_t)d->scores, "a value of mha_scores");
    if (d->scores != MHA_SCORES_RAW && !(d->outputs & MHA_ATTN_SCORES))
        return mha__fail_int(err, "scores", (int64_t)d->scores, "0 unless outputs contains MHA_ATTN_SCORES");
    return MHA_OK;
}

/* ---- unsupported descriptions ---- */

mha_status mha__attn_check_blocks(const char *field, int64_t width, mha_dtype dtype, mha_error *err)
{
    if (dtype != MHA_Q4_0 || width % MHA__Q4_BLOCK == 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "%s must be a multiple of 32 with keys and values in q4_0 (got %" PRId64 ")", field, width);
}

/* Checks a description with keys and values in q4_0. Partial results are sums of rotated values. */
static mha_status check_rotated(const mha_attn_desc *d, mha_error *err)
{
    MHA__TRY(mha__attn_check_blocks("head_dim", d->head_dim, d->kv_dtype, err));
    MHA__TRY(mha__attn_check_blocks("v_head_dim", d->v_head_dim, d->kv_dtype, err));
    if (d->kv_dtype != MHA_Q4_0 || !(d->outputs & MHA_ATTN_PARTIAL)) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "kv_dtype must not be q4_0 if outputs contains MHA_ATTN_PARTIAL");
}

mha_status mha__attn_check_kernels(mha_dtype dtype, mha_error *err)
{
    if (dtype != MHA_F64 || mha__kernels_f64()) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "dtype must not be f64 in a build for WASI, which has no f64 kernels");
}

/* Checks that a valid description is supported. The types in `d` are already set to their defaults. */
static mha_status check_supported(const mha_attn_desc *d, mha_error *err)
{
    static const char pair[] = "%s must be f64 if and only if dtype is f64 (got %s with dtype %s)";
    MHA__TRY(mha__attn_check_kernels(d->dtype, err));
    if ((d->kv_dtype == MHA_F64) != (d->dtype == MHA_F64))
        return mha__fail(err, MHA_ERR_UNSUPPORTED, pair, "kv_dtype", mha_dtype_name(d->kv_dtype),
                         mha_dtype_name(d->dtype));
    if ((d->inputs & MHA_ATTN_BIAS) && (d->bias_dtype == MHA_F64) != (d->dtype == MHA_F64))
        return mha__fail(err, MHA_ERR_UNSUPPORTED, pair, "bias_dtype", mha_dtype_name(d->bias_dtype),
                         mha_dtype_name(d->dtype));
    if ((d->outputs & MHA_ATTN_GRADS) && mha__is_cache_only(d->kv_dtype))
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "kv_dtype must be one of f32, f64, bf16, f16 if outputs contains MHA_ATTN_GRADS (got %s)",
                         mha_dtype_name(d->kv_dtype));
    MHA__TRY(check_rotated(d, err));
    if ((d->outputs & MHA_ATTN_PARTIAL) && (d->inputs & MHA_ATTN_CU_SEQLENS))
        return mha__fail(err, MHA_ERR_UNSUPPORTED,
                         "inputs must not contain MHA_ATTN_CU_SEQLENS if outputs contains MHA_ATTN_PARTIAL "
                         "(got 0x%" PRIx32 ")",
                         d->inputs);
    return MHA_OK;
}

static void fill_defaults(mha_attn_desc *d)
{
    if (d->kv_heads == 0) d->kv_heads = d->heads;
    if (d->listed_heads == 0) d->listed_heads = d->heads;
    if (d->v_head_dim == 0) d->v_head_dim = d->head_dim;
    if (d->dtype == MHA_DTYPE_DEFAULT) d->dtype = MHA_F32;
    if (d->kv_dtype == MHA_DTYPE_DEFAULT) d->kv_dtype = d->dtype;
    if (d->bias_dtype == MHA_DTYPE_DEFAULT) d->bias_dtype = d->dtype == MHA_F64 ? MHA_F64 : MHA_F32;
    if (d->scale == 0) d->scale = 1 / sqrt((double)d->head_dim);
    if (d->max_q_len == 0) d->max_q_len = d->q_len;
    if (d->max_kv_len == 0) d->max_kv_len = d->kv_len;
    if (d->keep_keys == 0) d->keep_keys = d->max_kv_len;
    if (!d->window.on) d->window = (mha_window){0, -1, -1};
}

mha_status mha__attn_resolve(const mha_attn_desc *desc, mha_attn_desc *resolved, mha_error *err)
{
    mha_attn_desc d;
    MHA__TRY(mha__options_need(&d, sizeof d, desc, "mha_attn_desc", err));
    MHA__TRY(check_sizes(&d, err));
    MHA__TRY(check_longest(&d, err));
    MHA__TRY(check_numbers(&d, err));
    MHA__TRY(check_masks(&d, err));
    MHA__TRY(check_extras(&d, err));
    fill_defaults(&d);
    MHA__TRY(check_products(&d, err));
    MHA__TRY(check_supported(&d, err));
    *resolved = d;
    return MHA_OK;
}
