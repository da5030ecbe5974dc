/* fuzz.h - what the fuzz targets share. Each target fuzz_X.c defines LLVMFuzzerTestOneInput; libFuzzer drives it
 * (-DMHA_FUZZ=ON, clang), or driver.c, which replays the corpus in every build.
 */
#ifndef MHA_FUZZ_H
#define MHA_FUZZ_H

#include "mha/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Ends the program when a law is broken, saying which. */
void fuzz_check(int holds, const char *law);

/* What holds for every failure: it has its status, and one sentence without control characters that names `file`. */
void fuzz_refusal(mha_status status, const mha_error *err, const char *file);

/* Opens `n` bytes as a file, mapped or copied; NULL if they are refused, after checking that the refusal is clean. */
mha_file *fuzz_open(const void *bytes, size_t n, int no_map);

/* Reads every byte, every string and every conversion of an open file. */
void fuzz_read(const mha_file *file);

#endif
