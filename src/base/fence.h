/* fence.h - detects accesses past the end of an array in scratch memory. A workspace is one allocation, in which the
 * address sanitizer does not see the arrays. With it, poisoned bytes follow each array while a call runs; without it,
 * nothing is added. */
#ifndef MHA_BASE_FENCE_H
#define MHA_BASE_FENCE_H

#include <stddef.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define MHA__FENCED 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define MHA__FENCED 1
#endif

#ifdef MHA__FENCED
/* The interface of the sanitizer, declared here because the operator includes only headers of the C library. */
void __asan_poison_memory_region(const volatile void *at, size_t size);
void __asan_unpoison_memory_region(const volatile void *at, size_t size);

enum { MHA__FENCE = 64 };

/* Makes `used` bytes from `at` on accessible, and poisons the others of `size` bytes. Does nothing if `at` is NULL: a
 * workspace of 0 bytes. */
static inline void mha__fence(const char *at, size_t used, size_t size)
{
    if (!at) return;
    __asan_unpoison_memory_region(at, used);
    __asan_poison_memory_region(at + used, size - used);
}
#else
enum { MHA__FENCE = 0 };

static inline void mha__fence(const char *at, size_t used, size_t size)
{
    (void)at, (void)used, (void)size;
}
#endif

#endif
