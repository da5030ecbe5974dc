/* hostile.c - see hostile.h. */
#include "support/hostile.h"

#include "support/check.h"
#include "support/files.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- bytes ---- */

void hostile_put(hostile_bytes *b, const void *bytes, size_t n)
{
    assert_true(n <= sizeof b->at - b->n);
    if (n) memcpy(b->at + b->n, bytes, n);
    b->n += n;
}

void hostile_text(hostile_bytes *b, const char *text)
{
    hostile_put(b, text, strlen(text));
}

void hostile_set_big(hostile_bytes *b, size_t at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        b->at[at + (size_t)i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

void hostile_set_little(hostile_bytes *b, size_t at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        b->at[at + (size_t)i] = (uint8_t)(value >> 8 * i);
}

void hostile_big(hostile_bytes *b, uint64_t value, int bytes)
{
    const uint8_t zeros[8] = {0};
    hostile_put(b, zeros, (size_t)bytes);
    hostile_set_big(b, b->n - (size_t)bytes, value, bytes);
}

void hostile_little(hostile_bytes *b, uint64_t value, int bytes)
{
    const uint8_t zeros[8] = {0};
    hostile_put(b, zeros, (size_t)bytes);
    hostile_set_little(b, b->n - (size_t)bytes, value, bytes);
}

hostile_bytes hostile_cut(const hostile_bytes *b, size_t at)
{
    hostile_bytes cut = *b;
    assert_true(at <= b->n);
    cut.n = at;
    return cut;
}

hostile_bytes hostile_without(const hostile_bytes *b, size_t at, size_t n)
{
    hostile_bytes shorter = hostile_cut(b, at);
    assert_true(n <= b->n - at);
    hostile_put(&shorter, b->at + at + n, b->n - at - n);
    return shorter;
}

hostile_bytes hostile_with(const hostile_bytes *b, size_t at, const void *bytes, size_t n)
{
    hostile_bytes longer = hostile_cut(b, at);
    hostile_put(&longer, bytes, n);
    hostile_put(&longer, b->at + at, b->n - at);
    return longer;
}

/* ---- files ---- */

/* Passes a copy of exactly the size of the file to the reader, so that a sanitizer sees reads outside it. */
static mha_status read_file(const hostile_corpus *c, const char *path, const hostile_bytes *file, mha_error *err)
{
    const char *folder = getenv("MHA_HOSTILE_FILES");
    uint8_t *exact = malloc(file->n + !file->n);
    memcpy(exact, file->at, file->n);
    const mha_status status = c->read(path, exact, file->n, err);
    free(exact);
    if (folder) files_write(files_path(folder, path), file->at, file->n);
    return status;
}

/* Writes the name of a file, without spaces. */
static void write_path(const hostile_corpus *c, const char *name, char path[160])
{
    snprintf(path, 160, "%s.%s", name, c->kind);
    for (char *p = path; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '.') *p = '-';
}

void hostile_refuse(hostile_corpus *c, const char *name, const hostile_bytes *file, const char *part)
{
    char path[160];
    mha_error err = {0};
    write_path(c, name, path);
    const mha_status status = read_file(c, path, file, &err);
    if (status == MHA_OK) fail_msg("%s must be refused", path);
    if (status == MHA_ERR_MEMORY || status != err.status) fail_msg("%s: status %d, %s", path, status, err.message);
    if (!strstr(err.message, path) || !strstr(err.message, part))
        fail_msg("message must name %s and contain \"%s\" (got \"%s\")", path, part, err.message);
    for (const char *p = err.message; *p; p++)
        if ((unsigned char)*p < 32 || *p == 127) fail_msg("%s: message must not have control characters", path);
    c->refused++;
}

void hostile_accept(hostile_corpus *c, const char *name, const hostile_bytes *file)
{
    char path[160];
    mha_error err = {0};
    write_path(c, name, path);
    if (read_file(c, path, file, &err) != MHA_OK) fail_msg("%s must be accepted (got \"%s\")", path, err.message);
    c->accepted++;
}

void hostile_refuse_cut(hostile_corpus *c, const char *what, const hostile_bytes *file, size_t at, const char *part)
{
    char name[120];
    const hostile_bytes cut = hostile_cut(file, at);
    snprintf(name, sizeof name, "ends at byte %zu in %s", at, what);
    hostile_refuse(c, name, &cut, part);
}

void hostile_end(const hostile_corpus *c, int min)
{
    print_message("%s: %d hostile files refused, %d unusual files accepted\n", c->kind, c->refused, c->accepted);
    if (c->refused + c->accepted < min)
        fail_msg("hostile files must be at least %d (got %d)", min, c->refused + c->accepted);
}
