/* operand_table.h - every operand of a call, one row each: its flag, field, shape and element type, and what the plan
 * has to know about it.
 *
 * Validation, binding, folding, the single-block path, the fast path of blocks without masks, the gradients and
 * mha_attn_plan_describe read these rows. A new mask is one row here and one step in mask/mask.c.
 */
#ifndef MHA_ATTN_PLAN_OPERAND_TABLE_H
#define MHA_ATTN_PLAN_OPERAND_TABLE_H

#include "attn/plan/operand.h"
#include "attn/plan/plan.h"

/* The length of an axis, by what the description says. */
typedef enum mha__dimension {
    MHA__DIM_ONE,
    MHA__DIM_BATCH,       /* B */
    MHA__DIM_ENDS,        /* B + 1 */
    MHA__DIM_ROW_BATCH,   /* B, or 1 where the rows of all sequences are packed */
    MHA__DIM_KEY_BATCH,   /* B, or 1 where the keys of all sequences are packed */
    MHA__DIM_STORES,      /* pages, or else 1 where anything is packed, or B */
    MHA__DIM_STORED_KEYS, /* keys of a page, or Lk */
    MHA__DIM_HEADS,       /* H */
    MHA__DIM_KV_HEADS,    /* Hkv */
    MHA__DIM_LISTED_HEADS,
    MHA__DIM_MAP_HEADS,    /* entries of map_heads */
    MHA__DIM_MAP_ROWS,     /* entries of map_rows */
    MHA__DIM_MAPPED_HEADS, /* heads of probs and scores */
    MHA__DIM_MAPPED_ROWS,  /* rows of probs and scores */
    MHA__DIM_Q_LEN,
    MHA__DIM_KV_LEN,
    MHA__DIM_MAX_Q_LEN,
    MHA__DIM_MAX_KV_LEN,
    MHA__DIM_KEEP_KEYS,
    MHA__DIM_MASK_ROWS,   /* ceil(Mq / block_q) */
    MHA__DIM_MASK_KEYS,   /* ceil(Mk / block_k) */
    MHA__DIM_TABLE_PAGES, /* ceil(Lk / page_size) */
    MHA__DIM_HEAD_DIM,
    MHA__DIM_V_HEAD_DIM,
    MHA__DIM_K_ELEMENTS, /* of a row of k: D, or blocks of q8_0 */
    MHA__DIM_V_ELEMENTS, /* likewise of v */
    MHA__DIM_PARTIAL,    /* maximum, sum and Dv elements of o */
    MHA__DIM_TOP_KEYS
} mha__dimension;

/* What an operand is made of. */
typedef enum mha__element {
    MHA__OF_BYTE,
    MHA__OF_INT32,
    MHA__OF_INT64,
    MHA__OF_REAL, /* f32, or f64 for f64 */
    MHA__OF_Q,    /* desc.dtype */
    MHA__OF_KV,   /* desc.kv_dtype */
    MHA__OF_BIAS, /* desc.bias_dtype */
    MHA__OF_NONE  /* the field is no view: a struct or a callback, which its own file checks */
} mha__element;

enum {
    MHA__IS_ARRAY = 1 << 0,     /* the field is a pointer to contiguous elements, not a view */
    MHA__IS_OPTIONAL = 1 << 1,  /* NULL is accepted although the flag is set */
    MHA__BROADCASTS = 1 << 2,   /* a stride of 0 repeats elements, or sums them in a gradient */
    MHA__BY_ALIGN = 1 << 3,     /* desc.align takes the place of a flag in desc.inputs */
    MHA__UNPAGED = 1 << 4,      /* not read where keys lie in pages */
    MHA__ON_SCORES = 1 << 5,    /* changes the scores of a block, or masks keys in it one by one */
    MHA__FOLDS = 1 << 6,        /* the same for all heads of a group: their queries may share a tile */
    MHA__FOLDS_ONE = 1 << 7,    /* per head, but one stride runs through heads where each has one query */
    MHA__SINGLE_BLOCK = 1 << 8, /* the single-block kernel supports it */
    MHA__PER_HEAD_SUM = 1 << 9, /* its gradient is one sum per head */
    MHA__IS_RESULT = 1 << 10,   /* the flag is one of desc.outputs */
};

typedef struct mha__operand_row {
    const char *name; /* as errors name it */
    size_t field;     /* offset in mha_attn_args, mha_attn_stats or mha_attn_grads */
    uint32_t flag;    /* in desc.inputs or desc.outputs; 0: none */
    const char *flag_name;
    mha__element element;
    mha__dimension shape[4];
    int dims; /* axes that count: with three the stride of the fourth is not used */
    uint32_t facts;
} mha__operand_row;

enum {
    MHA__Q_INPUT, /* q, k and v come first */
    MHA__K_INPUT,
    MHA__V_INPUT,
    MHA__INPUT_ROWS = 20,
    MHA__OUTPUT_ROWS = 7,
    MHA__STATS_ROWS = 7,
    MHA__GRAD_INPUT_ROWS = 4,
    MHA__GRAD_ROWS = 8
};
extern const mha__operand_row mha__input_rows[MHA__INPUT_ROWS];           /* of mha_attn_args, read */
extern const mha__operand_row mha__output_rows[MHA__OUTPUT_ROWS];         /* of mha_attn_args, written; out is first */
extern const mha__operand_row mha__stats_rows[MHA__STATS_ROWS];           /* of mha_attn_stats, all optional */
extern const mha__operand_row mha__grad_input_rows[MHA__GRAD_INPUT_ROWS]; /* of mha_attn_grads, read */
extern const mha__operand_row mha__grad_rows[MHA__GRAD_ROWS];             /* of mha_attn_grads, written */

/* The flags of desc.inputs whose rows have all of `facts`; 0 gives every flag. */
uint32_t mha__inputs_with(uint32_t facts);
/* Every flag of desc.outputs that has a row. */
uint32_t mha__output_flags(void);
/* The name of a flag of desc.inputs. */
const char *mha__input_flag_name(uint32_t flag);

/* How the kernels name a storage type, and convert it. */
mha__stored mha__operand_stored(const mha__kernels *kernels, mha_dtype dtype);
size_t mha__element_bytes(const mha_attn_plan *plan, mha__element element);
int64_t mha__dimension_of(const mha_attn_plan *plan, mha__dimension dimension);
/* The operand of a row whose field lies in `from`. */
mha__operand mha__operand_at(const mha_attn_plan *plan, const mha__operand_row *row, const void *from);
/* The same as something that is written. */
mha__result mha__result_at(const mha_attn_plan *plan, const mha__operand_row *row, void *from);
/* What the field of a row points to. */
const void *mha__operand_data(const mha__operand_row *row, const void *from);
/* True if the flag of a row is set, and a call of this description reads or writes the operand. */
bool mha__operand_is_used(const mha_attn_desc *desc, const mha__operand_row *row);
/* Checks a pointer against its flag: refuses one that is set without the flag, or NULL with it. */
mha_status mha__operand_check_flag(const mha_attn_plan *plan, const mha__operand_row *row, const void *from,
                                   mha_error *err);

#endif
