/* redzone.h - red zones: poisoned bytes after each array in scratch memory, with which the address sanitizer detects
 * accesses past the end of the array. To the sanitizer, a workspace is one allocation, so it does not see the arrays
 * in it. Without the sanitizer, nothing is added. */
#ifndef MHA_BASE_REDZONE_H
#define MHA_BASE_REDZONE_H

#include <stddef.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define MHA__REDZONES 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define MHA__REDZONES 1
#endif

#ifdef MHA__REDZONES
/* The interface of the sanitizer, declared here because the operator includes only headers of the C library. */
void __asan_poison_memory_region(const volatile void *at, size_t size);
void __asan_unpoison_memory_region(const volatile void *at, size_t size);

enum { MHA__REDZONE = 64 }; /* minimum size in bytes */

/* Makes all `size` bytes from `at` on accessible. Does nothing if `at` is NULL. */
static inline void mha__redzone_clear(const void *at, size_t size)
{
    if (at) __asan_unpoison_memory_region(at, size);
}

/* Makes `used` bytes from `at` on accessible, and poisons the others of `size` bytes. Does nothing if `at` is NULL. */
static inline void mha__redzone(const char *at, size_t used, size_t size)
{
    if (!at) return;
    mha__redzone_clear(at, used);
    __asan_poison_memory_region(at + used, size - used);
}
#else
enum { MHA__REDZONE = 0 };

static inline void mha__redzone_clear(const void *at, size_t size)
{
    (void)at, (void)size;
}

static inline void mha__redzone(const char *at, size_t used, size_t size)
{
    (void)at, (void)used, (void)size;
}
#endif

#endif
