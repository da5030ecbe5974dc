/* golden_heads_file.c - reads a file of golden/heads; each tensor of the file is a case. */
#include "conformance/heads/golden_heads.h"
#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- names in the index ---- */

static const char entry_words[] = "shape dtype float32_max_abs_error abs_tolerance is";

/* Returns true if the name is one of the words; "x_*" matches any name that begins with "x_". */
static bool is_word(const char *words, const char *name)
{
    for (const char *at = words; *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        const bool open = at[length - 1] == '*';
        if (open ? strncmp(at, name, length - 1) == 0 : strlen(name) == length && strncmp(at, name, length) == 0)
            return true;
        at += length;
    }
    return false;
}

static void check_words(const verify_entry *file, const char *words)
{
    const char *name, *key;
    json_t *tensor, *value;
    json_object_foreach((json_t *)file->object, name, tensor)
    {
        if (!is_word(words, name)) verify_fault(file, "unknown tensor \"%s\" in index.json", cli_shown(name));
        json_object_foreach(tensor, key, value) if (!is_word(entry_words, key))
            verify_fault(file, "\"%s\" in index.json: unknown key \"%s\"", cli_shown(name), cli_shown(key));
    }
}

static const heads_known *known_file(const char *name)
{
    for (const heads_known *file = heads_files; file->name; file++)
        if (strcmp(file->name, name) == 0) return file;
    return NULL;
}

void heads_check_names(const heads_run *run)
{
    const char *name;
    json_t *file;
    json_object_foreach(json_object_get(run->index, "files"), name, file)
    {
        const verify_entry e = {file, name, run->error};
        const heads_known *known = known_file(name);
        if (known)
            check_words(&e, known->words);
        else
            verify_fault(&e, "unknown file");
    }
}

/* ---- opening and closing ---- */

bool heads_open(heads_file *f, heads_run *run, const char *name)
{
    *f = (heads_file){.run = run, .group = known_file(name)->group};
    f->entry = (verify_entry){json_object_get(json_object_get(run->index, "files"), name), name, run->error};
    if (!f->entry.object || run->error->status != MHA_OK) return false;
    f->seen = json_object();
    return verify_file_open(run->session->ctx, run->folder, &f->entry, name, &f->file) == MHA_OK;
}

bool heads_ok(const heads_file *f)
{
    return f->run->error->status == MHA_OK;
}

bool heads_has(const heads_file *f, const char *tensor)
{
    return verify_has(&f->entry, tensor);
}

/* Reports listed tensors that no part has claimed. */
static void check_seen(const heads_file *f)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)f->entry.object, name, value)
    {
        if (strcmp(name, "is") == 0 || json_object_get(f->seen, name)) continue;
        verify_fault(&f->entry, "tensor \"%s\" in index.json must be compared with a result", cli_shown(name));
    }
}

void heads_close(heads_file *f)
{
    if (f->file && heads_ok(f)) check_seen(f);
    heads_drop(f);
}

void heads_drop(heads_file *f)
{
    json_decref(f->seen);
    mha_file_free(f->file);
    verify_release(&f->memory);
    *f = (heads_file){.run = f->run};
}

/* ---- tensors ---- */

/* Checks that the tensor in the file has the shape that the index lists. */
static void check_shape(const heads_file *f, const mha_tensor *t)
{
    const json_t *shape = json_object_get(json_object_get(f->entry.object, t->name), "shape");
    bool same = json_array_size(shape) == (size_t)t->rank;
    for (int n = 0; n < t->rank; n++)
        same = same && json_integer_value(json_array_get(shape, (size_t)n)) == t->shape[n];
    if (!same) verify_fault(&f->entry, "tensor \"%s\" must have the shape listed in index.json", cli_shown(t->name));
}

static const mha_tensor *find(heads_file *f, const char *tensor, int rank, int64_t *shape)
{
    if (!f->file || !heads_has(f, tensor) || !heads_ok(f)) return NULL;
    if (json_object_set_new(f->seen, tensor, json_true()) != 0) f->run->log->no_memory = true;
    const mha_tensor *t = verify_tensor(&f->entry, f->file, tensor, rank, shape);
    if (t) check_shape(f, t);
    return heads_ok(f) ? t : NULL;
}

const double *heads_want(heads_file *f, const char *tensor, int rank, int64_t *shape)
{
    const mha_tensor *t = find(f, tensor, rank, shape);
    return t ? verify_reals(&f->memory, &f->entry, t) : NULL;
}

int64_t *heads_integers(heads_file *f, const char *tensor, int rank, int64_t *shape)
{
    const mha_tensor *t = find(f, tensor, rank, shape);
    return t ? verify_integers(&f->memory, &f->entry, t) : NULL;
}

void *heads_room(heads_file *f, int64_t count, size_t size)
{
    return verify_alloc(&f->memory, count, size, &f->entry);
}

/* ---- cases ---- */

/* Returns 1e-6 times the largest magnitude of the recorded values. */
static double rounding_of(const double *want, int64_t count)
{
    double max = 0;
    for (int64_t n = 0; n < count; n++)
        max = fmax(max, fabs(want[n]));
    return 1e-6 * max;
}

static double limit_of(const heads_file *f, const char *tensor, heads_limit limit, const double *want, int64_t count)
{
    if (limit == HEADS_EXACT) return 0;
    if (limit == HEADS_ROUNDED) return rounding_of(want, count);
    const verify_entry e = {json_object_get(f->entry.object, tensor), tensor, f->entry.error};
    return verify_real(&e, "abs_tolerance");
}

void heads_case(heads_file *f, const char *group, const char *tensor, const double *want, const double *got,
                int64_t count, heads_limit limit, const mha_error *failed)
{
    verify_case outcome;
    if (!want || !heads_ok(f)) return;
    verify_begin(&outcome, group, tensor);
    if (failed && failed->status != MHA_OK)
        verify_stopped(&outcome, failed);
    else
        verify_compare_reals(&outcome, tensor, got, want, count, limit_of(f, tensor, limit, want, count));
    if (heads_ok(f)) verify_end(f->run->log, &outcome);
}
