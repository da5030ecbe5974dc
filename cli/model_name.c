/* model_name.c - see model_name.h. */
#include "model_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool cli_find_minilm(char path[PATH_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && *cache)
        n = snprintf(path, PATH_MAX, "%s/mha/minilm", cache);
    else if (home && *home)
        n = snprintf(path, PATH_MAX, "%s/.cache/mha/minilm", home);
    return n > 0 && n < PATH_MAX && is_folder(path);
}

bool cli_find_builtin(char path[PATH_MAX])
{
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    for (int up = 0; n > 0 && up < 2; up++) {
        while (n > 0 && program[n - 1] != '/')
            n--;
        if (n > 0) n--;
    }
    if (n > 0) {
        int length = snprintf(path, PATH_MAX, "%.*s/share/mha/builtin", (int)n, program);
        if (length < PATH_MAX && is_folder(path)) return true;
    }
    return snprintf(path, PATH_MAX, "%s/builtin", MHA_DATA_DIR) < PATH_MAX && is_folder(path);
}

const char *cli_model_folder(const char *name, char path[PATH_MAX])
{
    const bool named = strcmp(name, "minilm") == 0    ? cli_find_minilm(path)
                       : strcmp(name, "builtin") == 0 ? cli_find_builtin(path)
                                                      : false;
    return named ? path : name;
}

const char *cli_last_component(const char *path)
{
    const char *last = path;
    for (const char *c = path; *c; c++)
        if (*c == '/' && c[1] && c[1] != '/') last = c + 1;
    return last;
}
