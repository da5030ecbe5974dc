/* tokenizer_edits.h - opens a tokenizer.json in which one value was modified, and checks the result. */
#ifndef TEST_EDITS_H
#define TEST_EDITS_H

#include "mha/text.h"
#include <jansson.h>
#include <stddef.h>

typedef struct edit {
    const char *path, *value; /* a path such as "added_tokens/0/id", and its JSON value; NULL removes the key */
    const char *sentence;     /* string that the error message must contain; NULL: the file must be accepted */
} edit;

/* Loads tokenizer.json of folder `name` in data/tokenizer. */
json_t *edits_load(const char *name);
void edits_put(json_t *json, const char *path, const char *value);

/* Opens a tokenizer from the parsed JSON of tokenizer.json. */
mha_status edits_open(const json_t *json, mha_tokenizer **out, mha_error *err);

/* Opens the tokenizer.json of folder `name` once per edit; fails the running test unless the result is as expected. */
void edits_check(const char *name, const edit *list, size_t count);

#endif
