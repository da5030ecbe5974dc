/* file_fail.h - errors of files and in their contents. */
#ifndef MHA_IO_FILES_FILE_FAIL_H
#define MHA_IO_FILES_FILE_FAIL_H

#include "mha/types.h"

/* Fails with MHA_ERR_FORMAT and the message "PATH: tensor "NAME": what"; omits the tensor if its name is NULL. */
mha_status mha__file_fail(mha_error *err, const char *path, const char *tensor, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

/* Fails with "NAME: WHAT: reason"; `number` is an errno. Returns MHA_ERR_MEMORY for ENOMEM, otherwise MHA_ERR_IO. */
mha_status mha__fail_errno(mha_error *err, const char *what, const char *name, int number);

/* Fails with MHA_ERR_IO: the temporary file or folder at `temporary`, which is needed to write `path`, exists. */
mha_status mha__fail_in_use(mha_error *err, const char *path, const char *temporary);

/* Appends to the message in *err that the temporary file or folder `name` could not be removed; returns `status`. */
mha_status mha__fail_left(mha_status status, const char *name, mha_error *err);

/* Prepends the folder to a message that begins with the bare name of a file, if `status` is a failure with such a
 * message. Returns `status`. */
mha_status mha__in_folder(mha_status status, const char *folder, const char *name, mha_error *err);

#endif
