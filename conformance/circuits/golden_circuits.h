/* golden_circuits.h - declares functions that the checks of circuit measures (golden/circuits) share.
 *
 * index.json has two kinds of entries: "cases" with a pair of prompts on a model, and "weights" with a model alone.
 * Each entry names a file whose tensors are listed under "files", with their tolerances. A part compares the tensors
 * whose names begin with its prefixes; each tensor is one case of the log. */
#ifndef CONFORMANCE_CIRCUITS_GOLDEN_CIRCUITS_H
#define CONFORMANCE_CIRCUITS_GOLDEN_CIRCUITS_H

#include "conformance/golden_folder.h"

/* A recorded file that is being checked, with its model. */
typedef struct circuits_file {
    cli_session *session;
    verify_log *log;
    verify_entry entry;   /* the entry in "cases" or "weights", and the first error in the folder */
    const json_t *listed; /* the file's entry in "files": tensors with shapes and tolerances */
    const mha_file *file;
    const mha_model *model;
    const mha_model_info *info;
    verify_memory memory;
    json_t *seen; /* names of the tensors that a part has claimed */
    /* Cases only: */
    int64_t length;                   /* tokens of both prompts */
    const int32_t *clean, *corrupted; /* [length] */
    int32_t answer, wrong;
    int64_t position;   /* token where the answer is predicted */
    const float *noise; /* [length, E] added to the word embeddings of the corrupted run, or NULL */
} circuits_file;

/* Returns true if no error in the folder has occurred. */
bool circuits_ok(const circuits_file *f);
bool circuits_has(const circuits_file *f, const char *tensor);
/* Allocates memory that is freed with the file; NULL on failure. */
void *circuits_room(circuits_file *f, int64_t count, size_t size);
/* Claims a tensor that the file lists and returns its elements; NULL if it is not listed, or on error. A shape of -1
 * accepts any dimension and is replaced. */
const double *circuits_want(circuits_file *f, const char *tensor, int rank, int64_t *shape);
int64_t *circuits_integers(circuits_file *f, const char *tensor, int rank, int64_t *shape);
/* Returns "abs_tolerance" of a tensor. */
double circuits_limit(const circuits_file *f, const char *tensor);
/* Compares a listed tensor with `got`, which has its shape, as one case; reports the library's error instead if
 * `failed` has one. Does nothing if the tensor is not listed. */
void circuits_case(circuits_file *f, const char *tensor, int rank, const int64_t *shape, const double *got,
                   const mha_error *failed);

/* Opens and closes a file for an entry; `file` is closed even after a failed call. */
bool circuits_open(circuits_file *f, const char *folder, const json_t *index, mha_file **file);
void circuits_close(circuits_file *f, mha_file *file);

/* ---- parts ---- */

typedef void circuits_check(circuits_file *f);

typedef struct circuits_part {
    const char *prefixes;  /* words; a tensor belongs to the part if its name begins with one of them */
    bool weights;          /* the part checks entries of "weights" instead of "cases" */
    circuits_check *check; /* NULL = this build does not compute these tensors; they are reported as not computed */
} circuits_part;

circuits_check circuits_pair; /* all measures of a pair of prompts except dla and lens (golden_circuits_pair.c) */
/* golden_logits.c and golden_weight_circuits.c */
circuits_check circuits_check_attribution, circuits_check_lens, circuits_check_weights;

extern const circuits_part circuits_parts[]; /* golden_circuits_parts.c; ends with prefixes NULL */

#endif
