/* operand_table.c - the table of all operands, and the functions that read the table. */
#include "attn/plan/operand_table.h"

#include "attn/plan/map_lists.h"
#include "base/error.h"
#include "base/size.h"
#include "math/types/element.h"
#include "mha/attn_grads.h"
#include <string.h>

#define ARG(field) #field, offsetof(mha_attn_args, field)
#define STAT(field) "stats." #field, offsetof(mha_attn_stats, field)
#define GRAD(field) "grads." #field, offsetof(mha_attn_grads, field)
#define FLAG(flag) flag, #flag
#define NO_FLAG 0, NULL
#define SHAPE(a, b, c, d)                                      \
    {                                                          \
        MHA__DIM_##a, MHA__DIM_##b, MHA__DIM_##c, MHA__DIM_##d \
    }
#define LENGTHS SHAPE(ONE, ONE, ONE, BATCH)
#define PER_HEAD SHAPE(BATCH, HEADS, ONE, ONE)
#define PER_ROW SHAPE(ROW_BATCH, LISTED_HEADS, Q_LEN, ONE)
#define MAP SHAPE(BATCH, MAPPED_HEADS, MAPPED_ROWS, MAX_KV_LEN)
#define RESULT SHAPE(ROW_BATCH, LISTED_HEADS, Q_LEN, V_HEAD_DIM)

/* ---- rows of the table ---- */

enum {
    MASK = MHA__BROADCASTS | MHA__ON_SCORES,
    SUMMED = MHA__BROADCASTS | MHA__IS_OPTIONAL,
    LENGTH = MHA__IS_ARRAY | MHA__FOLDS | MHA__SINGLE_BLOCK,
};

const mha__operand_row mha__input_rows[MHA__INPUT_ROWS] = {
    {ARG(q), NO_FLAG, MHA__OF_Q, SHAPE(ROW_BATCH, HEADS, Q_LEN, HEAD_DIM), 4, MHA__FOLDS_ROWS},
    {ARG(k), NO_FLAG, MHA__OF_KV, SHAPE(STORES, KV_HEADS, STORED_KEYS, K_ELEMENTS), 4, 0},
    {ARG(v), NO_FLAG, MHA__OF_KV, SHAPE(STORES, KV_HEADS, STORED_KEYS, V_ELEMENTS), 4, 0},
    {ARG(keep), FLAG(MHA_ATTN_KEEP), MHA__OF_BYTE, SHAPE(BATCH, HEADS, MAX_Q_LEN, KEEP_KEYS), 4, MASK | MHA__FOLDS_ONE},
    {ARG(bias), FLAG(MHA_ATTN_BIAS), MHA__OF_BIAS, SHAPE(BATCH, HEADS, MAX_Q_LEN, MAX_KV_LEN), 4,
     MASK | MHA__FOLDS_ONE},
    {ARG(block_keep), FLAG(MHA_ATTN_BLOCK_KEEP), MHA__OF_BYTE, SHAPE(BATCH, HEADS, MASK_ROWS, MASK_KEYS), 4,
     MASK | MHA__FOLDS_ONE},
    {ARG(dropout_keep), FLAG(MHA_ATTN_DROPOUT_KEEP), MHA__OF_BYTE, SHAPE(BATCH, HEADS, MAX_Q_LEN, MAX_KV_LEN), 4,
     MHA__BROADCASTS},
    {ARG(slopes), FLAG(MHA_ATTN_SLOPES), MHA__OF_REAL, PER_HEAD, 2, MASK | MHA__PER_HEAD_SUM},
    {ARG(sinks), FLAG(MHA_ATTN_SINKS), MHA__OF_REAL, PER_HEAD, 2, MHA__BROADCASTS | MHA__PER_HEAD_SUM},
    {ARG(gates), FLAG(MHA_ATTN_GATES), MHA__OF_REAL, PER_HEAD, 2, MHA__BROADCASTS | MHA__PER_HEAD_SUM},
    {ARG(block_table), FLAG(MHA_ATTN_BLOCK_TABLE), MHA__OF_INT32, SHAPE(BATCH, TABLE_PAGES, ONE, ONE), 2, MHA__FOLDS},
    {ARG(map_rows), FLAG(MHA_ATTN_MAP_ROWS), MHA__OF_INT64, SHAPE(BATCH, MAP_ROWS, ONE, ONE), 2, 0},
    {ARG(q_lens), FLAG(MHA_ATTN_Q_LENS), MHA__OF_INT64, LENGTHS, 1, LENGTH},
    {ARG(kv_lens), FLAG(MHA_ATTN_KV_LENS), MHA__OF_INT64, LENGTHS, 1, LENGTH},
    {ARG(offsets), 0, "MHA_ALIGN_OFFSETS", MHA__OF_INT64, LENGTHS, 1, MHA__IS_ARRAY | MHA__BY_ALIGN | MHA__IS_OPTIONAL},
    {ARG(prefix_lens), FLAG(MHA_ATTN_PREFIX_LENS), MHA__OF_INT64, LENGTHS, 1, MHA__IS_ARRAY},
    {ARG(cu_seqlens_q), FLAG(MHA_ATTN_CU_SEQLENS), MHA__OF_INT64, SHAPE(ONE, ONE, ONE, ENDS), 1,
     MHA__IS_ARRAY | MHA__SINGLE_BLOCK},
    {ARG(cu_seqlens_k), FLAG(MHA_ATTN_CU_SEQLENS), MHA__OF_INT64, SHAPE(ONE, ONE, ONE, ENDS), 1,
     MHA__IS_ARRAY | MHA__SINGLE_BLOCK | MHA__UNPAGED},
    {ARG(head_list), FLAG(MHA_ATTN_HEAD_LIST), MHA__OF_INT32, SHAPE(ONE, ONE, ONE, LISTED_HEADS), 1,
     MHA__IS_ARRAY | MHA__SINGLE_BLOCK},
    {ARG(map_heads), FLAG(MHA_ATTN_MAP_HEADS), MHA__OF_INT32, SHAPE(ONE, ONE, ONE, MAP_HEADS), 1, MHA__IS_ARRAY},
    {ARG(functions), FLAG(MHA_ATTN_FUNCTIONS), MHA__OF_NONE, {0}, 0, MHA__ON_SCORES},
    {ARG(rope),
     MHA_ATTN_ROPE_Q | MHA_ATTN_ROPE_K,
     "MHA_ATTN_ROPE_Q or MHA_ATTN_ROPE_K",
     MHA__OF_NONE,
     {0},
     0,
     MHA__FOLDS | MHA__SINGLE_BLOCK},
};

const mha__operand_row mha__output_rows[MHA__OUTPUT_ROWS] = {
    {ARG(out), NO_FLAG, MHA__OF_Q, RESULT, 4, MHA__FOLDS_ROWS},
    {ARG(lse), FLAG(MHA_ATTN_LSE), MHA__OF_REAL, PER_ROW, 3, MHA__IS_RESULT | MHA__FOLDS_ROWS},
    {ARG(probs), FLAG(MHA_ATTN_PROBS), MHA__OF_REAL, MAP, 4, MHA__IS_RESULT | MHA__FOLDS_ONE},
    {ARG(stats), FLAG(MHA_ATTN_STATS), MHA__OF_NONE, {0}, 0, MHA__IS_RESULT},
    {ARG(scores), FLAG(MHA_ATTN_SCORES), MHA__OF_REAL, MAP, 4, MHA__IS_RESULT | MHA__FOLDS_ONE},
    {ARG(on_rows), FLAG(MHA_ATTN_ROWS), MHA__OF_NONE, {0}, 0, MHA__IS_RESULT},
    {ARG(partial), FLAG(MHA_ATTN_PARTIAL), MHA__OF_REAL, SHAPE(ROW_BATCH, LISTED_HEADS, Q_LEN, PARTIAL), 4,
     MHA__IS_RESULT | MHA__FOLDS_ROWS},
};

const mha__operand_row mha__stats_rows[MHA__STATS_ROWS] = {
    {STAT(row_entropy), NO_FLAG, MHA__OF_REAL, PER_ROW, 3, 0},
    {STAT(row_max), NO_FLAG, MHA__OF_REAL, PER_ROW, 3, 0},
    {STAT(row_argmax), NO_FLAG, MHA__OF_INT64, PER_ROW, 3, 0},
    {STAT(row_distance), NO_FLAG, MHA__OF_REAL, PER_ROW, 3, 0},
    {STAT(received), NO_FLAG, MHA__OF_REAL, SHAPE(KEY_BATCH, LISTED_HEADS, KV_LEN, ONE), 3, 0},
    {STAT(top_prob), NO_FLAG, MHA__OF_REAL, SHAPE(ROW_BATCH, LISTED_HEADS, Q_LEN, TOP_KEYS), 4, 0},
    {STAT(top_key), NO_FLAG, MHA__OF_INT64, SHAPE(ROW_BATCH, LISTED_HEADS, Q_LEN, TOP_KEYS), 4, 0},
};

const mha__operand_row mha__grad_input_rows[MHA__GRAD_INPUT_ROWS] = {
    {GRAD(dout), NO_FLAG, MHA__OF_Q, RESULT, 4, 0},
    {GRAD(out), NO_FLAG, MHA__OF_Q, RESULT, 4, 0},
    {GRAD(lse), NO_FLAG, MHA__OF_REAL, PER_ROW, 3, 0},
    {GRAD(dlse), NO_FLAG, MHA__OF_REAL, PER_ROW, 3, MHA__IS_OPTIONAL},
};

const mha__operand_row mha__grad_rows[MHA__GRAD_ROWS] = {
    {GRAD(dq), NO_FLAG, MHA__OF_Q, SHAPE(ROW_BATCH, HEADS, Q_LEN, HEAD_DIM), 4, 0},
    {GRAD(dk), NO_FLAG, MHA__OF_KV, SHAPE(STORES, KV_HEADS, STORED_KEYS, HEAD_DIM), 4, 0},
    {GRAD(dv), NO_FLAG, MHA__OF_KV, SHAPE(STORES, KV_HEADS, STORED_KEYS, V_HEAD_DIM), 4, 0},
    {GRAD(dbias), FLAG(MHA_ATTN_BIAS), MHA__OF_REAL, SHAPE(BATCH, HEADS, MAX_Q_LEN, MAX_KV_LEN), 4, SUMMED},
    {GRAD(dslopes), FLAG(MHA_ATTN_SLOPES), MHA__OF_REAL, PER_HEAD, 2, SUMMED},
    {GRAD(dsinks), FLAG(MHA_ATTN_SINKS), MHA__OF_REAL, PER_HEAD, 2, SUMMED},
    {GRAD(dgates), FLAG(MHA_ATTN_GATES), MHA__OF_REAL, PER_HEAD, 2, SUMMED},
    {GRAD(row_taylor), NO_FLAG, MHA__OF_REAL, PER_ROW, 3, 0},
};

/* ---- lookup by property ---- */

uint32_t mha__inputs_with(uint32_t facts)
{
    uint32_t flags = 0;
    for (int n = 0; n < MHA__INPUT_ROWS; n++)
        if ((mha__input_rows[n].facts & facts) == facts) flags |= mha__input_rows[n].flag;
    return flags;
}

uint32_t mha__outputs_with(uint32_t facts)
{
    uint32_t flags = 0;
    for (int n = 0; n < MHA__OUTPUT_ROWS; n++)
        if ((mha__output_rows[n].facts & facts) == facts) flags |= mha__output_rows[n].flag;
    return flags;
}

const char *mha__input_flag_name(uint32_t flag)
{
    int n = 0;
    while (mha__input_rows[n].flag != flag)
        n++;
    return mha__input_rows[n].flag_name;
}

/* Returns the kernels of a storage type. No other code maps storage types to kernels. */
mha__stored mha__operand_stored(const mha__kernels *k, mha_dtype dtype)
{
    static const int types[] = {[MHA_BF16] = 1 + MHA__BF16,
                                [MHA_F16] = 1 + MHA__F16,
                                [MHA_Q8_0] = 1 + MHA__Q8,
                                [MHA_Q4_0] = 1 + MHA__Q4,
                                [MHA_F8_E4M3] = 1 + MHA__E4M3};
    const int type = (size_t)dtype < sizeof types / sizeof *types ? types[dtype] - 1 : -1;
    mha__stored as = {.dtype = dtype, .size = mha__element_size(dtype), .type = type};
    if (type >= 0) as.widen = k->widen[type];
    if (type >= 0 && type < MHA__HALVES) as.narrow = k->narrow[type];
    return as;
}

size_t mha__element_bytes(const mha_attn_plan *plan, mha__element element)
{
    switch (element) {
    case MHA__OF_BYTE:
        return 1;
    case MHA__OF_INT32:
        return sizeof(int32_t);
    case MHA__OF_INT64:
        return sizeof(int64_t);
    case MHA__OF_Q:
        return plan->q.size;
    case MHA__OF_KV:
        return plan->kv.size;
    case MHA__OF_BIAS:
        return plan->bias.size;
    default:
        return plan->kernels->real_size;
    }
}

/* Returns the number of blocks along an axis; 0 if the description has no block size. */
static int64_t blocks(int64_t length, int64_t size)
{
    return size > 0 ? mha__ceil_div(length, size) : 0;
}

/* Returns the length of an axis of k or v as stored, or of the maps that a call writes. */
static int64_t stored_dimension(const mha_attn_plan *plan, mha__dimension dimension)
{
    const mha_attn_desc *d = &plan->desc;
    const bool paged = d->inputs & MHA_ATTN_BLOCK_TABLE;
    int64_t map[4];
    mha__maps_shape(d, map);
    switch (dimension) {
    case MHA__DIM_STORES:
        return paged ? d->pages : plan->packed ? 1 : d->batch;
    case MHA__DIM_STORED_KEYS:
        return paged ? d->page_size : d->kv_len;
    case MHA__DIM_K_ELEMENTS:
        return mha__element_count(d->kv_dtype, d->head_dim);
    case MHA__DIM_V_ELEMENTS:
        return mha__element_count(d->kv_dtype, d->v_head_dim);
    case MHA__DIM_PARTIAL:
        return 2 + d->v_head_dim;
    case MHA__DIM_MAPPED_HEADS:
        return map[1];
    default:
        return map[2];
    }
}

int64_t mha__dimension_of(const mha_attn_plan *plan, mha__dimension dimension)
{
    const mha_attn_desc *d = &plan->desc;
    switch (dimension) {
    case MHA__DIM_ONE:
        return 1;
    case MHA__DIM_BATCH:
        return d->batch;
    case MHA__DIM_ENDS:
        return d->batch + 1;
    case MHA__DIM_ROW_BATCH:
        return plan->packed ? 1 : d->batch;
    case MHA__DIM_KEY_BATCH:
        return plan->packed_keys ? 1 : d->batch;
    case MHA__DIM_HEADS:
        return d->heads;
    case MHA__DIM_KV_HEADS:
        return d->kv_heads;
    case MHA__DIM_LISTED_HEADS:
        return d->listed_heads;
    case MHA__DIM_MAP_HEADS:
        return d->map_heads;
    case MHA__DIM_MAP_ROWS:
        return d->map_rows;
    case MHA__DIM_Q_LEN:
        return d->q_len;
    case MHA__DIM_KV_LEN:
        return d->kv_len;
    case MHA__DIM_MAX_Q_LEN:
        return d->max_q_len;
    case MHA__DIM_MAX_KV_LEN:
        return d->max_kv_len;
    case MHA__DIM_KEEP_KEYS:
        return d->keep_keys;
    case MHA__DIM_MASK_ROWS:
        return blocks(d->max_q_len, d->block_q);
    case MHA__DIM_MASK_KEYS:
        return blocks(d->max_kv_len, d->block_k);
    case MHA__DIM_TABLE_PAGES:
        return blocks(d->kv_len, d->page_size);
    case MHA__DIM_HEAD_DIM:
        return d->head_dim;
    case MHA__DIM_V_HEAD_DIM:
        return d->v_head_dim;
    case MHA__DIM_TOP_KEYS:
        return d->top_keys;
    default:
        return stored_dimension(plan, dimension);
    }
}

mha__operand mha__operand_at(const mha_attn_plan *plan, const mha__operand_row *row, const void *from)
{
    mha__operand o = {.name = row->name, .broadcasts = row->facts & MHA__BROADCASTS};
    if (row->facts & MHA__IS_ARRAY)
        o.view = (mha_cview){mha__operand_data(row, from), {0, 0, 0, 1}};
    else
        memcpy(&o.view, (const char *)from + row->field, sizeof o.view);
    for (int n = 0; n < 4; n++)
        o.shape[n] = mha__dimension_of(plan, row->shape[n]);
    return o;
}

mha__result mha__result_at(const mha_attn_plan *plan, const mha__operand_row *row, void *from)
{
    mha__result r = {.name = row->name, .dims = row->dims, .size = mha__element_bytes(plan, row->element)};
    r.view = (mha_view *)(void *)((char *)from + row->field);
    for (int n = 0; n < 4; n++)
        r.shape[n] = mha__dimension_of(plan, row->shape[n]);
    return r;
}

static bool is_empty(const mha_attn_plan *plan, const mha__operand_row *row)
{
    for (int n = 0; n < 4; n++)
        if (mha__dimension_of(plan, row->shape[n]) == 0) return true;
    return false;
}

mha_status mha__operand_flag_error(const mha_attn_plan *plan, const mha__operand_row *row, const void *from,
                                   mha_error *err)
{
    const mha_attn_desc *d = &plan->desc;
    const void *data = mha__operand_data(row, from);
    const char *in = row->facts & MHA__BY_ALIGN ? "align" : row->facts & MHA__IS_RESULT ? "outputs" : "inputs";
    if (data)
        return mha__fail(err, MHA_ERR_ARG, "%s must be NULL without %s in desc.%s (got %p)", row->name, row->flag_name,
                         in, data);
    if (!mha__operand_is_used(d, row) || (row->facts & MHA__IS_OPTIONAL) || is_empty(plan, row)) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "%s must not be NULL with %s in desc.%s", row->name, row->flag_name, in);
}
