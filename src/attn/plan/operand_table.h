/* operand_table.h - one row per operand of a call: flag, field, shape, element type and properties that the plan needs.
 *
 * Validation, binding, folding, the single-block path, the fast path of unmasked blocks, the gradients and
 * mha_attn_plan_describe use these rows. A new mask is one row in this table and one step in mask/mask.c. Functions
 * that every call runs for every row are inline, because they take a tenth of the time of a short call. */
#ifndef MHA_ATTN_PLAN_OPERAND_TABLE_H
#define MHA_ATTN_PLAN_OPERAND_TABLE_H

#include "attn/plan/operand.h"
#include "attn/plan/plan.h"
#include <string.h>

/* The length of an axis in terms of the description. */
typedef enum mha__dimension {
    MHA__DIM_ONE,
    MHA__DIM_BATCH,       /* B, the number of sequences */
    MHA__DIM_ENDS,        /* B + 1 */
    MHA__DIM_ROW_BATCH,   /* B, or 1 if the rows of all sequences are packed */
    MHA__DIM_KEY_BATCH,   /* B, or 1 if the keys of all sequences are packed */
    MHA__DIM_STORES,      /* number of pages; if keys are not paged, 1 if packed, otherwise B */
    MHA__DIM_STORED_KEYS, /* page_size; if keys are not paged, Lk */
    MHA__DIM_HEADS,       /* H, the number of query heads */
    MHA__DIM_KV_HEADS,    /* Hkv, the number of key/value heads */
    MHA__DIM_LISTED_HEADS,
    MHA__DIM_MAP_HEADS,    /* number of entries in map_heads */
    MHA__DIM_MAP_ROWS,     /* number of entries in map_rows */
    MHA__DIM_MAPPED_HEADS, /* number of heads in probs and scores */
    MHA__DIM_MAPPED_ROWS,  /* number of rows in probs and scores */
    MHA__DIM_Q_LEN,
    MHA__DIM_KV_LEN,
    MHA__DIM_MAX_Q_LEN,
    MHA__DIM_MAX_KV_LEN,
    MHA__DIM_KEEP_KEYS,
    MHA__DIM_MASK_ROWS,   /* ceil(Mq / block_q), rows of block_keep */
    MHA__DIM_MASK_KEYS,   /* ceil(Mk / block_k), columns of block_keep */
    MHA__DIM_TABLE_PAGES, /* ceil(Lk / page_size), pages per sequence */
    MHA__DIM_HEAD_DIM,
    MHA__DIM_V_HEAD_DIM,
    MHA__DIM_K_ELEMENTS, /* elements of a row of k: D, or blocks of q8_0 and q4_0 */
    MHA__DIM_V_ELEMENTS, /* elements of a row of v: Dv, or blocks of q8_0 and q4_0 */
    MHA__DIM_PARTIAL,    /* maximum, sum and Dv elements of the output */
    MHA__DIM_TOP_KEYS
} mha__dimension;

/* The element type of an operand. */
typedef enum mha__element {
    MHA__OF_BYTE,
    MHA__OF_INT32,
    MHA__OF_INT64,
    MHA__OF_REAL, /* f32, or f64 if desc.dtype is f64 */
    MHA__OF_Q,    /* desc.dtype */
    MHA__OF_KV,   /* desc.kv_dtype */
    MHA__OF_BIAS, /* desc.bias_dtype */
    MHA__OF_NONE  /* not a view: a struct or a callback, checked elsewhere */
} mha__element;

enum {
    MHA__IS_ARRAY = 1 << 0,     /* the field is a pointer to contiguous elements, not a view */
    MHA__IS_OPTIONAL = 1 << 1,  /* NULL is accepted even if the flag is set */
    MHA__BROADCASTS = 1 << 2,   /* a stride of 0 repeats elements; in a gradient, their sum is stored */
    MHA__BY_ALIGN = 1 << 3,     /* desc.align serves as the flag */
    MHA__UNPAGED = 1 << 4,      /* not read if keys are in pages */
    MHA__ON_SCORES = 1 << 5,    /* changes scores, or masks single keys of a block */
    MHA__FOLDS = 1 << 6,        /* identical for all heads of a group, whose queries may then share a tile */
    MHA__FOLDS_ONE = 1 << 7,    /* differs per head, but one stride spans all heads if each head has one query */
    MHA__SINGLE_BLOCK = 1 << 8, /* the single-block kernel supports the operand */
    MHA__PER_HEAD_SUM = 1 << 9, /* the gradient of the operand has one sum per head */
    MHA__IS_RESULT = 1 << 10,   /* the flag is one of desc.outputs */
    MHA__FOLDS_ROWS = 1 << 11,  /* one row per head and query, in which the heads of a group may be rows of one head */
};

typedef struct mha__operand_row {
    const char *name; /* the name in error messages */
    size_t field;     /* offset in mha_attn_args, mha_attn_stats or mha_attn_grads */
    uint32_t flag;    /* a flag of desc.inputs or desc.outputs; 0 = none */
    const char *flag_name;
    mha__element element;
    mha__dimension shape[4];
    int dims; /* number of axes in use: with 3, the fourth stride is ignored */
    uint32_t facts;
} mha__operand_row;

enum {
    MHA__Q_INPUT, /* q, k and v are the first rows */
    MHA__K_INPUT,
    MHA__V_INPUT,
    MHA__INPUT_ROWS = 22,
    MHA__OUTPUT_ROWS = 7,
    MHA__STATS_ROWS = 7,
    MHA__GRAD_INPUT_ROWS = 4,
    MHA__GRAD_ROWS = 8
};
extern const mha__operand_row mha__input_rows[MHA__INPUT_ROWS];           /* inputs in mha_attn_args */
extern const mha__operand_row mha__output_rows[MHA__OUTPUT_ROWS];         /* outputs in mha_attn_args; out is first */
extern const mha__operand_row mha__stats_rows[MHA__STATS_ROWS];           /* outputs in mha_attn_stats, all optional */
extern const mha__operand_row mha__grad_input_rows[MHA__GRAD_INPUT_ROWS]; /* inputs in mha_attn_grads */
extern const mha__operand_row mha__grad_rows[MHA__GRAD_ROWS];             /* outputs in mha_attn_grads */

/* Returns the flags of desc.inputs whose rows have all of `facts`, or all flags if `facts` is 0. */
uint32_t mha__inputs_with(uint32_t facts);
/* Same for desc.outputs. MHA_ATTN_GRADS has no row, because it has no field in mha_attn_args. */
uint32_t mha__outputs_with(uint32_t facts);
/* Returns the name of a flag of desc.inputs. */
const char *mha__input_flag_name(uint32_t flag);

/* Returns the kernels that convert a storage type. */
mha__stored mha__operand_stored(const mha__kernels *kernels, mha_dtype dtype);
size_t mha__element_bytes(const mha_attn_plan *plan, mha__element element);
int64_t mha__dimension_of(const mha_attn_plan *plan, mha__dimension dimension);
/* Returns the operand of a row whose field is in struct `from`. */
mha__operand mha__operand_at(const mha_attn_plan *plan, const mha__operand_row *row, const void *from);
/* Returns the operand of a row as an output. */
mha__result mha__result_at(const mha_attn_plan *plan, const mha__operand_row *row, void *from);

/* Returns the data pointer of the operand of a row. */
static inline const void *mha__operand_data(const mha__operand_row *row, const void *from)
{
    const void *data; /* the pointer is the first member of a view, or the field itself */
    memcpy(&data, (const char *)from + row->field, sizeof data);
    return data;
}

static inline bool mha__operand_is_flagged(const mha_attn_desc *d, const mha__operand_row *row)
{
    if (row->facts & MHA__BY_ALIGN) return d->align == MHA_ALIGN_OFFSETS;
    return row->flag == 0 || ((row->facts & MHA__IS_RESULT ? d->outputs : d->inputs) & row->flag);
}

/* Returns true if the flag of a row is set and calls of this description read or write the operand. */
static inline bool mha__operand_is_used(const mha_attn_desc *d, const mha__operand_row *row)
{
    const bool paged = d->inputs & MHA_ATTN_BLOCK_TABLE;
    return mha__operand_is_flagged(d, row) && !(paged && (row->facts & MHA__UNPAGED));
}

/* Rejects a pointer without its flag, and NULL with its flag. */
mha_status mha__operand_flag_error(const mha_attn_plan *plan, const mha__operand_row *row, const void *from,
                                   mha_error *err);
static inline mha_status mha__operand_check_flag(const mha_attn_plan *plan, const mha__operand_row *row,
                                                 const void *from, mha_error *err)
{
    const bool agree = !mha__operand_data(row, from) == !mha__operand_is_flagged(&plan->desc, row);
    return !row->flag_name || agree ? MHA_OK : mha__operand_flag_error(plan, row, from, err);
}

#endif
