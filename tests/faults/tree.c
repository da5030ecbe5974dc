/* tree.c - implements tree.h. */
#define _GNU_SOURCE
#include "faults/tree.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef bool (*visit_fn)(void *user, const char *path, const char *name, bool is_folder);

static int is_real(const struct dirent *e)
{
    return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

static bool complain(const char *path)
{
    fprintf(stderr, "faults: %s: %s\n", path, strerror(errno));
    return false;
}

/* Calls `visit` for each entry of a folder, sorted by name. */
static bool each(const char *folder, visit_fn visit, void *user)
{
    struct dirent **entries;
    const int count = scandir(folder, &entries, is_real, alphasort);
    bool good = count >= 0 || complain(folder);
    for (int n = 0; n < count; n++) {
        char path[PATH_MAX];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", folder, entries[n]->d_name);
        good = good && (lstat(path, &st) == 0 || complain(path)) &&
               visit(user, path, entries[n]->d_name, S_ISDIR(st.st_mode));
        free(entries[n]);
    }
    if (count >= 0) free(entries);
    return good;
}

/* Reads a file and appends NUL; returns NULL after printing a message. The caller frees the result. */
static char *read_file(const char *path, size_t *bytes)
{
    struct stat st;
    FILE *file = fopen(path, "rb");
    char *text = file && fstat(fileno(file), &st) == 0 ? malloc((size_t)st.st_size + 1) : NULL;
    if (text) {
        *bytes = fread(text, 1, (size_t)st.st_size, file);
        text[*bytes] = '\0';
    } else
        complain(path);
    if (file) fclose(file);
    return text;
}

/* ---- hashing ---- */

#define BASIS UINT64_C(0xcbf29ce484222325) /* constants of FNV-1a */

typedef struct sum {
    uint64_t hash;
    bool no_leftovers;
} sum;

static void add(sum *s, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s->hash = (s->hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
}

/* Returns the end of the next key of a time or a speed, or NULL if the text contains no such key. */
static const char *after_clock(const char *text, const char *end)
{
    static const char *const keys[] = {"\"seconds\":", "\"tokens_per_second\":", "\ntokens per second"};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *at = memmem(text, (size_t)(end - text), keys[i], strlen(keys[i]));
        if (at && (!first || at + strlen(keys[i]) < first)) first = at + strlen(keys[i]);
    }
    return first;
}

static void add_text(sum *s, const char *text, size_t bytes)
{
    const char *end = text + bytes, *next;
    while ((next = after_clock(text, end)) != NULL) {
        add(s, text, (size_t)(next - text));
        text = next + strspn(next, " [],0123456789.e+-%");
    }
    add(s, text, (size_t)(end - text));
}

uint64_t text_hash(const char *text, size_t bytes)
{
    sum s = {.hash = BASIS};
    add_text(&s, text, bytes);
    return s.hash;
}

static bool is_left(const char *name)
{
    const size_t n = strlen(name);
    const char *digits = name + n;
    while (digits > name && strchr("0123456789", digits[-1]))
        digits--;
    const size_t start = (size_t)(digits - name);
    return (name[0] == '.' && n > 5 && strcmp(name + n - 5, ".lock") == 0) ||
           (*digits && start >= 5 && (memcmp(digits - 5, ".tmp.", 5) == 0 || memcmp(digits - 5, ".old.", 5) == 0));
}

static bool add_entry(void *user, const char *path, const char *name, bool is_folder)
{
    sum *s = user;
    size_t bytes = 0;
    if (s->no_leftovers && is_left(name)) return true;
    add(s, path, strlen(path) + 1);
    if (is_folder) return each(path, add_entry, s);
    char *text = read_file(path, &bytes);
    if (text) add_text(s, text, bytes);
    free(text);
    return text != NULL;
}

bool tree_hash(const char *folder, bool no_leftovers, uint64_t *hash)
{
    sum s = {.hash = BASIS, .no_leftovers = no_leftovers};
    const bool good = each(folder, add_entry, &s);
    *hash = s.hash;
    return good;
}

/* ---- copying and removing ---- */

static bool copy_entry(void *user, const char *path, const char *name, bool is_folder)
{
    char to[PATH_MAX];
    snprintf(to, sizeof to, "%s/%s", (const char *)user, name);
    if (is_folder) return (mkdir(to, 0777) == 0 || complain(to)) && each(path, copy_entry, to);
    size_t bytes = 0;
    char *text = read_file(path, &bytes);
    FILE *file = text ? fopen(to, "wb") : NULL;
    bool good = file && fwrite(text, 1, bytes, file) == bytes;
    if (file) good = fclose(file) == 0 && good;
    free(text);
    return good || complain(to);
}

bool tree_copy(const char *from, const char *to)
{
    return each(from, copy_entry, (void *)to);
}

static bool clear_entry(void *user, const char *path, const char *name, bool is_folder)
{
    (void)user, (void)name;
    return is_folder ? each(path, clear_entry, NULL) && (rmdir(path) == 0 || complain(path))
                     : unlink(path) == 0 || complain(path);
}

bool tree_clear(const char *folder)
{
    return each(folder, clear_entry, NULL);
}
