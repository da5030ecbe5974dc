/* fuzz.h - common functions of the fuzz targets. Each target fuzz_X.c defines LLVMFuzzerTestOneInput. libFuzzer calls
 * it in builds with -DMHA_FUZZ=ON (clang); in other builds driver.c replays the corpus.
 */
#ifndef MHA_FUZZ_H
#define MHA_FUZZ_H

#include "mha/io.h"
#include "mha/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Aborts the program with the message `rule` unless ok. */
void fuzz_check(int ok, const char *rule);

/* Checks a failed call: the error must contain its status, and a message without control characters that names
 * `file`. */
void fuzz_refusal(mha_status status, const mha_error *err, const char *file);

/* Opens `n` bytes as a file, mapped or copied. Returns NULL if the bytes are rejected, after checking the error. */
mha_file *fuzz_open(const void *bytes, size_t n, int no_map);

/* Writes the bytes to a file, whose path is the same for all inputs, and returns the path. */
const char *fuzz_file(const void *bytes, size_t n);
/* Returns a folder for files of the target, which is the same for all calls and removed at exit. */
const char *fuzz_folder(void);

/* Returns the path of a file or folder of the golden data, or in the folder "data" next to the program if that
 * exists. Uses four buffers in turn. */
const char *fuzz_data(const char *name);

/* Returns a context with one thread, which is sufficient for tiny models. */
mha_ctx *fuzz_ctx(void);
/* Returns a model of a config with random weights, which is never freed. */
mha_model *fuzz_model(const char *config_json);

/* Returns an allocated copy in which each run of 16 letters `mark` is replaced by the 16 characters of `by`: a
 * fingerprint that an input cannot contain. */
uint8_t *fuzz_copy(const uint8_t *bytes, size_t n, char mark, const char *by);

/* Reads every byte, string and conversion of an open file. */
void fuzz_read(const mha_file *file);

#endif
