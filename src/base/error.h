/* error.h - how a failure becomes a status and one sentence. */
#ifndef MHA_BASE_ERROR_H
#define MHA_BASE_ERROR_H

#include "mha/types.h"

/* Returns the status of a failing call to the caller. */
#define MHA__TRY(expr)                         \
    do {                                       \
        mha_status mha__st = (expr);           \
        if (mha__st != MHA_OK) return mha__st; \
    } while (0)

/* Writes the formatted sentence into `err` (which may be NULL) and returns `status`. The result is cut at a character,
 * never inside one, and ends with "..." then. Text from outside goes through mha__quote first. */
mha_status mha__fail(mha_error *err, mha_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A short buffer for mha__quote; several may appear in one mha__fail. */
typedef struct mha__quoted {
    char text[200];
} mha__quoted;

/* Makes bytes from outside fit to be shown: control characters (C0, C1, DEL), bidi controls and invalid UTF-8 become
 * \xNN or \uNNNN, and what does not fit is cut with "...". Returns q->text:  mha__quote(&(mha__quoted){0}, name, n). */
const char *mha__quote(mha__quoted *q, const char *bytes, size_t n);

#endif
