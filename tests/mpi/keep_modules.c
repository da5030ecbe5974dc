/* keep_modules.c - replaces dlclose in MPI programs built with the address sanitizer, so that the modules of MPI remain
 * loaded at exit. Leaks of an unloaded module would have no name that tests/lsan.supp could match. */
#include <dlfcn.h>

__attribute__((visibility("default"))) int dlclose(void *handle)
{
    (void)handle;
    return 0;
}
