/* golden_heads.h - recorded results of the heads workbench, golden/heads: what its parts share.
 *
 * index.json lists the tensors of each file with the limit of each. A part asks for those that it computes, by name,
 * and every one of them is a case. What the index lists and no part of this build has asked for is refused in the end,
 * by its name; a name that nobody knows ends the run. Nothing is known about sentences or model but what folder and
 * checkpoint say.
 */
#ifndef CONFORMANCE_HEADS_GOLDEN_HEADS_H
#define CONFORMANCE_HEADS_GOLDEN_HEADS_H

#include "conformance/golden_folder.h"
#include "mha/heads.h"
#include "mha/importance.h"
#include "mha/model_grads.h"
#include "mha/prune.h"

/* One run over a folder. */
typedef struct heads_run {
    cli_session *session;
    const char *folder, *lm; /* lm: of the language model */
    const json_t *index;
    verify_log *log;
    mha_error *error; /* a fault of the folder; ends the run */
    const mha_model *model;
    const mha_model_info *info;
    verify_memory memory;
    /* The sentences: as text, as tokens padded to one length, and what the whole model makes of them. */
    int64_t count, length;
    const char **texts; /* [count] */
    int32_t *ids;       /* [count, length] */
    uint8_t *mask;      /* [count, length] */
    double *embedding;  /* [count, E] */
    mha_head_data *data;
} heads_run;

/* ---- one recorded file (golden_heads_file.c) ---- */

typedef struct heads_file {
    heads_run *run;
    const char *group;  /* of cases that no part has claimed */
    verify_entry entry; /* of "files" in index.json, with the name of the file */
    mha_file *file;
    verify_memory memory;
    json_t *seen; /* names of tensors that were asked for */
} heads_file;

/* A fault if the index names a file, a tensor or a key that nobody knows. */
void heads_check_names(const heads_run *run);
/* Opens FOLDER/NAME, one of those known, if the index lists it. Close it in any case. */
bool heads_open(heads_file *f, heads_run *run, const char *name);
void heads_close(heads_file *f);
void heads_drop(heads_file *f); /* the same without a word about what was not asked for */

bool heads_has(const heads_file *f, const char *tensor);
/* The numbers of a tensor that the index lists; NULL if it does not, and after a fault. Counts as asked for. */
const double *heads_want(heads_file *f, const char *tensor, int rank, int64_t *shape);
/* The same of one that serves as input. */
int64_t *heads_integers(heads_file *f, const char *tensor, int rank, int64_t *shape);
void *heads_room(heads_file *f, int64_t count, size_t size);
bool heads_ok(const heads_file *f); /* no fault yet */

/* How far a number may be from its record: not at all; as far as its "abs_tolerance" says; or, of records that have
 * none, 1e-6 of the largest number, which is the least that any record allows. */
typedef enum heads_limit { HEADS_EXACT, HEADS_NEAR, HEADS_ROUNDED } heads_limit;

/* The case of one tensor: `count` numbers against `want` (NULL: nothing happens), or, if `failed` has a status, what
 * the library said instead. */
void heads_case(heads_file *f, const char *group, const char *tensor, const double *want, const double *got,
                int64_t count, heads_limit limit, const mha_error *failed);

/* ---- the parts: each compares one file, if the index lists it ---- */

typedef void heads_part(heads_run *run);
/* Part n, those that take little time first; NULL behind the last. */
heads_part *heads_part_at(size_t n);

heads_part heads_statistics; /* golden_heads_stats.c */
heads_part heads_importance; /* golden_heads_gates.c */
heads_part heads_diversity;  /* golden_heads_diversity.c */
heads_part heads_gqa;        /* golden_heads_gqa.c */
heads_part heads_pruning;    /* golden_heads_prune.c */
heads_part heads_layers;     /* golden_heads_layer.c */
heads_part heads_language;   /* golden_heads_lm.c */
heads_part heads_weights;    /* golden_heads_lm.c */
heads_part heads_synthetic;  /* golden_heads_maps.c */

/* ---- what several parts need ---- */

/* What the index says of the rules of labels. */
mha_head_thresholds heads_thresholds(const heads_run *run);
/* The metric of that name; MHA_HEAD_METRICS if there is none. The place of a label's name in "label_names"; -1. */
mha_head_metric heads_metric_of(const char *key);
double heads_place_of(const heads_run *run, mha_head_label label);
/* Statistics, pattern scores, labels, gradients of gates and of projections of one model, in the group of its part. */
void heads_metrics(heads_file *f, const char *group, const mha_model_info *m, const mha_heads *heads,
                   const mha_error *failed);
void heads_patterns(heads_file *f, const char *group, const mha_model_info *m, const mha_heads *heads,
                    const mha_error *failed);
void heads_labels(heads_file *f, const char *group, const mha_model_info *m, const mha_heads *heads,
                  const mha_error *failed);
void heads_gate_gradients(heads_file *f, const char *group, const mha_model_info *m, int64_t count, const float *gates,
                          const mha_error *failed);
void heads_gradmags(heads_file *f, const char *group, const mha_model_info *m, const mha_model_grads *grads,
                    const mha_error *failed);

/* The scores of importance that the file has, and the loss that comes with one (golden_heads_scores.c). */
void heads_scores(heads_file *f, const char *group, const mha_model *model, const mha_head_data *data,
                  mha_head_loss loss);
void heads_loss(heads_file *f, const char *group, const char *tensor, const mha_model *model, const mha_head_data *data,
                const mha_importance_options *options);
/* rollout_N of sentence N (golden_heads_diversity.c). */
void heads_rollout(heads_file *f, const char *tensor, int64_t text);
/* The cosine of each sentence's embedding [count, E] with that of the whole model. */
void heads_cosines(const heads_run *run, const double *embedding, double *out);
/* The unit-length mean over real tokens of each sentence's last hidden state, with factors on heads [layers, count, H]
 * (NULL = ones): out [count, E]. */
mha_status heads_embed(const heads_run *run, const mha_model *model, const float *gates, double *out, mha_error *err);
/* mean |gradient| over the rows of head h of what a layer's q (0), k (1) or v (2) projection has in `list`; NAN if it
 * has none of a known name. Query head h reads the rows of its key head. */
double heads_gradmag(const mha_named_tensor *list, int64_t count, const mha_model_info *info, int64_t layer, int role,
                     int64_t head);

#endif
