/* masked.h - the description of a call with many kinds of masks, and its variants with 16-bit types. */
#ifndef TEST_MASKED_H
#define TEST_MASKED_H

#include "mha/attn.h"
#include <stdbool.h>

extern const mha_attn_desc masked_desc; /* f32, all outputs */
/* Returns masked_desc with a 16-bit type for every tensor that supports one. */
mha_attn_desc masked_halves(void);
/* Returns `d` with all types set to bf16. The ISAs avx512bf16 and amx multiply bf16 directly, while other ISAs convert
 * to f32 first, as for f16. */
mha_attn_desc masked_bf16(mha_attn_desc d);
/* Returns true if the ISA of the context multiplies bf16 directly. */
bool masked_multiplies_bf16(mha_ctx *ctx);

#endif
