/* golden_circuits_file.c - reads a recorded file of circuit measures; each tensor of the file is a case. */
#include "conformance/circuits/golden_circuits.h"
#include "output.h"
#include <string.h>

bool circuits_ok(const circuits_file *f)
{
    return f->entry.error->status == MHA_OK;
}

bool circuits_has(const circuits_file *f, const char *tensor)
{
    return json_object_get(f->listed, tensor) != NULL;
}

void *circuits_room(circuits_file *f, int64_t count, size_t size)
{
    return verify_alloc(&f->memory, count, size, &f->entry);
}

static const mha_tensor *claim(circuits_file *f, const char *tensor, int rank, int64_t *shape)
{
    if (!circuits_ok(f) || !circuits_has(f, tensor)) return NULL;
    if (json_object_set_new(f->seen, tensor, json_true()) != 0) f->log->no_memory = true;
    return verify_tensor(&f->entry, f->file, tensor, rank, shape);
}

const double *circuits_want(circuits_file *f, const char *tensor, int rank, int64_t *shape)
{
    return verify_reals(&f->memory, &f->entry, claim(f, tensor, rank, shape));
}

int64_t *circuits_integers(circuits_file *f, const char *tensor, int rank, int64_t *shape)
{
    return verify_integers(&f->memory, &f->entry, claim(f, tensor, rank, shape));
}

double circuits_limit(const circuits_file *f, const char *tensor)
{
    const verify_entry e = {json_object_get(f->listed, tensor), tensor, f->entry.error};
    return verify_real(&e, "abs_tolerance");
}

void circuits_case(circuits_file *f, const char *tensor, int rank, const int64_t *shape, const double *got,
                   const mha_error *failed)
{
    int64_t expected[4] = {0}, count = 1;
    char name[200];
    verify_case outcome;
    for (int n = 0; n < rank; n++) {
        expected[n] = shape[n];
        count *= shape[n];
    }
    const double *want = circuits_want(f, tensor, rank, expected);
    if (!want) return;
    snprintf(name, sizeof name, "%s %s", f->entry.name, tensor);
    verify_begin(&outcome, f->entry.name, name);
    if (failed->status != MHA_OK)
        verify_stopped(&outcome, failed);
    else
        verify_compare_reals(&outcome, tensor, got, want, count, circuits_limit(f, tensor));
    if (circuits_ok(f)) verify_end(f->log, &outcome);
}

/* ---- opening and closing ---- */

static void read_ids(circuits_file *f, const char *tensor, const int32_t **ids)
{
    const int64_t *wide = circuits_integers(f, tensor, 1, (int64_t[]){f->length});
    int32_t *narrow = circuits_room(f, f->length, sizeof *narrow);
    for (int64_t n = 0; wide && narrow && n < f->length; n++) {
        if (wide[n] < 0 || wide[n] >= f->info->vocab)
            verify_fault(&f->entry, "\"%s\"[%lld] must be a token id below %lld (got %lld)", tensor, (long long)n,
                         (long long)f->info->vocab, (long long)wide[n]);
        else
            narrow[n] = (int32_t)wide[n];
    }
    *ids = narrow;
}

static void read_noise(circuits_file *f)
{
    const int64_t count = f->length * f->info->hidden;
    const double *wide = circuits_want(f, "noise", 2, (int64_t[]){f->length, f->info->hidden});
    float *noise = wide ? circuits_room(f, count, sizeof *noise) : NULL;
    for (int64_t n = 0; noise && n < count; n++)
        noise[n] = (float)wide[n];
    f->noise = noise;
}

static void read_prompts(circuits_file *f)
{
    int64_t shape = -1;
    circuits_integers(f, "clean_ids", 1, &shape);
    f->length = shape;
    if (shape < 1) verify_fault(&f->entry, "the file must have a tensor \"clean_ids\" with at least one token");
    const int64_t *answer = circuits_integers(f, "answer", 1, (int64_t[]){2});
    const int64_t *position = circuits_integers(f, "position", 1, (int64_t[]){1});
    if (!answer || !position) verify_fault(&f->entry, "the file must have the tensors \"answer\" and \"position\"");
    if (!circuits_ok(f)) return;
    f->answer = (int32_t)answer[0];
    f->wrong = (int32_t)answer[1];
    f->position = position[0];
    read_ids(f, "clean_ids", &f->clean);
    read_ids(f, "corrupted_ids", &f->corrupted);
    read_noise(f);
}

bool circuits_open(circuits_file *f, const char *folder, const json_t *index, mha_file **file)
{
    const char *name = verify_text(&f->entry, "file");
    f->listed = json_object_get(json_object_get(index, "files"), name);
    f->seen = json_object();
    if (!f->seen) f->log->no_memory = true;
    if (!json_is_object(f->listed)) verify_fault(&f->entry, "\"files\" must list %s", cli_shown(name));
    if (verify_file_open(f->session->ctx, folder, &f->entry, name, file) != MHA_OK) return false;
    f->file = *file;
    if (verify_has(&f->entry, "parts")) read_prompts(f);
    return circuits_ok(f);
}

void circuits_close(circuits_file *f, mha_file *file)
{
    const char *name;
    json_t *tensor;
    json_object_foreach((json_t *)f->listed, name, tensor) if (circuits_ok(f) && !json_object_get(f->seen, name))
        verify_fault(&f->entry, "unknown tensor \"%s\" in index.json", cli_shown(name));
    verify_release(&f->memory);
    json_decref(f->seen);
    mha_file_free(file);
}
