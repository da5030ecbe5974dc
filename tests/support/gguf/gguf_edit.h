/* gguf_edit.h - writes a changed copy of a GGUF file. */
#ifndef MHA_TEST_GGUF_EDIT_H
#define MHA_TEST_GGUF_EDIT_H

#include "io/gguf/gguf.h"

/* A key or a tensor that is added, or that replaces the one of its name. */
typedef struct gguf_edit {
    const char *key;     /* NULL = the edit is that of a tensor */
    mha__gguf_type type; /* of the key: U32, F32 or STRING; any other type removes the key */
    double number;
    const char *text;
    const char *tensor;
    int rank; /* 0 = the tensor is removed */
    int64_t shape[3];
} gguf_edit;

/* Writes a file with the keys and tensors of `from`, in f32. All elements of added tensors are 1. Fails the running
 * test on error. */
void gguf_edited(const char *from, const gguf_edit *edits, int count, const char *to);

#endif
