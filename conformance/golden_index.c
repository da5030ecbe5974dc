/* golden_index.c - reads index.json and the tensor files of a golden folder, and checks them before use. */
#include "conformance/golden_folder.h"
#include "output.h"
#include <errno.h>
#include <stdarg.h>
#include <string.h>

mha_status verify_fault(const verify_entry *e, const char *format, ...)
{
    if (e->error->status != MHA_OK) return e->error->status;
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    e->error->status = MHA_ERR_FORMAT;
    snprintf(e->error->message, sizeof e->error->message, "\"%s\": %s", cli_shown(e->name), text);
    return MHA_ERR_FORMAT;
}

/* ---- values of index.json ---- */

bool verify_has(const verify_entry *e, const char *key)
{
    const json_t *value = json_object_get(e->object, key);
    return value && !json_is_null(value);
}

int64_t verify_int(const verify_entry *e, const char *key)
{
    const json_t *value = json_object_get(e->object, key);
    if (!json_is_integer(value)) verify_fault(e, "\"%s\" in index.json must be an integer", key);
    return json_integer_value(value);
}

double verify_real(const verify_entry *e, const char *key)
{
    const json_t *value = json_object_get(e->object, key);
    if (!json_is_number(value)) verify_fault(e, "\"%s\" in index.json must be a number", key);
    return json_number_value(value);
}

bool verify_bool(const verify_entry *e, const char *key)
{
    const json_t *value = json_object_get(e->object, key);
    if (!json_is_boolean(value)) verify_fault(e, "\"%s\" in index.json must be true or false", key);
    return json_is_true(value);
}

const char *verify_text(const verify_entry *e, const char *key)
{
    const char *text = json_string_value(json_object_get(e->object, key));
    if (!text) verify_fault(e, "\"%s\" in index.json must be a string", key);
    return text ? text : "";
}

void verify_ints(const verify_entry *e, const char *key, int64_t *out, int64_t count)
{
    const json_t *array = json_object_get(e->object, key);
    if (!json_is_array(array) || json_array_size(array) != (size_t)count) {
        verify_fault(e, "\"%s\" in index.json must be an array of %lld elements", key, (long long)count);
        return;
    }
    for (int64_t n = 0; n < count; n++) {
        const json_t *value = json_array_get(array, (size_t)n);
        if (!json_is_integer(value)) verify_fault(e, "\"%s\" in index.json must contain only integers", key);
        out[n] = json_integer_value(value);
    }
}

double verify_limit(const verify_entry *e, const char *tensor, double otherwise)
{
    const json_t *value = json_object_get(json_object_get(e->object, "atol"), tensor);
    if (!value) return otherwise;
    if (!json_is_number(value)) verify_fault(e, "\"atol\" of \"%s\" in index.json must be a number", tensor);
    return json_number_value(value);
}

/* ---- files of a folder ---- */

json_t *verify_index_open(const char *folder, mha_error *error)
{
    char path[4096];
    json_error_t problem;
    if (snprintf(path, sizeof path, "%s/index.json", folder) >= (int)sizeof path) {
        *error = (mha_error){.status = MHA_ERR_IO};
        snprintf(error->message, sizeof error->message, "%s: path is too long", cli_shown(folder));
        return NULL;
    }
    errno = 0;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    if (json_is_object(root)) return root;
    *error = (mha_error){.status = MHA_ERR_FORMAT};
    if (root)
        snprintf(error->message, sizeof error->message, "%s: must be a JSON object", cli_shown(path));
    else if (problem.line < 1)
        snprintf(error->message, sizeof error->message, "%s: %s", cli_shown(path),
                 errno ? strerror(errno) : "cannot be read");
    else
        snprintf(error->message, sizeof error->message, "%s: line %d: %s", cli_shown(path), problem.line,
                 cli_shown(problem.text));
    json_decref(root);
    return NULL;
}

mha_status verify_path(const char *folder, const verify_entry *e, const char *name, char *path, size_t capacity)
{
    if (e->error->status != MHA_OK) return e->error->status;
    if (!name[0] || name[0] == '.' || strchr(name, '/'))
        return verify_fault(e, "\"%s\" must be a plain file name", cli_shown(name));
    if (snprintf(path, capacity, "%s/%s", folder, name) >= (int)capacity) return verify_fault(e, "path is too long");
    return MHA_OK;
}

mha_status verify_file_open(mha_ctx *ctx, const char *folder, const verify_entry *e, const char *name, mha_file **file)
{
    char path[4096];
    *file = NULL;
    mha_status status = verify_path(folder, e, name, path, sizeof path);
    return status == MHA_OK ? mha_file_open(ctx, path, NULL, file, e->error) : status;
}

/* ---- tensors of a file ---- */

const mha_tensor *verify_tensor(const verify_entry *e, const mha_file *file, const char *name, int rank, int64_t *shape)
{
    if (e->error->status != MHA_OK) return NULL;
    const mha_tensor *tensor = mha_file_find(file, name);
    if (!tensor) {
        verify_fault(e, "the file must have a tensor \"%s\"", cli_shown(name));
        return NULL;
    }
    if (tensor->rank != rank) {
        verify_fault(e, "tensor \"%s\" must have %d dimensions (got %d)", cli_shown(name), rank, tensor->rank);
        return NULL;
    }
    for (int n = 0; n < rank; n++) {
        if (shape[n] < 0) shape[n] = tensor->shape[n];
        if (tensor->shape[n] == shape[n]) continue;
        verify_fault(e, "tensor \"%s\": dimension %d must be %lld (got %lld)", cli_shown(name), n, (long long)shape[n],
                     (long long)tensor->shape[n]);
        return NULL;
    }
    return tensor;
}

void *verify_raw(verify_memory *memory, const verify_entry *e, const mha_tensor *tensor)
{
    void *copy = tensor ? verify_alloc(memory, (int64_t)tensor->bytes, 1, e) : NULL;
    if (copy && tensor->bytes) memcpy(copy, tensor->data, tensor->bytes);
    return copy;
}

static void *converted(verify_memory *memory, const verify_entry *e, const mha_tensor *tensor, mha_dtype dtype)
{
    void *copy = tensor ? verify_alloc(memory, tensor->elements, mha_dtype_size(dtype), e) : NULL;
    return copy && mha_tensor_read(tensor, dtype, copy, e->error) == MHA_OK ? copy : NULL;
}

double *verify_reals(verify_memory *memory, const verify_entry *e, const mha_tensor *tensor)
{
    return converted(memory, e, tensor, MHA_F64);
}

int64_t *verify_integers(verify_memory *memory, const verify_entry *e, const mha_tensor *tensor)
{
    return converted(memory, e, tensor, MHA_I64);
}

int64_t verify_elements(const mha_named_tensor *tensor)
{
    int64_t count = 1;
    for (int n = 0; n < tensor->rank; n++)
        count *= tensor->shape[n];
    return count;
}
