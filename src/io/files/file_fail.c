/* file_fail.c - implements file_fail.h. */
#include "io/files/file_fail.h"

#include "base/error.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

mha_status mha__file_fail(mha_error *err, const char *path, const char *tensor, const char *what, ...)
{
    char text[512];
    mha__quoted file, name;
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    mha__quote(&file, path, strlen(path));
    if (!tensor) return mha__fail(err, MHA_ERR_FORMAT, "%s: %s", file.text, text);
    return mha__fail(err, MHA_ERR_FORMAT, "%s: tensor \"%s\": %s", file.text, mha__quote(&name, tensor, strlen(tensor)),
                     text);
}

mha_status mha__fail_errno(mha_error *err, const char *what, const char *name, int number)
{
    char reason[128];
    if (strerror_r(number, reason, sizeof reason) != 0) strcpy(reason, "unknown error");
    mha__quoted q;
    return mha__fail(err, number == ENOMEM ? MHA_ERR_MEMORY : MHA_ERR_IO, "%s: %s: %s",
                     mha__quote(&q, name, strlen(name)), what, reason);
}

mha_status mha__in_folder(mha_status status, const char *folder, const char *name, mha_error *err)
{
    enum { TAIL = 160 }; /* the message shows at most the last TAIL bytes of the folder name */
    if (status == MHA_OK || !err || !*folder || strncmp(err->message, name, strlen(name)) != 0) return status;
    size_t n = strlen(folder), skip = n > TAIL ? n - TAIL : 0;
    while (skip > 0 && skip < n && ((unsigned char)folder[skip] & 0xC0) == 0x80)
        skip++; /* skip to the start of a UTF-8 character */
    const mha_error bare = *err;
    mha__quoted q;
    return mha__fail(err, status, "%s%s%s%s", skip ? "..." : "", mha__quote(&q, folder + skip, n - skip),
                     n > 0 && folder[n - 1] == '/' ? "" : "/", bare.message);
}

mha_status mha__fail_left(mha_status status, const char *name, mha_error *err)
{
    mha__quoted q;
    const mha_error first = err ? *err : (mha_error){0};
    return mha__fail(err, status, "%s cannot be removed; %s", mha__quote(&q, name, strlen(name)),
                     first.message); /* if the message is too long, it is truncated at its end */
}

mha_status mha__fail_in_use(mha_error *err, const char *path, const char *temporary)
{
    mha__quoted q1, q2;
    return mha__fail(err, MHA_ERR_IO,
                     "%s: cannot write: %s is in use, or left over from a killed run (remove it if so)",
                     mha__quote(&q1, path, strlen(path)), mha__quote(&q2, temporary, strlen(temporary)));
}
