/* json.h - JSON from outside: parsed under the rules of this house, and read by getters that name what is wrong.
 *
 * What is parsed is RFC 8259 in UTF-8, and stricter: no key twice in an object (compared after decoding), no NaN or
 * Infinity, no lone surrogate, no NUL in a key, at most 64 levels, strings of at most 16 MiB; nothing but blanks after
 * the end. The root is an object. NUL inside a string value is data: strings are pointer and length.
 *
 * The tree belongs to jansson, which takes its memory from malloc and not from the context: its allocator is one global
 * that a library must not touch. Every failure of it is MHA_ERR_MEMORY, except inside jansson's number and string
 * scanner, where it reads as a syntax error; either way nothing leaks. json_decref frees a tree.
 */
#ifndef MHA_IO_JSON_H
#define MHA_IO_JSON_H

#include "io/limits.h"
#include "io/source.h"
#include <jansson.h>

enum {
    MHA__JSON_BOM = 1 << 0,   /* a byte order mark at the start is skipped (config.json and its like) */
    MHA__JSON_HEADER = 1 << 1 /* safetensors header: the first byte is '{', and an integer -0 is refused */
};

/* Parses `n` bytes. `file` is named in refusals. Errors: MHA_ERR_FORMAT, MHA_ERR_MEMORY; *root is NULL then. */
mha_status mha__json_parse(const char *file, const char *text, size_t n, unsigned flags, json_t **root, mha_error *err);

/* mha__read_whole and mha__json_parse with MHA__JSON_BOM in one step. */
mha_status mha__json_read(mha_ctx *ctx, const char *folder, const char *name, size_t limit, json_t **root,
                          mha_error *err);

/* An object of a file, with what a sentence needs to say where it stands. */
typedef struct mha__json_obj {
    const json_t *json;
    const char *file;  /* "config.json" */
    const char *where; /* key of the object, "rope_scaling"; NULL at the root */
} mha__json_obj;

/* Getters. A key that is absent or null leaves *value as it was, which is how defaults are given, unless `need` is
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
mha_status mha__json_array(const mha__json_obj *o, const char *key, mha__need need, const json_t **value,
                           mha_error *err);
/* *value gets the file of `o` and `key` as its place; its json stays NULL when absent. */
mha_status mha__json_object(const mha__json_obj *o, const char *key, mha__need need, mha__json_obj *value,
                            mha_error *err);

/* Fails with "FILE: WHERE.KEY: want WANT, got VALUE". For checks that the getters do not know. */
mha_status mha__json_refuse(const mha__json_obj *o, const char *key, const char *want, mha_error *err);
/* The same of entry `index` of the array that the key is: "FILE: WHERE.KEY[INDEX]: want WANT, got VALUE". */
mha_status mha__json_refuse_item(const mha__json_obj *o, const char *key, size_t index, const char *want,
                                 mha_error *err);

/* A value as a sentence shows it: 32, "gelu", true, null, "an object", "an array"; "nothing" for NULL. Returns
 * q->text. */
const char *mha__json_show(mha__quoted *q, const json_t *value);

#endif
