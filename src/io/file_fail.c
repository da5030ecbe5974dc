/* file_fail.c - implements file_fail.h. */
#include "io/file_fail.h"
#include "base/error.h"
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
