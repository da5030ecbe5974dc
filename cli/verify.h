/* verify.h - what the parts of `mha verify` share: the log of outcomes, and reading of recorded folders.
 *
 * A case passes, fails or is refused. It fails when one number is further from its record than the limit, or when the
 * library could not do it for a reason other than "not built yet"; then it would be refused. A folder that is itself
 * broken ends the whole run with exit code 3: it says nothing about this build.
 */
#ifndef CLI_VERIFY_H
#define CLI_VERIFY_H

#include <jansson.h>

#include "command.h"

/* ---- outcomes (verify_log.c) ---- */

/* One case while it is being checked. Name and group are borrowed until verify_end. */
typedef struct verify_case {
    const char *group, *name;
    bool refused, broken;
    char reason[1024]; /* of a refused or broken one */
    char tensor[64];   /* the comparison that came out worst, and its numbers */
    double error, limit, ratio;
} verify_case;

/* All outcomes of a run. `groups`, `failures` ... are what --json prints. */
typedef struct verify_log {
    int64_t passed, failed, refused;
    double worst; /* largest error / limit of all */
    json_t *groups, *failures, *refusals, *worst_case;
    int64_t printed;  /* numbers compared with the digits that a walk-through prints */
    json_t *skipped;  /* {tensor: cases}: recorded, but this build has nothing to compare with it */
    json_t *table;    /* {group: {isa: worst error / limit}}, of verify_self; else NULL */
    const char *kind; /* of folder; "self" without one */
    bool no_memory;
} verify_log;

void verify_log_open(verify_log *log);
void verify_log_close(verify_log *log);

void verify_begin(verify_case *c, const char *group, const char *name);
/* Compares `count` numbers: NaN with NaN and infinities of the same sign are equal; anything else that is not finite is
 * infinitely wrong. */
void verify_compare(verify_case *c, const char *tensor, const float *got, const double *want, int64_t count,
                    double limit);
void verify_compare_reals(verify_case *c, const char *tensor, const double *got, const double *want, int64_t count,
                          double limit);
/* An error measured elsewhere, for instance how many token ids differ with the limit 0. */
void verify_measured(verify_case *c, const char *tensor, double error, double limit);
/* Takes the outcome of a library call that failed: MHA_ERR_UNSUPPORTED refuses the case, anything else breaks it. */
void verify_stopped(verify_case *c, const mha_error *error);
void verify_end(verify_log *log, const verify_case *c);
/* Notes that a case has a recorded tensor that this build cannot compute at all. */
void verify_skip(verify_log *log, const char *tensor);

/* Writes the log as text or JSON and returns the exit code. */
int verify_print(cli_session *session, const verify_log *log, bool strict);

/* ---- recorded folders (verify_index.c) ---- */

/* One object of index.json. Reading goes on after a mistake and yields zeros; the first mistake stays in `error`, which
 * is looked at once after a group of reads. */
typedef struct verify_entry {
    const json_t *object;
    const char *name;
    mha_error *error;
} verify_entry;

bool verify_has(const verify_entry *e, const char *key); /* present and not null */
int64_t verify_int(const verify_entry *e, const char *key);
double verify_real(const verify_entry *e, const char *key);
bool verify_bool(const verify_entry *e, const char *key);
const char *verify_text(const verify_entry *e, const char *key); /* never NULL */
/* The array `key` of exactly `count` integers. */
void verify_ints(const verify_entry *e, const char *key, int64_t *out, int64_t count);

/* Fills `error` and returns its status; the sentence begins with the name of the entry. */
mha_status verify_fault(const verify_entry *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Opens DIR/index.json; NULL with an error. */
json_t *verify_index_open(const char *folder, mha_error *error);
/* Opens FOLDER/NAME, where NAME comes from the index: a plain name, never a path. */
mha_status verify_file_open(mha_ctx *ctx, const char *folder, const verify_entry *e, const char *name, mha_file **file);
/* FOLDER/NAME under the same rule, in path[capacity]. */
mha_status verify_path(const char *folder, const verify_entry *e, const char *name, char *path, size_t capacity);

/* Memory of one case, given back together. */
typedef struct verify_memory {
    void *block[1024];
    int count;
} verify_memory;
void *verify_alloc(verify_memory *memory, int64_t count, size_t size, const verify_entry *e); /* cleared; NULL fails */
void verify_release(verify_memory *memory);

/* A tensor of the file whose shape is given (-1: any extent, stored in shape[]); an absent one is a fault. The copy is
 * aligned. `raw` keeps the stored type, the others convert. */
const mha_tensor *verify_tensor(const verify_entry *e, const mha_file *file, const char *name, int rank,
                                int64_t *shape);
void *verify_raw(verify_memory *memory, const verify_entry *e, const mha_tensor *tensor);
double *verify_reals(verify_memory *memory, const verify_entry *e, const mha_tensor *tensor);
int64_t *verify_integers(verify_memory *memory, const verify_entry *e, const mha_tensor *tensor);

/* Refuses another format than ours, and keys that no folder of this kind has (verify_keys.c): nobody would check what
 * they ask for. */
mha_status verify_keys(const char *folder, const char *kind, const json_t *index, mha_error *error);

/* ---- the suites; each returns an exit code for a broken folder, CLI_DONE otherwise ---- */

int verify_attention(cli_session *session, const char *folder, const json_t *index, verify_log *log);
int verify_models(cli_session *session, const char *folder, const json_t *index, verify_log *log);
int verify_seeds(cli_session *session, const char *folder, const json_t *index, verify_log *log);
int verify_ops(cli_session *session, const char *folder, const json_t *index, verify_log *log);
int verify_sentences(cli_session *session, const char *folder, const json_t *index, verify_log *log);
/* `lm`: the folder of the language model that the results speak of; NULL = not given. */
int verify_heads(cli_session *session, const char *folder, const char *lm, const json_t *index, verify_log *log);
/* Every ISA of this CPU (up to --isa) against double precision. */
int verify_self(cli_session *session, verify_log *log);

#endif
