/* size.h - overflow-checked arithmetic for every size that the library receives from callers and files. */
#ifndef MHA_BASE_SIZE_H
#define MHA_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Compute *out = a * b and *out = a + b. Return false on overflow; *out is then unspecified. */
static inline bool mha__mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool mha__add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Computes the product of `n` dimensions and the element size in bytes. Returns false on overflow or if a dimension is
 * negative. Multiplies from left to right, so [2^40, 2^40, 0] overflows. */
static inline bool mha__bytes(const int64_t *dims, int n, size_t element, size_t *out)
{
    size_t total = element;
    for (int i = 0; i < n; i++)
        if (dims[i] < 0 || __builtin_mul_overflow(total, dims[i], &total)) return false;
    *out = total;
    return true;
}

static inline int64_t mha__min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t mha__max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
/* Return a / b, rounded up, and a, rounded up to a multiple of b; a >= 0, b > 0. */
static inline int64_t mha__ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}
static inline int64_t mha__round_up(int64_t a, int64_t b)
{
    return mha__ceil_div(a, b) * b;
}
static inline bool mha__is_power_of_two(int64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}
/* Returns the least common multiple of a and b. Both must be positive, and the result must not overflow. */
static inline int64_t mha__common_multiple(int64_t a, int64_t b)
{
    int64_t divisor = a, rest = b;
    while (rest) {
        const int64_t next = divisor % rest;
        divisor = rest;
        rest = next;
    }
    return a / divisor * b;
}

#endif
