/* fuzz.h - functions that the fuzz targets share. Each target fuzz_X.c defines LLVMFuzzerTestOneInput. In builds with
 * -DMHA_FUZZ=ON (clang), libFuzzer calls this function; in other builds, driver.c calls it for each file of the corpus.
 */
#ifndef MHA_FUZZ_H
#define MHA_FUZZ_H

#include "mha/io.h"
#include "mha/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Aborts the program with the message `rule` unless ok. */
void fuzz_check(int ok, const char *rule);

/* Checks the error of a failed call: it must contain the status of the call and a message that names `file` and has no
 * control characters. Does nothing if the status is MHA_OK. */
void fuzz_refusal(mha_status status, const mha_error *err, const char *file);

/* Writes `n` bytes to a file and opens it, memory-mapped or, with `no_map`, copied. If the library rejects the file,
 * checks the error and returns NULL. */
mha_file *fuzz_open(const void *bytes, size_t n, int no_map);

/* Writes the bytes to a file and returns its path, which is the same for all inputs. */
const char *fuzz_file(const void *bytes, size_t n);
/* Returns a folder for files of the target, which is the same for all calls and removed at exit. */
const char *fuzz_folder(void);

/* Returns the path of a file or folder of the golden data, or of the folder "data" next to the program if this folder
 * exists. The path is valid until the fourth next call. */
const char *fuzz_data(const char *name);

/* Returns a context with one thread, which is sufficient for tiny models. */
mha_ctx *fuzz_ctx(void);
/* Returns a new model with random weights for the config; it is never freed. */
mha_model *fuzz_model(const char *config_json);

/* Returns an allocated copy of the input in which the 16 characters of `by`, a fingerprint that an input cannot
 * contain, replace each run of 16 letters `mark`. */
uint8_t *fuzz_copy(const uint8_t *bytes, size_t n, char mark, const char *by);

/* Reads all data, names and metadata of an open file, and converts each tensor to several types. */
void fuzz_read(const mha_file *file);

#endif
