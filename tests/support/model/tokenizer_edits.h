/* tokenizer_edits.h - opens a tokenizer.json with one changed value and checks the error message. */
#ifndef TEST_EDITS_H
#define TEST_EDITS_H

#include "mha/text.h"
#include <jansson.h>
#include <stddef.h>

typedef struct edit {
    const char *path, *value; /* path such as "added_tokens/0/id"; JSON value, NULL removes the key */
    const char *sentence;     /* string that the error message must contain; NULL = accepted */
} edit;

/* Loads tokenizer.json of folder `name` in data/tokenizer. */
json_t *edits_load(const char *name);
void edits_put(json_t *json, const char *path, const char *value);

/* Opens a tokenizer from the JSON of its file. */
mha_status edits_open(const json_t *json, mha_tokenizer **out, mha_error *err);

/* Opens the file with each edit in turn; fails the test unless the loader gives the expected result. */
void edits_check(const char *name, const edit *list, size_t count);

#endif
