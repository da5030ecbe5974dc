/* verify.h - what the parts of `mha verify` share: the log of outcomes.
 *
 * A case passes, fails or is refused. It fails when one number is further from its record than the limit, or when the
 * library could not do it for a reason other than "not built yet"; then it would be refused. A folder that is itself
 * broken ends the whole run with exit code 3: it says nothing about this build.
 */
#ifndef CLI_VERIFY_VERIFY_H
#define CLI_VERIFY_VERIFY_H

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
    const char *lm;   /* folder of the language model that golden/heads needs (--lm); NULL = not given */
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

/* ---- memory of a case (verify_memory.c) ---- */

/* A named case, or an object of index.json (`object`; NULL in the self-check). Reads after a mistake yield zeros; the
 * first mistake stays in `error`, which callers check once after a group of reads. */
typedef struct verify_entry {
    const json_t *object;
    const char *name;
    mha_error *error;
} verify_entry;

/* Memory of one case, released together. */
typedef struct verify_memory {
    void *block[1024];
    int count;
} verify_memory;
void *verify_alloc(verify_memory *memory, int64_t count, size_t size, const verify_entry *e); /* cleared; NULL fails */
void verify_release(verify_memory *memory);

/* ---- the two checks; each returns an exit code ---- */

/* Every ISA of this CPU (up to --isa) against double precision. */
int verify_self(cli_session *session, verify_log *log);
#ifdef MHA_CONFORMANCE
/* The recorded results in `folder`, whatever kind it is (conformance/). */
int verify_golden(cli_session *session, const char *folder, verify_log *log);
#endif

#endif
