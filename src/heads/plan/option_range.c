/* option_range.c - implements option_range.h. */
#include "heads/plan/option_range.h"

#include "base/error.h"

mha_status mha__option_within(const char *name, int64_t value, int64_t min, int64_t max, mha_error *err)
{
    if (value >= min && value <= max) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "%s must be from %lld to %lld (got %lld)", name, (long long)min, (long long)max,
                     (long long)value);
}

mha_status mha__option_count(const char *name, int64_t *value, int64_t preset, int64_t max, mha_error *err)
{
    if (*value == 0) *value = preset;
    return mha__option_within(name, *value, 1, max, err);
}
