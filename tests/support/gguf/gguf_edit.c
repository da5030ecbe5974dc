/* gguf_edit.c - see gguf_edit.h. */
#include "support/gguf/gguf_edit.h"

#include "io/gguf/gguf_writer.h"
#include "support/check.h"
#include <stdlib.h>
#include <string.h>

typedef struct editing {
    mha_file *file;
    const gguf_edit *edits;
    int count;
    mha__gguf_keys keys;
    mha__gguf_outgoing *list; /* [listed] first the tensors of the file that remain */
    const mha_tensor **from;  /* [listed] NULL = added */
    int64_t listed;
    float *elements;
} editing;

static bool is_edited(const editing *e, const char *name, bool key)
{
    for (int n = 0; n < e->count; n++) {
        const char *edited = key ? e->edits[n].key : e->edits[n].tensor;
        if (edited && strcmp(edited, name) == 0) return true;
    }
    return false;
}

/* ---- keys ---- */

static void copy_key(editing *e, const mha__gguf_value *v)
{
    const uint32_t type = v->type;
    const char *end = v->data;
    size_t n = (size_t)v->count * mha__gguf_value_size(type);
    for (uint64_t i = 0; type == MHA__GGUF_STRING && i < v->count; i++) {
        mha__gguf_next_text(&end, &n);
        n = (size_t)(end - v->data);
    }
    if (v->array)
        mha__gguf_key_array(&e->keys, v->key, v->type, v->count);
    else {
        mha__gguf_put_string(&e->keys, v->key, strlen(v->key));
        mha__gguf_put(&e->keys, &type, sizeof type);
        e->keys.count++;
    }
    mha__gguf_put(&e->keys, v->data, n);
}

static void put_keys(editing *e)
{
    for (int64_t n = 0; n < e->file->gguf->count; n++)
        if (!is_edited(e, e->file->gguf->values[n].key, true)) copy_key(e, &e->file->gguf->values[n]);
    for (int n = 0; n < e->count; n++) {
        const gguf_edit *edit = &e->edits[n];
        if (edit->key && edit->type == MHA__GGUF_U32) mha__gguf_key_u32(&e->keys, edit->key, (uint32_t)edit->number);
        if (edit->key && edit->type == MHA__GGUF_F32) mha__gguf_key_f32(&e->keys, edit->key, (float)edit->number);
        if (edit->key && edit->type == MHA__GGUF_STRING) mha__gguf_key_text(&e->keys, edit->key, edit->text);
    }
}

/* ---- tensors ---- */

static void list(editing *e, const char *name, int rank, const int64_t *shape, const mha_tensor *from)
{
    e->from[e->listed] = from;
    e->list[e->listed++] = (mha__gguf_outgoing){.name = name, .rank = rank, .shape = shape, .type = "F32"};
}

static void list_tensors(editing *e)
{
    const size_t max = (size_t)(e->file->count + e->count);
    e->list = calloc(max, sizeof *e->list);
    e->from = calloc(max, sizeof *e->from);
    for (int64_t n = 0; n < e->file->count; n++) {
        const mha_tensor *t = &e->file->records[n].tensor;
        if (!is_edited(e, t->name, false)) list(e, t->name, t->rank, t->shape, t);
    }
    for (int n = 0; n < e->count; n++)
        if (e->edits[n].tensor && e->edits[n].rank)
            list(e, e->edits[n].tensor, e->edits[n].rank, e->edits[n].shape, NULL);
}

static mha_status read_elements(void *user, int64_t index, const float **elements, mha_error *err)
{
    editing *e = user;
    const mha__gguf_outgoing *t = &e->list[index];
    size_t count = 1;
    for (int n = 0; n < t->rank; n++)
        count *= (size_t)t->shape[n];
    free(e->elements);
    e->elements = malloc(count * sizeof *e->elements);
    for (size_t n = 0; n < count; n++)
        e->elements[n] = 1;
    *elements = e->elements;
    return e->from[index] ? mha_tensor_read(e->from[index], MHA_F32, e->elements, err) : MHA_OK;
}

static mha_status accept(void *user, const char *path, mha_error *err)
{
    (void)user, (void)path, (void)err;
    return MHA_OK;
}

void gguf_edited(const char *from, const gguf_edit *edits, int count, const char *to)
{
    editing e = {.edits = edits, .count = count};
    mha_error err = {0};
    if (mha_file_open(NULL, from, NULL, &e.file, &err) != MHA_OK) fail_msg("%s", err.message);
    put_keys(&e);
    list_tensors(&e);
    if (mha__gguf_write(to, true, &e.keys, e.list, e.listed, read_elements, accept, &e, &err) != MHA_OK)
        fail_msg("%s", err.message);
    mha__gguf_keys_free(&e.keys);
    mha_file_free(e.file);
    free(e.list);
    free(e.from);
    free(e.elements);
}
