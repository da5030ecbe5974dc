/* params.c - checks a description and fills in its defaults. Nothing below it checks again.
 *
 * Everything that makes no sense is found before anything that is merely not built, so that a sentence about a missing
 * feature always means: the description is right.
 */
#include "attn/plan/params.h"

#include "attn/stats/requested_maps.h"
#include "base/error.h"
#include "base/size.h"
#include <inttypes.h>
#include <math.h>

enum { TOP_KEYS_MAX = 32, PAGE_SIZE_MIN = 16 };

static mha_status bad_int(mha_error *err, const char *field, int64_t value, const char *want)
{
    return mha__fail(err, MHA_ERR_ARG, "%s = %" PRId64 ": must be %s", field, value, want);
}

/* ---- sizes ---- */

_Static_assert((int)MHA_HEAD_DIM_MAX == (int)MHA__ROW_MAX, "kernels have room for the widest head");

mha_status mha__attn_check_width(const char *field, int64_t width, bool zero, mha_error *err)
{
    if (width >= (zero ? 0 : 1) && width <= MHA_HEAD_DIM_MAX) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "%s = %" PRId64 ": must be %s1 to %d", field, width,
                     zero ? "0 (as head_dim) or " : "", MHA_HEAD_DIM_MAX);
}

static mha_status check_sizes(const mha_attn_desc *d, mha_error *err)
{
    if (d->batch <= 0) return bad_int(err, "batch", d->batch, "positive");
    if (d->heads <= 0) return bad_int(err, "heads", d->heads, "positive");
    if (d->kv_heads < 0) return bad_int(err, "kv_heads", d->kv_heads, "0 (as heads) or positive");
    if (d->q_len < 0) return bad_int(err, "q_len", d->q_len, "0 or positive");
    if (d->kv_len < 0) return bad_int(err, "kv_len", d->kv_len, "0 or positive");
    MHA__TRY(mha__attn_check_width("head_dim", d->head_dim, false, err));
    MHA__TRY(mha__attn_check_width("v_head_dim", d->v_head_dim, true, err));
    if (d->kv_heads > 0 && d->heads % d->kv_heads != 0)
        return mha__fail(err, MHA_ERR_ARG, "heads = %" PRId64 " is not a multiple of kv_heads = %" PRId64, d->heads,
                         d->kv_heads);
    return MHA_OK;
}

/* How long a sequence may be is only a question where they are packed. */
static mha_status check_longest(const mha_attn_desc *d, mha_error *err)
{
    const bool packed = d->inputs & MHA_ATTN_CU_SEQLENS, paged = d->inputs & MHA_ATTN_BLOCK_TABLE;
    if (d->max_q_len < 0) return bad_int(err, "max_q_len", d->max_q_len, "0 (as q_len) or positive");
    if (d->max_kv_len < 0) return bad_int(err, "max_kv_len", d->max_kv_len, "0 (as kv_len) or positive");
    if (!packed && d->max_q_len > 0) return bad_int(err, "max_q_len", d->max_q_len, "0 without MHA_ATTN_CU_SEQLENS");
    if (!packed && d->max_kv_len > 0) return bad_int(err, "max_kv_len", d->max_kv_len, "0 without MHA_ATTN_CU_SEQLENS");
    if (paged && d->max_kv_len > 0)
        return bad_int(err, "max_kv_len", d->max_kv_len,
                       "0 with MHA_ATTN_BLOCK_TABLE: kv_len is that of each sequence");
    return MHA_OK;
}

/* Counts of bytes of every operand must fit; masks and biases are checked like probabilities only in what they
 * broadcast to, which is never stored. */
static mha_status check_products(const mha_attn_desc *d, mha_error *err)
{
    const int64_t widest = mha__max64(d->head_dim, d->v_head_dim);
    const int64_t rows[] = {d->batch, d->heads, mha__max64(d->q_len, 1), widest};
    const int64_t keys[] = {d->batch, d->kv_heads, mha__max64(d->kv_len, 1), widest};
    const int64_t paged[] = {mha__max64(d->pages, 1), d->kv_heads, mha__max64(d->page_size, 1), widest};
    size_t bytes;
    if (!mha__bytes(rows, 4, sizeof(double), &bytes) || bytes > PTRDIFF_MAX)
        return mha__fail(err, MHA_ERR_ARG,
                         "batch * heads * q_len * head_dim = %" PRId64 " * %" PRId64 " * %" PRId64 " * %" PRId64
                         " overflows",
                         d->batch, d->heads, d->q_len, widest);
    if (!mha__bytes(keys, 4, sizeof(double), &bytes) || bytes > PTRDIFF_MAX)
        return mha__fail(err, MHA_ERR_ARG,
                         "batch * kv_heads * kv_len * head_dim = %" PRId64 " * %" PRId64 " * %" PRId64 " * %" PRId64
                         " overflows",
                         d->batch, d->kv_heads, d->kv_len, widest);
    if (!mha__bytes(paged, 4, sizeof(double), &bytes) || bytes > PTRDIFF_MAX)
        return mha__fail(err, MHA_ERR_ARG,
                         "pages * kv_heads * page_size * head_dim = %" PRId64 " * %" PRId64 " * %" PRId64 " * %" PRId64
                         " overflows",
                         d->pages, d->kv_heads, d->page_size, widest);
    const int64_t stats[] = {d->batch, d->heads, mha__max64(rows[2], keys[2]), mha__max64(d->top_keys, 1)};
    if ((d->outputs & MHA_ATTN_STATS) && (!mha__bytes(stats, 4, sizeof(int64_t), &bytes) || bytes > PTRDIFF_MAX))
        return mha__fail(err, MHA_ERR_ARG,
                         "stats of batch * heads * length * top_keys = %" PRId64 " * %" PRId64 " * %" PRId64
                         " * %" PRId64 " numbers overflow",
                         d->batch, d->heads, stats[2], stats[3]);
    int64_t map[4];
    mha__maps_extent(d, map);
    if ((d->outputs & (MHA_ATTN_PROBS | MHA_ATTN_SCORES)) &&
        (!mha__bytes(map, 4, sizeof(double), &bytes) || bytes > PTRDIFF_MAX))
        return mha__fail(err, MHA_ERR_ARG,
                         "probs or scores of batch * heads * q_len * kv_len = %" PRId64 " * %" PRId64 " * %" PRId64
                         " * %" PRId64 " numbers overflow",
                         map[0], map[1], map[2], map[3]);
    return MHA_OK;
}

/* ---- numbers ---- */

/* As kernels see it: in f64, or in f32. */
static bool is_finite(double x, bool wide)
{
    return wide ? isfinite(x) : isfinite((float)x);
}

static mha_status check_numbers(const mha_attn_desc *d, mha_error *err)
{
    const bool wide = d->dtype == MHA_F64;
    if (!is_finite(d->scale, wide))
        return mha__fail(err, MHA_ERR_ARG, "scale = %g: must be finite%s", d->scale, wide ? "" : " in f32");
    if (!is_finite(d->softcap, wide) || d->softcap < 0)
        return mha__fail(err, MHA_ERR_ARG, "softcap = %g: must be 0 (off) or positive and finite", d->softcap);
    if (d->softcap > 0 && !is_finite(1 / d->softcap, wide)) /* scores are multiplied by it, and 0 may be one of them */
        return mha__fail(err, MHA_ERR_ARG, "softcap = %g: too small, as 1 / softcap must be finite%s", d->softcap,
                         wide ? "" : " in f32");
    if (!(d->dropout >= 0 && d->dropout <= 1))
        return mha__fail(err, MHA_ERR_ARG, "dropout = %g: must be from 0 to 1", d->dropout);
    return MHA_OK;
}

/* ---- masks ---- */

bool mha__attn_positional(const mha_attn_desc *d)
{
    return d->causal || (d->window.on && (d->window.left >= 0 || d->window.right >= 0)) ||
           (d->inputs & MHA_ATTN_SLOPES) != 0;
}

static mha_status check_masks(const mha_attn_desc *d, mha_error *err)
{
    if (d->causal != 0 && d->causal != 1) return bad_int(err, "causal", d->causal, "0 or 1");
    if (d->align < MHA_ALIGN_UNSET || d->align > MHA_ALIGN_OFFSETS)
        return bad_int(err, "align", (int64_t)d->align, "a value of mha_align");
    if (d->window.on != 0 && d->window.on != 1) return bad_int(err, "window.on", d->window.on, "0 or 1");
    if (d->window.on && d->window.left < -1)
        return bad_int(err, "window.left", d->window.left, "-1 (open) or a number of keys");
    if (d->window.on && d->window.right < -1)
        return bad_int(err, "window.right", d->window.right, "-1 (open) or a number of keys");
    const bool comparable = !(d->inputs & MHA_ATTN_CU_SEQLENS) || !(d->inputs & MHA_ATTN_BLOCK_TABLE);
    if (d->align == MHA_ALIGN_UNSET && mha__attn_positional(d) && d->q_len != d->kv_len && comparable)
        return mha__fail(err, MHA_ERR_ARG,
                         "align is unset, but it matters: q_len = %" PRId64 ", kv_len = %" PRId64
                         ", and causal, window or slopes are on",
                         d->q_len, d->kv_len);
    const int64_t keys = d->max_kv_len ? d->max_kv_len : d->kv_len;
    if (d->keep_keys < 0 || d->keep_keys > keys)
        return mha__fail(err, MHA_ERR_ARG, "keep_keys = %" PRId64 ": must be from 0 (all) to %s = %" PRId64,
                         d->keep_keys, d->max_kv_len ? "max_kv_len" : "kv_len", keys);
    if (d->keep_keys > 0 && !(d->inputs & MHA_ATTN_KEEP))
        return mha__fail(err, MHA_ERR_ARG, "keep_keys = %" PRId64 ", but inputs lacks MHA_ATTN_KEEP", d->keep_keys);
    return MHA_OK;
}

/* ---- types, flags ---- */

static mha_status check_dtype(const char *field, mha_dtype dtype, bool cache, mha_error *err)
{
    const bool is_float = dtype == MHA_F32 || dtype == MHA_BF16 || dtype == MHA_F16 || dtype == MHA_F64;
    if (dtype == MHA_DTYPE_DEFAULT || is_float || (cache && dtype == MHA_Q8_0)) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "%s = %d (%s): must be f32, f64, bf16, f16%s", field, (int)dtype,
                     mha_dtype_name(dtype), cache ? " or q8_0" : "");
}

/* Flags are bits without gaps. */
static const uint32_t KNOWN_INPUTS = 2 * (uint32_t)MHA_ATTN_MAP_ROWS - 1,
                      KNOWN_OUTPUTS = 2 * (uint32_t)MHA_ATTN_ROWS - 1;

static mha_status check_flags(const char *field, uint32_t value, uint32_t known, mha_error *err)
{
    if ((value & ~known) == 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "%s = 0x%" PRIx32 ": bits 0x%" PRIx32 " are unknown", field, value,
                     value & ~known);
}

static mha_status check_pages(const mha_attn_desc *d, mha_error *err)
{
    if (d->inputs & MHA_ATTN_BLOCK_TABLE) {
        if (d->page_size < PAGE_SIZE_MIN || (d->page_size & (d->page_size - 1)) != 0)
            return bad_int(err, "page_size", d->page_size, "a power of two, 16 or more");
        if (d->pages < 0 || d->pages > INT32_MAX) return bad_int(err, "pages", d->pages, "from 0 to 2147483647");
        return MHA_OK;
    }
    if (d->page_size != 0) return bad_int(err, "page_size", d->page_size, "0, as inputs lacks MHA_ATTN_BLOCK_TABLE");
    if (d->pages != 0) return bad_int(err, "pages", d->pages, "0, as inputs lacks MHA_ATTN_BLOCK_TABLE");
    return MHA_OK;
}

/* Block sizes and the block mask go together. */
static mha_status check_block(const char *field, int64_t size, const mha_attn_desc *d, mha_error *err)
{
    const bool wanted = (d->inputs & MHA_ATTN_BLOCK_KEEP) != 0;
    if (wanted && size <= 0) return bad_int(err, field, size, "positive with MHA_ATTN_BLOCK_KEEP");
    if (!wanted && size != 0) return bad_int(err, field, size, "0 without MHA_ATTN_BLOCK_KEEP");
    return MHA_OK;
}

static mha_status check_head_list(const mha_attn_desc *d, mha_error *err)
{
    if (!(d->inputs & MHA_ATTN_HEAD_LIST))
        return d->listed_heads == 0 ? MHA_OK
                                    : bad_int(err, "listed_heads", d->listed_heads, "0 without MHA_ATTN_HEAD_LIST");
    if (d->listed_heads > 0 && d->listed_heads <= d->heads) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "listed_heads = %" PRId64 ": must be from 1 to heads = %" PRId64,
                     d->listed_heads, d->heads);
}

/* A list of the heads or rows of maps, the maps themselves, and its number of entries go together. */
static mha_status check_map_list(const char *field, int64_t entries, uint32_t flag, const char *flag_name,
                                 const mha_attn_desc *d, mha_error *err)
{
    if (!(d->inputs & flag) && entries != 0)
        return mha__fail(err, MHA_ERR_ARG, "%s = %" PRId64 ": must be 0 without %s", field, entries, flag_name);
    if (!(d->inputs & flag)) return MHA_OK;
    if (entries < 1)
        return mha__fail(err, MHA_ERR_ARG, "%s = %" PRId64 ": must be positive with %s", field, entries, flag_name);
    if (d->outputs & (MHA_ATTN_PROBS | MHA_ATTN_SCORES | MHA_ATTN_ROWS)) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG,
                     "%s = %" PRId64 ", but outputs lacks MHA_ATTN_PROBS, MHA_ATTN_SCORES and MHA_ATTN_ROWS", field,
                     entries);
}

static mha_status check_extras(const mha_attn_desc *d, mha_error *err)
{
    MHA__TRY(check_flags("inputs", d->inputs, KNOWN_INPUTS, err));
    MHA__TRY(check_flags("outputs", d->outputs, KNOWN_OUTPUTS, err));
    MHA__TRY(check_dtype("dtype", d->dtype, false, err));
    MHA__TRY(check_dtype("kv_dtype", d->kv_dtype, true, err));
    MHA__TRY(check_dtype("bias_dtype", d->bias_dtype, false, err));
    MHA__TRY(check_block("block_q", d->block_q, d, err));
    MHA__TRY(check_block("block_k", d->block_k, d, err));
    MHA__TRY(check_pages(d, err));
    MHA__TRY(check_head_list(d, err));
    MHA__TRY(check_map_list("map_heads", d->map_heads, MHA_ATTN_MAP_HEADS, "MHA_ATTN_MAP_HEADS", d, err));
    MHA__TRY(check_map_list("map_rows", d->map_rows, MHA_ATTN_MAP_ROWS, "MHA_ATTN_MAP_ROWS", d, err));
    if (d->top_keys < 0 || d->top_keys > TOP_KEYS_MAX) return bad_int(err, "top_keys", d->top_keys, "0 to 32");
    if (d->top_keys > 0 && !(d->outputs & MHA_ATTN_STATS))
        return bad_int(err, "top_keys", d->top_keys, "0, as outputs lacks MHA_ATTN_STATS");
    if (d->scores < MHA_SCORES_RAW || d->scores > MHA_SCORES_PROBS)
        return bad_int(err, "scores", (int64_t)d->scores, "a value of mha_scores");
    if (d->scores != MHA_SCORES_RAW && !(d->outputs & MHA_ATTN_SCORES))
        return bad_int(err, "scores", (int64_t)d->scores, "0, as outputs lacks MHA_ATTN_SCORES");
    if (d->precision != MHA_PRECISION_DEFAULT && d->precision != MHA_PRECISION_SPLIT)
        return bad_int(err, "precision", (int64_t)d->precision, "a value of mha_precision");
    return MHA_OK;
}

/* ---- what is not built ---- */

static mha_status refuse(mha_error *err, const char *field, const char *value, const char *why)
{
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "%s = %s: %s", field, value, why);
}

/* `d` has its default types filled in. */
static mha_status check_built(const mha_attn_desc *d, mha_error *err)
{
    static const char mixed[] = "f64 goes with f64 only, in q, k, v and bias";
    if ((d->kv_dtype == MHA_F64) != (d->dtype == MHA_F64))
        return refuse(err, "kv_dtype", mha_dtype_name(d->kv_dtype), mixed);
    if ((d->inputs & MHA_ATTN_BIAS) && (d->bias_dtype == MHA_F64) != (d->dtype == MHA_F64))
        return refuse(err, "bias_dtype", mha_dtype_name(d->bias_dtype), mixed);
    if ((d->outputs & MHA_ATTN_GRADS) && d->kv_dtype == MHA_Q8_0)
        return refuse(err, "MHA_ATTN_GRADS with kv_dtype", mha_dtype_name(d->kv_dtype), "it has no gradients");
    if ((d->outputs & MHA_ATTN_GRADS) && (d->inputs & MHA_ATTN_BLOCK_TABLE))
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "MHA_ATTN_GRADS: gradients of keys in pages are not supported");
    if (d->precision == MHA_PRECISION_SPLIT)
        return refuse(err, "precision", "MHA_PRECISION_SPLIT", "split products are not built");
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
    if (!desc) return mha__fail(err, MHA_ERR_ARG, "desc is NULL");
    if (desc->size != sizeof *desc)
        return mha__fail(err, MHA_ERR_ARG, "desc.size = %zu: must be sizeof(mha_attn_desc) = %zu", desc->size,
                         sizeof *desc);
    mha_attn_desc d = *desc;
    MHA__TRY(check_sizes(&d, err));
    MHA__TRY(check_longest(&d, err));
    MHA__TRY(check_numbers(&d, err));
    MHA__TRY(check_masks(&d, err));
    MHA__TRY(check_extras(&d, err));
    fill_defaults(&d);
    MHA__TRY(check_products(&d, err));
    MHA__TRY(check_built(&d, err));
    *resolved = d;
    return MHA_OK;
}
