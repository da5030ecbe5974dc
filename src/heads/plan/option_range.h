/* option_range.h - checks that integer options are in a range. */
#ifndef MHA_HEADS_PLAN_OPTION_RANGE_H
#define MHA_HEADS_PLAN_OPTION_RANGE_H

#include "mha/types.h"
#include <stdint.h>

/* Fails unless `value` is from `min` to `max`. */
mha_status mha__option_within(const char *name, int64_t value, int64_t min, int64_t max, mha_error *err);
/* Replaces 0 with the default `preset`, then fails unless the value is from 1 to `max`. */
mha_status mha__option_count(const char *name, int64_t *value, int64_t preset, int64_t max, mha_error *err);

#endif
