/* mutate.h - a mutator for JSON text that keeps it valid JSON, so that inputs reach the code that reads values. Targets
 * that read JSON define LLVMFuzzerCustomMutator with:
 *
 *     FUZZ_MUTATES_JSON                     the whole input is one text
 *     FUZZ_MUTATES_HEADER                   8 bytes with the length of a text, the text, then data (safetensors)
 *
 * Every second mutation is done by libFuzzer, with its dictionary. Without libFuzzer, the macros are empty.
 */
#ifndef MHA_FUZZ_MUTATE_H
#define MHA_FUZZ_MUTATE_H

#include <stddef.h>
#include <stdint.h>

/* Changes the text in place, up to `most` bytes, and returns its new length. */
size_t fuzz_mutate_json(uint8_t *text, size_t n, size_t most, unsigned seed);
/* Changes the header of a safetensors file in the same way, and its length field. */
size_t fuzz_mutate_header(uint8_t *file, size_t n, size_t most, unsigned seed);

#ifdef MHA_FUZZ
#define FUZZ_MUTATES(function)                                                            \
    size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t most, unsigned seed); \
    size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t most, unsigned seed)  \
    {                                                                                     \
        return function(bytes, n, most, seed);                                            \
    }
#else
#define FUZZ_MUTATES(function) /* without libFuzzer, driver.c changes bytes */
#endif
#define FUZZ_MUTATES_JSON FUZZ_MUTATES(fuzz_mutate_json)
#define FUZZ_MUTATES_HEADER FUZZ_MUTATES(fuzz_mutate_header)

#endif
