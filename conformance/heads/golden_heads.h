/* golden_heads.h - golden results of head analysis, golden/heads: what its parts share.
 *
 * index.json lists the tensors of each file with their tolerances. A part claims the tensors that it computes by name;
 * each is one case. Listed tensors that no part claims are refused by name at the end; an unknown name ends the run.
 * Everything about sentences and models is read from the folder and the checkpoint. */
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
    const char *folder, *lm; /* lm: the language model */
    const json_t *index;
    verify_log *log;
    mha_error *error; /* an error of the folder; ends the run */
    const mha_model *model;
    const mha_model_info *info;
    verify_memory memory;
    /* The sentences: text, tokens padded to one length, and the outputs of the unmodified model. */
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
    const char *group;  /* number of unclaimed cases */
    verify_entry entry; /* entry of "files" in index.json, with the file name */
    mha_file *file;
    verify_memory memory;
    json_t *seen; /* names of claimed tensors */
} heads_file;

/* Returns an error if the index names an unknown file, tensor or key. */
void heads_check_names(const heads_run *run);
/* Opens FOLDER/NAME if the index lists it; NAME must be a known file. Must be closed even if this fails. */
bool heads_open(heads_file *f, heads_run *run, const char *name);
void heads_close(heads_file *f);
void heads_drop(heads_file *f); /* closes without reporting unclaimed tensors */

bool heads_has(const heads_file *f, const char *tensor);
/* The elements of a listed tensor; NULL if it is not listed, or on error. Claims the tensor. */
const double *heads_want(heads_file *f, const char *tensor, int rank, int64_t *shape);
/* The same for a tensor used as input. */
int64_t *heads_integers(heads_file *f, const char *tensor, int rank, int64_t *shape);
void *heads_room(heads_file *f, int64_t count, size_t size);
bool heads_ok(const heads_file *f); /* no error yet */

/* Tolerance of a recorded value: none; its "abs_tolerance"; or 1e-6 of the largest value if the tensor has none, the
 * least that any tensor allows. */
typedef enum heads_limit { HEADS_EXACT, HEADS_NEAR, HEADS_ROUNDED } heads_limit;

/* The case of one tensor: compares `count` values with `want` (NULL: nothing happens), or reports the library's error
 * if `failed` has a status. */
void heads_case(heads_file *f, const char *group, const char *tensor, const double *want, const double *got,
                int64_t count, heads_limit limit, const mha_error *failed);

/* ---- the parts: each compares one file, if the index lists it ---- */

typedef void heads_part(heads_run *run);

/* A recorded file, the group of its cases unless a part names another, the part that compares it, and its allowed
 * tensors: "x_*" matches any name that begins with "x_". */
typedef struct heads_known {
    const char *name, *group;
    heads_part *part;
    const char *words;
} heads_known;

extern const heads_known heads_files[]; /* golden_heads_parts.c; ends with a name of NULL */

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

/* Reads the thresholds of labels from the index. */
mha_head_thresholds heads_thresholds(const heads_run *run);
/* The metric of that name, or MHA_HEAD_METRICS if unknown; the index of a label in "label_names", or -1. */
mha_head_metric heads_metric_of(const char *key);
double heads_place_of(const heads_run *run, mha_head_label label);
/* Statistics, pattern scores, labels, and gradients of gates and projections of one model, grouped under its part. */
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

/* The importance scores that the file lists, and the loss recorded with them (golden_heads_scores.c). */
void heads_scores(heads_file *f, const char *group, const mha_model *model, const mha_head_data *data,
                  mha_head_loss loss);
void heads_loss(heads_file *f, const char *group, const char *tensor, const mha_model *model, const mha_head_data *data,
                const mha_importance_options *options);
/* rollout_N of sentence N (golden_heads_diversity.c). */
void heads_rollout(heads_file *f, const char *tensor, int64_t text);
/* The cosine of each sentence's embedding [count, E] with that of the unmodified model. */
void heads_cosines(const heads_run *run, const double *embedding, double *out);
/* out [count, E] = each sentence's mean last hidden state without padding, L2-normalized, with head gates [layers,
 * count, H] (NULL = ones). */
mha_status heads_embed(const heads_run *run, const mha_model *model, const float *gates, double *out, mha_error *err);
/* mean |gradient| over the rows of head h in a layer's q (0), k (1) or v (2) projection in `list`; NAN if the
 * projection has no known name. A query head h reads the rows of its key/value head. */
double heads_gradmag(const mha_named_tensor *list, int64_t count, const mha_model_info *info, int64_t layer, int role,
                     int64_t head);

#endif
