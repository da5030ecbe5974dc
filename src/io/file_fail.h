/* file_fail.h - errors in the contents of a file. */
#ifndef MHA_IO_FILE_FAIL_H
#define MHA_IO_FILE_FAIL_H

#include "mha/types.h"

/* Fails with MHA_ERR_FORMAT and the message "PATH: tensor "NAME": what"; omits the tensor if its name is NULL. */
mha_status mha__file_fail(mha_error *err, const char *path, const char *tensor, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

#endif
