/* keep_modules.c - linked into MPI programs with the address sanitizer. MPI unloads its modules at exit, and leaks of
 * an unloaded module have no name. If the modules stay loaded, tests/lsan.supp can match them. */
#include <dlfcn.h>

__attribute__((visibility("default"))) int dlclose(void *handle)
{
    (void)handle;
    return 0;
}
