/* tokenizer_edits.h - a tokenizer.json with one value changed: what the loader says of it. */
#ifndef TEST_EDITS_H
#define TEST_EDITS_H

#include "mha/text.h"
#include <jansson.h>
#include <stddef.h>

typedef struct edit {
    const char *path, *value; /* "added_tokens/0/id"; JSON text, NULL removes */
    const char *sentence;     /* what the refusal must hold; NULL = accepted */
} edit;

/* The file of folder `name` in data/tokenizer. */
json_t *edits_load(const char *name);
void edits_put(json_t *json, const char *path, const char *value);

/* The tokenizer of a file. */
mha_status edits_open(const json_t *json, mha_tokenizer **out, mha_error *err);

/* Opens that file with each edit in turn; fails the test where the loader does not say what it should. */
void edits_check(const char *name, const edit *list, size_t count);

#endif
