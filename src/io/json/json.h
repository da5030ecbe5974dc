/* json.h - JSON from outside: parsed under the rules of json_scan.h, kept as a tree, and read by getters that name what
 * is wrong.
 *
 * A tree is one block of 16 bytes per value or key in the order of the file, the text of the file, in which strings are
 * decoded where they stand, and a table of all keys. All of it is memory of the context. Finding a key takes the same
 * time in an object of any size. No key appears twice in an object (compared after decoding). A file of more than
 * MHA__JSON_NODES values and keys is refused before any of them is stored. NUL inside a string value is data: strings
 * are pointer and length.
 */
#ifndef MHA_IO_JSON_JSON_H
#define MHA_IO_JSON_JSON_H

#include "io/files/input_file.h"
#include "io/input_limits.h"
#include "io/json/json_scan.h"

typedef struct mha__json mha__json; /* a value of a tree */

/* Parses `n` bytes, an object. `file` is named in refusals. Errors: MHA_ERR_FORMAT, MHA_ERR_MEMORY; *root is NULL
 * then. */
mha_status mha__json_parse(mha_ctx *ctx, const char *file, const char *text, size_t n, unsigned flags,
                           const mha__json **root, mha_error *err);
/* mha__read_whole and mha__json_parse with MHA__JSON_BOM in one step. */
mha_status mha__json_read(mha_ctx *ctx, const char *folder, const char *name, size_t limit, const mha__json **root,
                          mha_error *err);
void mha__json_free(const mha__json *root);
/* Bytes of memory that the tree takes, its text included. */
size_t mha__json_memory(const mha__json *root);

/* ---- values: NULL stands for one that is absent ---- */

mha__json_kind mha__json_kind_of(const mha__json *value);
static inline bool mha__json_is(const mha__json *value, mha__json_kind kind)
{
    return mha__json_kind_of(value) == kind;
}
bool mha__json_is_bool(const mha__json *value);
bool mha__json_is_number(const mha__json *value);
/* Items of an array or members of an object; 0 for anything else. */
size_t mha__json_size(const mha__json *value);
/* A member of an object, an item of an array; NULL if there is none. An item takes time in proportion to `index` if the
 * array holds arrays or objects: mha__json_each walks over all of them. */
const mha__json *mha__json_get(const mha__json *object, const char *key);
const mha__json *mha__json_item(const mha__json *array, size_t index);
/* 0 for anything else than an integer; than an integer or a real. */
int64_t mha__json_as_int(const mha__json *value);
double mha__json_as_number(const mha__json *value);
/* A string, followed by a NUL; NULL for anything else. Its length; 0 for anything else. */
const char *mha__json_as_text(const mha__json *value);
size_t mha__json_bytes(const mha__json *value);
/* The same type and content; objects may be in any order. */
bool mha__json_equal(const mha__json *a, const mha__json *b);

/* All items of an array, or members of an object:  for (mha__json_step i = {0}; mha__json_each(list, &i);) */
typedef struct mha__json_step {
    const mha__json *value, *key; /* key: NULL in an array; a string for mha__json_as_text */
    size_t index;
} mha__json_step;

bool mha__json_each(const mha__json *container, mha__json_step *step);

/* ---- getters ---- */

/* An object of a file, with what a sentence needs to say where it stands. */
typedef struct mha__json_obj {
    const mha__json *json;
    const char *file;  /* "config.json" */
    const char *where; /* key of the object, "rope_scaling"; NULL at the root */
} mha__json_obj;

/* A key that is absent or null leaves *value as it was, which is how defaults are given, unless `need` is
 * MHA__REQUIRED. Any other type or range is MHA_ERR_FORMAT: "config.json: hidden_size: want an integer from 1 to
 * 2147483648, got "24"". What they return (strings, arrays) lives as long as the tree. */
typedef enum mha__need { MHA__OPTIONAL = 0, MHA__REQUIRED } mha__need;

bool mha__json_has(const mha__json_obj *o, const char *key); /* present and not null */

/* Written as an integer, min..max. */
mha_status mha__json_int(const mha__json_obj *o, const char *key, mha__need need, int64_t min, int64_t max,
                         int64_t *value, mha_error *err);
/* A dimension: 1..max; 32.0 passes too, as transformers takes it. */
mha_status mha__json_dim(const mha__json_obj *o, const char *key, mha__need need, int64_t max, int64_t *value,
                         mha_error *err);
/* An integer or a real, finite, min..max. */
mha_status mha__json_number(const mha__json_obj *o, const char *key, mha__need need, double min, double max,
                            double *value, mha_error *err);
mha_status mha__json_bool(const mha__json_obj *o, const char *key, mha__need need, bool *value, mha_error *err);
/* `bytes` may be NULL: a string that holds NUL is refused then. */
mha_status mha__json_string(const mha__json_obj *o, const char *key, mha__need need, const char **value, size_t *bytes,
                            mha_error *err);
/* Stores which of `names` (NULL ends them) the string is; `want` is how a sentence lists them. */
mha_status mha__json_choice(const mha__json_obj *o, const char *key, mha__need need, const char *const *names,
                            const char *want, int *index, mha_error *err);
mha_status mha__json_array(const mha__json_obj *o, const char *key, mha__need need, const mha__json **value,
                           mha_error *err);
/* *value gets the file of `o` and `key` as its place; its json stays NULL when absent. */
mha_status mha__json_object(const mha__json_obj *o, const char *key, mha__need need, mha__json_obj *value,
                            mha_error *err);

/* Fails with "FILE: WHERE.KEY must be WANT (got VALUE)". For checks that the getters do not know. */
mha_status mha__json_refuse(const mha__json_obj *o, const char *key, const char *want, mha_error *err);
/* The same of entry `index` of the array that the key is: "FILE: WHERE.KEY[INDEX] must be WANT (got VALUE)". */
mha_status mha__json_refuse_item(const mha__json_obj *o, const char *key, size_t index, const char *want,
                                 mha_error *err);

/* A value as a sentence shows it: 32, "gelu", true, null, "an object", "an array"; "nothing" for NULL. Returns
 * q->text. */
const char *mha__json_show(mha__quoted *q, const mha__json *value);
/* The same of a token, for readers of a stream. */
const char *mha__json_show_token(mha__quoted *q, const mha__json_token *token);

#endif
