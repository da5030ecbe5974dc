/* json.h - reads JSON input: parsed by the rules of json_scan.h, stored as a tree, and accessed by getters whose errors
 * name the key and the value.
 *
 * A tree is one block of context memory. It contains 16 bytes per value or key in file order, the text of the file,
 * whose strings are decoded in place, and a hash table of all keys. Finding a key takes constant time in an object of
 * any size. Duplicate keys in an object (compared after decoding) are an error. A file of more than MHA__JSON_NODES
 * values and keys is rejected before any of them is stored. String values may contain NUL, so strings have a pointer
 * and a length. */
#ifndef MHA_IO_JSON_JSON_H
#define MHA_IO_JSON_JSON_H

#include "io/files/input_file.h"
#include "io/input_limits.h"
#include "io/json/json_scan.h"

typedef struct mha__json mha__json; /* a value in a tree */

/* Parses a text of `n` bytes, whose root must be an object unless `flags` includes MHA__JSON_ANY. Error messages name
 * `file`. Errors: MHA_ERR_FORMAT, MHA_ERR_MEMORY; *root is then NULL. */
mha_status mha__json_parse(mha_ctx *ctx, const char *file, const char *text, size_t n, unsigned flags,
                           const mha__json **root, mha_error *err);
/* Reads a file with mha__read_whole and parses it with mha__json_parse and MHA__JSON_BOM. */
mha_status mha__json_read(mha_ctx *ctx, const char *folder, const char *name, size_t limit, const mha__json **root,
                          mha_error *err);
void mha__json_free(const mha__json *root);
/* Returns the memory used by the tree, including the text [bytes]. */
size_t mha__json_memory(const mha__json *root);

/* ---- access to values; NULL represents an absent value ---- */

mha__json_kind mha__json_kind_of(const mha__json *value);
static inline bool mha__json_is(const mha__json *value, mha__json_kind kind)
{
    return mha__json_kind_of(value) == kind;
}
bool mha__json_is_bool(const mha__json *value);
bool mha__json_is_number(const mha__json *value);
/* Returns the number of items in an array or members in an object; 0 for any other type. */
size_t mha__json_size(const mha__json *value);
/* Return a member of an object, and an item of an array; NULL if absent. If the array contains arrays or objects,
 * finding an item takes time proportional to `index`; to iterate over all items, use mha__json_each. */
const mha__json *mha__json_get(const mha__json *object, const char *key);
const mha__json *mha__json_item(const mha__json *array, size_t index);
/* mha__json_as_int returns an integer; mha__json_as_number returns an integer or real as a double. Both return 0 for
 * any other type. */
int64_t mha__json_as_int(const mha__json *value);
double mha__json_as_number(const mha__json *value);
/* mha__json_as_text returns a NUL-terminated string, mha__json_bytes its length; NULL and 0 for any other type. */
const char *mha__json_as_text(const mha__json *value);
size_t mha__json_bytes(const mha__json *value);
/* Returns true if `object` has a member `key` that is the string `text`. */
bool mha__json_has_text(const mha__json *object, const char *key, const char *text);
/* Returns true if type and content are equal, regardless of the order of members. */
bool mha__json_equal(const mha__json *a, const mha__json *b);

/* Iterates over the items of an array or the members of an object:
 *
 *     for (mha__json_step i = {0}; mha__json_each(list, &i);) */
typedef struct mha__json_step {
    const mha__json *value, *key; /* key: a string value; NULL in an array */
    size_t index;
} mha__json_step;

bool mha__json_each(const mha__json *container, mha__json_step *step);

/* ---- getters ---- */

/* An object in a file, with its location for messages. */
typedef struct mha__json_obj {
    const mha__json *json;
    const char *file;  /* file name for messages, such as "config.json" */
    const char *where; /* key of the object, such as "rope_scaling"; NULL for the root */
} mha__json_obj;

/* A key that is absent or null leaves *value unchanged, so the caller sets the default before the call; with
 * MHA__REQUIRED, it is an error. A value of a wrong type or range fails with MHA_ERR_FORMAT: "config.json: hidden_size
 * must be an integer from 1 to 2147483648 (got "24")". Strings and arrays are valid until the tree is freed. */
typedef enum mha__need { MHA__OPTIONAL = 0, MHA__REQUIRED } mha__need;

bool mha__json_has(const mha__json_obj *o, const char *key); /* true if the key is present and not null */

/* Reads an integer in min..max, written without a decimal point or exponent. */
mha_status mha__json_int(const mha__json_obj *o, const char *key, mha__need need, int64_t min, int64_t max,
                         int64_t *value, mha_error *err);
/* Reads a dimension in 1..max; also accepts a real such as 32.0, as transformers does. */
mha_status mha__json_dim(const mha__json_obj *o, const char *key, mha__need need, int64_t max, int64_t *value,
                         mha_error *err);
/* Reads a finite integer or real in min..max. */
mha_status mha__json_number(const mha__json_obj *o, const char *key, mha__need need, double min, double max,
                            double *value, mha_error *err);
mha_status mha__json_bool(const mha__json_obj *o, const char *key, mha__need need, bool *value, mha_error *err);
/* Reads a string. If `bytes` is NULL, rejects a string that contains NUL. */
mha_status mha__json_string(const mha__json_obj *o, const char *key, mha__need need, const char **value, size_t *bytes,
                            mha_error *err);
/* Reads a string that must be one of `names`, which ends with NULL, and stores its index. `want` lists the names for
 * messages. */
mha_status mha__json_choice(const mha__json_obj *o, const char *key, mha__need need, const char *const *names,
                            const char *want, int *index, mha_error *err);
mha_status mha__json_array(const mha__json_obj *o, const char *key, mha__need need, const mha__json **value,
                           mha_error *err);
/* Reads an object: *value receives the file of `o` and the location `key`; value->json is NULL if the key is absent. */
mha_status mha__json_object(const mha__json_obj *o, const char *key, mha__need need, mha__json_obj *value,
                            mha_error *err);

/* Rejects keys of a nested object that are not in `keys`, which ends with NULL; `list` names the allowed keys for the
 * message. */
mha_status mha__json_only(const mha__json_obj *o, const char *const *keys, const char *list, mha_error *err);

/* Fails with "FILE: WHERE.KEY must be WANT (got VALUE)". Used for checks that the getters do not make. */
mha_status mha__json_refuse(const mha__json_obj *o, const char *key, const char *want, mha_error *err);
/* Fails for entry `index` of an array: "FILE: WHERE.KEY[INDEX] must be WANT (got VALUE)". */
mha_status mha__json_refuse_item(const mha__json_obj *o, const char *key, size_t index, const char *want,
                                 mha_error *err);

/* Formats a value for messages: 32, "gelu", true, null, "an object", "an array"; "nothing" for NULL. Returns
 * q->text. */
const char *mha__json_show(mha__quoted *q, const mha__json *value);
/* Formats a token for messages, like mha__json_show; for streaming readers. */
const char *mha__json_show_token(mha__quoted *q, const mha__json_token *token);

#endif
