/* verify.h - interface shared by the checks of `mha verify`: the log of results.
 *
 * A case passes, fails or is unsupported. It fails if an element differs from its record by more than the tolerance, or
 * if a library call returns an error. MHA_ERR_UNSUPPORTED is not a failure: the case counts as unsupported. A malformed
 * folder ends the run with exit code 3, since it is not a defect of this build.
 */
#ifndef CLI_VERIFY_VERIFY_H
#define CLI_VERIFY_VERIFY_H

#include "command.h"
#include <jansson.h>

/* ---- results (verify_log.c) ---- */

/* State of a case that is being checked. `group` and `name` must remain valid until verify_end. */
typedef struct verify_case {
    const char *group, *name;
    bool refused, broken;
    char reason[1024]; /* why the case is unsupported or failed */
    char tensor[64];   /* the compared tensor with the largest error / limit */
    double error, limit, ratio;
} verify_case;

/* All results of a run; the JSON members are printed by --json. */
typedef struct verify_log {
    int64_t passed, failed, refused;
    double worst; /* largest error / limit of all cases */
    json_t *groups, *failures, *refusals, *worst_case;
    int64_t printed;  /* number of values compared with the digits printed by a walk-through */
    json_t *skipped;  /* {tensor: number of cases} of recorded tensors that this build does not compute */
    json_t *table;    /* {group: {isa: largest error / limit}} from verify_self; otherwise NULL */
    const char *kind; /* kind of the folder; "self" without a folder */
    const char *lm;   /* folder of the language model that golden/heads needs (--lm); NULL = not given */
    bool no_memory;
} verify_log;

void verify_log_open(verify_log *log);
void verify_log_close(verify_log *log);

void verify_begin(verify_case *c, const char *group, const char *name);
/* Compares `count` elements. NaN equals NaN, and infinities of the same sign are equal; the error of any other
 * non-finite element is infinite. */
void verify_compare(verify_case *c, const char *tensor, const float *got, const double *want, int64_t count,
                    double limit);
void verify_compare_reals(verify_case *c, const char *tensor, const double *got, const double *want, int64_t count,
                          double limit);
/* Records an error computed by the caller, for example the number of differing token ids with limit 0. */
void verify_measured(verify_case *c, const char *tensor, double error, double limit);
/* Records a failed library call: the case is unsupported after MHA_ERR_UNSUPPORTED, otherwise failed. */
void verify_stopped(verify_case *c, const mha_error *error);
void verify_end(verify_log *log, const verify_case *c);
/* Records that a tensor of the case is not computed by this build. */
void verify_skip(verify_log *log, const char *tensor);

/* Writes the log as text or JSON and returns the exit code. */
int verify_print(cli_session *session, const verify_log *log, bool strict);

/* ---- memory of a case (verify_memory.c) ---- */

/* A named case: an object of index.json, or NULL in the self-check. `error` keeps the first error, and later reads
 * return zeros, so that callers can check `error` once after several reads. */
typedef struct verify_entry {
    const json_t *object;
    const char *name;
    mha_error *error;
} verify_entry;

/* Memory blocks of one case, which verify_release frees. */
typedef struct verify_memory {
    void *block[1024];
    int count;
} verify_memory;
void *verify_alloc(verify_memory *memory, int64_t count, size_t size,
                   const verify_entry *e); /* returns zeroed memory; NULL on failure */
void verify_release(verify_memory *memory);

/* ---- checks; each returns an exit code ---- */

/* Compares every ISA of this CPU (up to --isa) with a double-precision reference. */
int verify_self(cli_session *session, verify_log *log);
#ifdef MHA_CONFORMANCE
/* Compares this build with the recorded results in `folder`, of any kind (conformance/). */
int verify_golden(cli_session *session, const char *folder, verify_log *log);
#endif

#endif
