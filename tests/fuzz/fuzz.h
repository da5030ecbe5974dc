/* fuzz.h - what the fuzz targets share. Each target fuzz_X.c defines LLVMFuzzerTestOneInput; libFuzzer drives it
 * (-DMHA_FUZZ=ON, clang), or driver.c, which replays the corpus in every build.
 */
#ifndef MHA_FUZZ_H
#define MHA_FUZZ_H

#include "mha/io.h"
#include "mha/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Ends the program when a law is broken, saying which. */
void fuzz_check(int holds, const char *law);

/* What holds for every failure: it has its status, and one sentence without control characters that names `file`. */
void fuzz_refusal(mha_status status, const mha_error *err, const char *file);

/* Opens `n` bytes as a file, mapped or copied; NULL if they are refused, after checking that the refusal is clean. */
mha_file *fuzz_open(const void *bytes, size_t n, int no_map);

/* The path of a file of these bytes, one for all inputs. */
const char *fuzz_file(const void *bytes, size_t n);
/* A folder for files of the target, which goes when the program ends; the same one at each call. */
const char *fuzz_folder(void);

/* A file or folder of the golden data, or of the folder "data" next to the program if there is one: one of four buffers
 * that take turns. */
const char *fuzz_data(const char *name);

/* A context of one thread, for models that are too small for more. */
mha_ctx *fuzz_ctx(void);
/* A model with random weights of a config, as long as the program. */
mha_model *fuzz_model(const char *config_json);

/* A copy from malloc in which 16 letters `mark` in a row are replaced by the 16 characters of `by`, as often as they
 * occur: a fingerprint that an input cannot know. */
uint8_t *fuzz_copy(const uint8_t *bytes, size_t n, char mark, const char *by);

/* Reads every byte, every string and every conversion of an open file. */
void fuzz_read(const mha_file *file);

#endif
