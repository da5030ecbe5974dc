/* error.h - statuses and error messages. */
#ifndef MHA_BASE_ERROR_H
#define MHA_BASE_ERROR_H

#include "mha/types.h"

/* Evaluates a call. If its status is not MHA_OK, returns the status from the enclosing function. */
#define MHA__TRY(expr)                         \
    do {                                       \
        mha_status mha__st = (expr);           \
        if (mha__st != MHA_OK) return mha__st; \
    } while (0)

/* Writes the formatted message to `err` (which may be NULL) and returns `status`. A message that is too long is
 * truncated at a character boundary and ends with "...". Untrusted text must pass through mha__quote first. */
mha_status mha__fail(mha_error *err, mha_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Fails with MHA_ERR_ARG and the message "FIELD must be RULE (got VALUE)". */
mha_status mha__fail_int(mha_error *err, const char *field, int64_t value, const char *rule);

/* Buffer for the result of mha__quote. An mha__fail call with several quoted texts requires one buffer for each. */
typedef struct mha__quoted {
    char text[200];
} mha__quoted;

/* Makes untrusted bytes safe to print. Control characters (C0, C1, DEL), bidi controls and invalid UTF-8 become \xNN or
 * \uNNNN; text that does not fit is truncated and ends with "...". Returns q->text:
 *     mha__quote(&(mha__quoted){0}, name, n) */
const char *mha__quote(mha__quoted *q, const char *bytes, size_t n);
/* Returns the name of a dtype; NULL for other values. Defined in status.c. */
const char *mha__dtype_name(mha_dtype dtype);
/* Returns the name of a dtype, or its number if it has no name. */
const char *mha__quote_dtype(mha__quoted *q, mha_dtype dtype);

#endif
