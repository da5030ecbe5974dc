/* mutate.h - a mutator whose output remains valid JSON, so that inputs reach the code that reads values. A target that
 * reads JSON defines LLVMFuzzerCustomMutator with one of:
 *     FUZZ_MUTATES_JSON      the input is a JSON text
 *     FUZZ_MUTATES_HEADER    the input is a safetensors file: the length of the header in 8 bytes, the header, the data
 * libFuzzer itself performs every second mutation, with its dictionary. Without libFuzzer, the macros are empty.
 */
#ifndef MHA_FUZZ_MUTATE_H
#define MHA_FUZZ_MUTATE_H

#include <stddef.h>
#include <stdint.h>

/* Mutates the text of `n` bytes in place, to at most `max` bytes, and returns its new length. */
size_t fuzz_mutate_json(uint8_t *text, size_t n, size_t max, unsigned seed);
/* Mutates the JSON header of a safetensors file, sets the length field, and returns the new length of the file. */
size_t fuzz_mutate_header(uint8_t *file, size_t n, size_t max, unsigned seed);

#ifdef MHA_FUZZ
#define FUZZ_MUTATES(function)                                                           \
    size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed); \
    size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed)  \
    {                                                                                    \
        return function(bytes, n, max, seed);                                            \
    }
#else
#define FUZZ_MUTATES(function) /* without libFuzzer, driver.c modifies the inputs */
#endif
#define FUZZ_MUTATES_JSON FUZZ_MUTATES(fuzz_mutate_json)
#define FUZZ_MUTATES_HEADER FUZZ_MUTATES(fuzz_mutate_header)

#endif
