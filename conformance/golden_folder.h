/* golden_folder.h - declares functions that read index.json and the tensor files of a golden folder, and the checks of
 * each kind of folder. Strings and numbers of index.json are untrusted and are checked before use. */
#ifndef CONFORMANCE_GOLDEN_FOLDER_H
#define CONFORMANCE_GOLDEN_FOLDER_H

#include "verify/verify.h"

/* ---- index.json and tensor files of a golden folder (golden_index.c) ---- */

bool verify_has(const verify_entry *e, const char *key); /* true if the key is present and not null */
int64_t verify_int(const verify_entry *e, const char *key);
double verify_real(const verify_entry *e, const char *key);
bool verify_bool(const verify_entry *e, const char *key);
const char *verify_text(const verify_entry *e, const char *key); /* "" on failure, never NULL */
/* Reads the array `key`. The array must contain exactly `count` integers. */
void verify_ints(const verify_entry *e, const char *key, int64_t *out, int64_t count);

/* Returns the tolerance of a tensor in "atol" of index.json; `otherwise` if the tensor has none. */
double verify_limit(const verify_entry *e, const char *tensor, double otherwise);

/* Sets `error` to an error whose message begins with the name of the entry, and returns its status. */
mha_status verify_fault(const verify_entry *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Opens FOLDER/index.json; returns NULL on error. */
json_t *verify_index_open(const char *folder, mha_error *error);
/* Opens FOLDER/NAME. NAME is read from the index and must be a plain file name. */
mha_status verify_file_open(mha_ctx *ctx, const char *folder, const verify_entry *e, const char *name, mha_file **file);
/* Writes FOLDER/NAME to path[capacity]. NAME must be a plain file name. */
mha_status verify_path(const char *folder, const verify_entry *e, const char *name, char *path, size_t capacity);

/* verify_tensor finds a tensor with the given shape (-1: any dimension, returned in shape[]); a missing tensor is an
 * error. The other functions return an aligned copy of its elements; only verify_raw keeps the stored dtype. */
const mha_tensor *verify_tensor(const verify_entry *e, const mha_file *file, const char *name, int rank,
                                int64_t *shape);
void *verify_raw(verify_memory *memory, const verify_entry *e, const mha_tensor *tensor);
double *verify_reals(verify_memory *memory, const verify_entry *e, const mha_tensor *tensor);
int64_t *verify_integers(verify_memory *memory, const verify_entry *e, const mha_tensor *tensor);
/* Returns the number of elements of a tensor of the library. */
int64_t verify_elements(const mha_named_tensor *tensor);

/* Rejects unknown formats and unknown keys (golden_keys.c), because their requirements would not be checked. */
mha_status verify_keys(const char *folder, const char *kind, const json_t *index, mha_error *error);

/* ---- checks of each kind of folder; they return CLI_DONE, or an exit code if the folder is invalid ---- */

int verify_attention(cli_session *session, const char *folder, const json_t *index, verify_log *log);
int verify_models(cli_session *session, const char *folder, const json_t *index, verify_log *log);
int verify_seeds(cli_session *session, const char *folder, const json_t *index, verify_log *log);
int verify_ops(cli_session *session, const char *folder, const json_t *index, verify_log *log);
int verify_sentences(cli_session *session, const char *folder, const json_t *index, verify_log *log);
int verify_heads(cli_session *session, const char *folder, const json_t *index, verify_log *log);
int verify_circuits(cli_session *session, const char *folder, const json_t *index, verify_log *log);
#endif
