/* files.c - temporary files and folders for tests (files.h). */
#include "support/files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void stop(const char *what, const char *path)
{
    perror(what);
    fprintf(stderr, "%s\n", path);
    abort();
}

const char *files_path(const char *folder, const char *name)
{
    static char path[8][4096];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

const char *files_folder(void)
{
    static char name[256][256];
    static int used;
    const char *tmp = getenv("TMPDIR");
    if (used == 256) stop("files_folder: the number of folders must be at most 256", "");
    snprintf(name[used], sizeof name[used], "%s/mha-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(name[used])) stop("mkdtemp", name[used]);
    return name[used++];
}

int files_count(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir) stop("opendir", folder);
    int count = 0;
    for (const struct dirent *e; (e = readdir(dir));)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return count;
}

void files_remove(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir) return;
    for (const struct dirent *e; (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    rmdir(folder);
}

char *files_read(const char *path, size_t *n)
{
    *n = 0;
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *bytes = NULL;
    size_t room = 0;
    for (size_t got = 1; got > 0; *n += got) {
        room = *n + 65536;
        char *more = realloc(bytes, room + 1);
        if (!more) stop("realloc", path);
        bytes = more;
        got = fread(bytes + *n, 1, room - *n, f);
    }
    fclose(f);
    bytes[*n] = '\0';
    return bytes;
}

void files_write(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) stop("files_write", path);
}
