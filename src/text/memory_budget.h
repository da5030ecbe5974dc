/* memory_budget.h - the memory budget for reading a tokenizer.json.
 *
 * The size of every table is computed before it is allocated. A file is therefore rejected before its tables exceed
 * MHA__TOKENIZER_MEMORY. */
#ifndef MHA_TEXT_MEMORY_BUDGET_H
#define MHA_TEXT_MEMORY_BUDGET_H

#include "base/error.h"
#include "io/input_limits.h"

/* Subtracts `bytes` from *room (NULL = unlimited). Error: MHA_ERR_FORMAT. */
static inline mha_status mha__room_take(size_t *room, size_t bytes, mha_error *err)
{
    if (room && bytes > *room)
        return mha__fail(err, MHA_ERR_FORMAT, "tokenizer.json: reading the file must require at most %zu MiB",
                         MHA__TOKENIZER_MEMORY / MHA__MIB);
    if (room) *room -= bytes;
    return MHA_OK;
}

#endif
