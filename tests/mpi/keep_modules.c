/* keep_modules.c - linked into programs that run on ranks under the address sanitizer: MPI unloads its modules at the
 * end, and leaks of a module that is gone could not be told from ours. Kept, they have a name for tests/lsan.supp. */
#include <dlfcn.h>

__attribute__((visibility("default"))) int dlclose(void *handle)
{
    (void)handle;
    return 0;
}
