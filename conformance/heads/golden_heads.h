/* golden_heads.h - declares functions that the checks of head analysis (golden/heads) share.
 *
 * index.json lists the tensors of each file with their tolerances. A part claims the tensors that it computes by name;
 * each tensor is one case. If a listed tensor is not claimed by any part, the run fails at its end; an unknown name
 * ends the run. Sentences are read from the folder, and models from checkpoints. */
#ifndef CONFORMANCE_HEADS_GOLDEN_HEADS_H
#define CONFORMANCE_HEADS_GOLDEN_HEADS_H

#include "conformance/golden_folder.h"
#include "mha/heads.h"
#include "mha/importance.h"
#include "mha/model_grads.h"
#include "mha/prune.h"

/* State of a run over a golden folder. */
typedef struct heads_run {
    cli_session *session;
    const char *folder, *lm; /* lm: folder of the language model */
    const json_t *index;
    verify_log *log;
    mha_error *error; /* an error in the folder, which ends the run */
    const mha_model *model;
    const mha_model_info *info;
    verify_memory memory;
    /* The sentences: text, tokens padded to one length, and the outputs of the unmodified model. */
    int64_t count, length;
    const char **texts; /* [count] sentences */
    int32_t *ids;       /* [count, length] token ids */
    uint8_t *mask;      /* [count, length] 1 = not padding */
    double *embedding;  /* [count, E] sentence embeddings */
    mha_head_data *data;
} heads_run;

/* ---- one recorded file (golden_heads_file.c) ---- */

typedef struct heads_file {
    heads_run *run;
    const char *group;  /* group of the cases of the file */
    verify_entry entry; /* the file's entry in "files" of index.json */
    mha_file *file;
    verify_memory memory;
    json_t *seen; /* names of claimed tensors */
} heads_file;

/* Stores an error in run->error if the index has an unknown file, tensor or key. */
void heads_check_names(const heads_run *run);
/* Opens FOLDER/NAME, a known file, if the index lists it. The caller must close it, even after a failure. */
bool heads_open(heads_file *f, heads_run *run, const char *name);
void heads_close(heads_file *f);
void heads_drop(heads_file *f); /* closes the file without reporting unclaimed tensors */

bool heads_has(const heads_file *f, const char *tensor);
/* Claims a tensor and returns its elements; NULL if it is not listed, or on error. */
const double *heads_want(heads_file *f, const char *tensor, int rank, int64_t *shape);
/* Claims an input tensor of integers; NULL if it is not listed, or on error. */
int64_t *heads_integers(heads_file *f, const char *tensor, int rank, int64_t *shape);
void *heads_room(heads_file *f, int64_t count, size_t size);
bool heads_ok(const heads_file *f); /* true if no error has occurred */

/* The tolerance of a tensor: 0; its "abs_tolerance"; or, if the index has none, 1e-6 of the largest recorded value. */
typedef enum heads_limit { HEADS_EXACT, HEADS_NEAR, HEADS_ROUNDED } heads_limit;

/* Runs the case of one tensor: compares `count` values with `want`, or reports the library's error if `failed` has one.
 * Does nothing if `want` is NULL. */
void heads_case(heads_file *f, const char *group, const char *tensor, const double *want, const double *got,
                int64_t count, heads_limit limit, const mha_error *failed);

/* ---- parts: each compares one file, if the index lists it ---- */

typedef void heads_part(heads_run *run);

/* A recorded file: its name, the default group of its cases, the part that compares it, and its allowed tensors; "x_*"
 * matches any name that begins with "x_". */
typedef struct heads_known {
    const char *name, *group;
    heads_part *part;
    const char *words;
} heads_known;

extern const heads_known heads_files[]; /* table in golden_heads_recorded_files.c, terminated by a NULL name */

heads_part heads_statistics; /* defined in golden_heads_stats.c */
heads_part heads_importance; /* defined in golden_heads_gates.c */
heads_part heads_diversity;  /* defined in golden_heads_diversity.c */
heads_part heads_gqa;        /* defined in golden_heads_gqa.c */
heads_part heads_pruning;    /* defined in golden_heads_prune.c */
heads_part heads_layers;     /* defined in golden_heads_layer.c */
heads_part heads_language;   /* defined in golden_heads_lm.c */
heads_part heads_weights;    /* defined in golden_heads_lm.c */
heads_part heads_synthetic;  /* defined in golden_heads_maps.c */

/* ---- functions shared by several parts ---- */

/* Returns the label thresholds in the index. */
mha_head_thresholds heads_thresholds(const heads_run *run);
/* Return the metric named `key`, or MHA_HEAD_METRICS if unknown; and the index of a label in "label_names", or -1. */
mha_head_metric heads_metric_of(const char *key);
double heads_place_of(const heads_run *run, mha_head_label label);
/* Compare one model's statistics, pattern scores, labels, and gradients of gates and projections, under the name
 * `group`. */
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

/* Compare the importance scores that the file lists, and the loss recorded with them (golden_heads_scores.c). */
void heads_scores(heads_file *f, const char *group, const mha_model *model, const mha_head_data *data,
                  mha_head_loss loss);
void heads_loss(heads_file *f, const char *group, const char *tensor, const mha_model *model, const mha_head_data *data,
                const mha_importance_options *options);
/* Compares rollout_N, the rollout of sentence N (golden_heads_diversity.c). */
void heads_rollout(heads_file *f, const char *tensor, int64_t text);
/* Computes the cosine between each sentence's embedding [count, E] and the embedding that the unmodified model
 * computes. */
void heads_cosines(const heads_run *run, const double *embedding, double *out);
/* Computes each sentence's embedding with head gates [layers, count, H] (NULL = ones): out [count, E], the
 * L2-normalized mean of the last hidden states without padding. */
mha_status heads_embed(const heads_run *run, const mha_model *model, const float *gates, double *out, mha_error *err);
/* Returns the mean |gradient| over a head's rows in a layer's q (0), k (1) or v (2) projection in `list`; NAN if the
 * projection has no known name. For k and v, these are the rows of the query head's key/value head. */
double heads_gradmag(const mha_named_tensor *list, int64_t count, const mha_model_info *info, int64_t layer, int role,
                     int64_t head);

#endif
