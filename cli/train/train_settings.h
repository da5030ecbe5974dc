/* train_settings.h - the settings of a training run. Each row is an option of the command line, a key of --config, and
 * a key of the training.json in the checkpoint. */
#ifndef CLI_TRAIN_TRAIN_SETTINGS_H
#define CLI_TRAIN_TRAIN_SETTINGS_H

#include "command.h"
#include <jansson.h>

/* Settings in the groups of --help. X(kind, field, letter, option, min, max, help, value); the JSON key is the name of
 * the field. A setting that is not given is NULL, -1 or NaN until train_settings_check, _fit_model, _fit_data,
 * _fit_gates or _fit_teacher sets its default. */

/* Settings of the model. */
#define TRAIN_SETTINGS_MODEL(X)                                                                                  \
    X(TEXT, from, 0, "from", 0, 0, "train this checkpoint: a folder, minilm or builtin", "MODEL")                \
    X(SHAPE, shape, 0, "shape", 0, 0, "train a new model: FAMILY:LAYERSxHEADSxWIDTH, or a config.json", "SHAPE") \
    X(TEXT, tokenizer, 0, "tokenizer", 0, 0, "tokenizer of a new model: a folder with tokenizer.json", "FOLDER") \
    X(WHOLE, vocab, 0, "vocab", 1, INT32_MAX, "vocabulary size of a new model (default: the tokenizer's)", "N")
/* Settings of the training data. */
#define TRAIN_SETTINGS_DATA(X)                                                                                      \
    X(PATHS, file, 'f', "file", 0, 0, "train on the texts in FILE (- for stdin); further arguments are also files", \
      "FILE")                                                                                                       \
    X(PATHS, tokens, 0, "tokens", 0, 0, "train on token ids: .npy, or .bin of 16-bit ids", "FILE")                  \
    X(TEXT, documents, 0, "documents", 0, 0, "each text is a line (default), paragraph, or whole file", "HOW")      \
    X(TEXT, end_token, 0, "end-token", 0, 0, "token appended to each text (default: the model's)", "TOKEN")         \
    X(WHOLE, length, 0, "length", 2, 1 << 24, "tokens per sequence (default: 128, or the model's maximum)", "N")    \
    X(NUMBER, mask, 0, "mask", 1e-6, 1, "encoders: fraction of the tokens to predict (default: 0.15)", "X")
/* Settings of batches and steps. */
#define TRAIN_SETTINGS_STEPS(X)                                                                                 \
    X(WHOLE, batch, 0, "batch", 1, 1 << 20, "sequences per batch (default: 8)", "N")                            \
    X(WHOLE, accumulate, 0, "accumulate", 1, 1 << 20, "batches per step (default: --workers)", "N")             \
    X(WHOLE, workers, 0, "workers", 1, 1 << 20,                                                                 \
      "virtual workers, which mha-mpi divides among processes: 1 (default), 2, 4, 8 ...", "V")                  \
    X(TEXT, reduce, 0, "reduce", 0, 0,                                                                          \
      "gradient summation in mha-mpi: tree (default; same result for any number of processes) or fast", "HOW")  \
    X(WHOLE, steps, 0, "steps", 1, 1LL << 40, "total number of steps", "N")                                     \
    X(NUMBER, epochs, 0, "epochs", 1e-6, 1e9, "passes over the data, instead of --steps (default: 1)", "X")     \
    X(WHOLE, seed, 's', "seed", 0, 1LL << 62,                                                                   \
      "random seed of weights, order, masks, dropout and samples (default: 0)", "SEED")                         \
    X(TEXT, dtype, 0, "dtype", 0, 0, "type of matrix products: f32 (default) or bf16; weights are f32", "TYPE") \
    X(FLAG, recompute, 0, "recompute", 0, 0, "recompute activations: less memory, about 25 % more computation", NULL)
/* Settings of the optimizer. */
#define TRAIN_SETTINGS_ADAMW(X)                                                                                  \
    X(NUMBER, rate, 0, "rate", 1e-12, 1e6, "peak learning rate (default: 0.001, or 0.00005 with --from)", "X")   \
    X(WHOLE, warmup, 0, "warmup", 0, 1LL << 40, "warm-up steps (default: 1/50 of all steps)", "N")               \
    X(TEXT, schedule, 0, "schedule", 0, 0, "schedule after the warm-up: cosine (default) or constant", "HOW")    \
    X(NUMBER, floor, 0, "floor", 0, 1e6, "final learning rate of the cosine schedule (default: rate / 10)", "X") \
    X(NUMBER, decay, 0, "decay", 0, 1e6, "weight decay (default: 0.1)", "X")                                     \
    X(TEXT, decays, 0, "decays", 0, 0, "parameters with weight decay: matrices (default), dense, all", "WHAT")   \
    X(NUMBER, beta1, 0, "beta1", 1e-9, 1 - 1e-9, "AdamW: decay of the first moment (default: 0.9)", "X")         \
    X(NUMBER, beta2, 0, "beta2", 1e-9, 1 - 1e-9, "AdamW: decay of the second moment (default: 0.95)", "X")       \
    X(TEXT, moments, 0, "moments", 0, 0, "type of the stored moments: f32 (default) or bf16", "TYPE")            \
    X(NUMBER, clip, 0, "clip", 0, 1e30, "clip gradients to this norm; 0 = do not clip (default: 1)", "X")        \
    X(TEXTS, freeze, 0, "freeze", 0, 0, "do not train tensors of this name, \"*end\" or \"begin*\"", "NAME")
/* Settings of dropout. */
#define TRAIN_SETTINGS_DROPOUT(X)                                                                                     \
    X(NUMBER, dropout, 0, "dropout", 0, 0.99, "dropout rate of the three options below (default: 0)", "P")            \
    X(NUMBER, embedding_dropout, 0, "embedding-dropout", 0, 0.99, "embedding dropout rate (default: --dropout)", "P") \
    X(NUMBER, attention_dropout, 0, "attention-dropout", 0, 0.99, "attention dropout rate (default: --dropout)", "P") \
    X(NUMBER, residual_dropout, 0, "residual-dropout", 0, 0.99,                                                       \
      "dropout rate of outputs added to the residual stream (default: --dropout)", "P")
/* Settings of gates, which prune heads. */
#define TRAIN_SETTINGS_GATES(X)                                                                                       \
    X(TEXT, gates, 0, "gates", 0, 0, "prune heads during training with learned gates: l0 or l1", "KIND")              \
    X(WHOLE, heads, 0, "heads", 1, 1 << 20, "number of heads that stay open (default: determined by --gate-penalty)", \
      "N")                                                                                                            \
    X(NUMBER, gate_penalty, 0, "gate-penalty", 1e-8, 1e3,                                                             \
      "penalty per open head; with l1 and --heads, the initial penalty (default: 0.01)", "X")                         \
    X(NUMBER, gate_rate, 0, "gate-rate", 1e-8, 1e3, "learning rate of the gates (default: 0.1)", "X")                 \
    X(WHOLE, gates_start, 0, "gates-start", 0, 1LL << 40,                                                             \
      "step after which gates are trained (default: the steps already taken)", "N")                                   \
    X(WHOLE, gates_end, 0, "gates-end", 1, 1LL << 40,                                                                 \
      "step after which gates are frozen (default: a quarter of the remaining steps)", "N")                           \
    X(FLAG, gates_together, 0, "gates-together", 0, 0, "train weights and gates together (default: first the gates)", \
      NULL)                                                                                                           \
    X(FLAG, gates_only, 0, "gates-only", 0, 0, "train only the gates; weights are frozen", NULL)
/* Settings of distillation. */
#define TRAIN_SETTINGS_TEACHER(X)                                                                                    \
    X(TEXT, teacher, 0, "teacher", 0, 0, "train on the outputs of this model: a folder, minilm or builtin", "MODEL") \
    X(NUMBER, teacher_temperature, 0, "teacher-temperature", 1e-3, 1e3,                                              \
      "temperature of both models' logits (default: 2)", "X")                                                        \
    X(NUMBER, label_weight, 0, "label-weight", 0, 1e6, "weight of the labels' cross-entropy (default: 0.5)", "X")    \
    X(NUMBER, logit_weight, 0, "logit-weight", 0, 1e6,                                                               \
      "weight of the divergence from the teacher's logits (default: 0.5)", "X")                                      \
    X(NUMBER, state_weight, 0, "state-weight", 0, 1e6,                                                               \
      "weight of the squared difference between the last hidden states (default without logits: 1)", "X")            \
    X(NUMBER, text_weight, 0, "text-weight", 0, 1e6, "weight of 1 - cosine of the text embeddings (default: 0)", "X")
/* Settings of evaluation and samples. */
#define TRAIN_SETTINGS_WATCH(X)                                                                                     \
    X(PATHS, eval, 0, "eval", 0, 0, "measure the loss on this held-out file, of the same kind as the data", "FILE") \
    X(NUMBER, eval_share, 0, "eval-share", 0, 0.9,                                                                  \
      "hold out this fraction of the data, at its end, to measure the loss", "X")                                   \
    X(WHOLE, eval_every, 0, "eval-every", 1, 1LL << 40, "evaluation interval (default: --save-every)", "N")         \
    X(WHOLE, eval_sequences, 0, "eval-sequences", 1, 1LL << 40, "sequences per evaluation (default: 512, or all)",  \
      "N")                                                                                                          \
    X(TEXTS, sample, 0, "sample", 0, 0, "sample continuations of this text (decoders); may be repeated", "TEXT")    \
    X(WHOLE, sample_every, 0, "sample-every", 1, 1LL << 40, "steps between samples (default: --save-every)", "N")   \
    X(WHOLE, sample_tokens, 0, "sample-tokens", 1, 1 << 20, "tokens per sample (default: 40)", "N")                 \
    X(NUMBER, temperature, 0, "temperature", 0, 1e6, "temperature of samples, 0 = greedy (default: 0.8)", "X")
/* Settings of checkpoints, export and log. */
#define TRAIN_SETTINGS_KEEP(X)                                                                                       \
    X(WHOLE, save_every, 0, "save-every", 1, 1LL << 40,                                                              \
      "steps between checkpoints (default: a tenth of all steps, at most 1000)", "N")                                \
    X(WHOLE, keep, 0, "keep", 0, 1 << 20, "older checkpoints to keep, as FOLDER.step-STEP (default: none)", "N")     \
    X(PATH, export, 0, "export", 0, 0, "at the end, also write the model without training state", "FOLDER")          \
    X(TEXT, export_dtype, 0, "export-dtype", 0, 0, "type of the exported weights: bf16 (default), f16, f32", "TYPE") \
    X(PATH, log, 0, "log", 0, 0, "also write the log to this file: .jsonl or .csv", "FILE")
/* All settings. */
#define TRAIN_SETTINGS_MAP(X) \
    TRAIN_SETTINGS_MODEL(X)   \
    TRAIN_SETTINGS_DATA(X)    \
    TRAIN_SETTINGS_STEPS(X)   \
    TRAIN_SETTINGS_ADAMW(X)   \
    TRAIN_SETTINGS_DROPOUT(X) \
    TRAIN_SETTINGS_GATES(X)   \
    TRAIN_SETTINGS_TEACHER(X) \
    TRAIN_SETTINGS_WATCH(X)   \
    TRAIN_SETTINGS_KEEP(X)

typedef struct train_list {
    char **item; /* [count] values */
    int count;
} train_list;

/* C types of the settings of each kind. */
#define TRAIN_VALUE_TEXT char *
#define TRAIN_VALUE_SHAPE char * /* if set from a JSON object, the text of the object, which begins with { */
#define TRAIN_VALUE_PATH char *  /* an output: an absolute path, so that the run can be resumed from any folder */
#define TRAIN_VALUE_TEXTS train_list
#define TRAIN_VALUE_PATHS train_list
#define TRAIN_VALUE_WHOLE long long
#define TRAIN_VALUE_NUMBER double
#define TRAIN_VALUE_FLAG bool

/* Settings whose defaults depend on other settings. --resume may change these other settings. */
enum { TRAIN_FLOOR, TRAIN_WARMUP, TRAIN_GATES_END, TRAIN_FOLLOWERS };

typedef struct train_settings {
#define X(kind, field, letter, option, min, max, help, value) TRAIN_VALUE_##kind field;
    TRAIN_SETTINGS_MAP(X)
#undef X
    bool follows[TRAIN_FOLLOWERS]; /* true if the value is a default derived from --rate or --steps */
    bool names_data, names_eval,
        names_teacher; /* true if named on the command line or in --config, not only in training.json */
} train_settings;

/* C types that popt stores for settings. */
#define TRAIN_GIVEN_TEXT const char *
#define TRAIN_GIVEN_SHAPE const char *
#define TRAIN_GIVEN_PATH const char *
#define TRAIN_GIVEN_TEXTS const char **
#define TRAIN_GIVEN_PATHS const char **
#define TRAIN_GIVEN_WHOLE const char *
#define TRAIN_GIVEN_NUMBER const char *
#define TRAIN_GIVEN_FLAG int

extern struct train_given {
#define X(kind, field, letter, option, min, max, help, value) TRAIN_GIVEN_##kind field;
    TRAIN_SETTINGS_MAP(X)
#undef X
    const char *config;
    int resume;
} train_given;

/* The rows of the option table. */
#define TRAIN_ARG_TEXT POPT_ARG_STRING
#define TRAIN_ARG_SHAPE POPT_ARG_STRING
#define TRAIN_ARG_PATH POPT_ARG_STRING, .val = CLI_OUTPUT
#define TRAIN_ARG_TEXTS POPT_ARG_ARGV
#define TRAIN_ARG_PATHS POPT_ARG_ARGV
#define TRAIN_ARG_WHOLE POPT_ARG_STRING
#define TRAIN_ARG_NUMBER POPT_ARG_STRING
#define TRAIN_ARG_FLAG POPT_ARG_NONE
#define TRAIN_SETTINGS_OPTION(kind, field, letter, option, min, max, help, text) \
    {.longName = option,                                                         \
     .shortName = letter,                                                        \
     .arg = &train_given.field,                                                  \
     .argInfo = TRAIN_ARG_##kind,                                                \
     .descrip = help,                                                            \
     .argDescrip = text},

/* Checks the settings, and sets the defaults that depend on neither model nor data. */
int train_settings_check(const cli_session *s, train_settings *t);
/* Checks that all strings are UTF-8, as JSON requires. */
int train_settings_check_texts(const cli_session *s, const train_settings *t);
/* Set the defaults that depend on the model and the teacher (NULL = none), and on the number of sequences. */
int train_settings_fit_model(const cli_session *s, train_settings *t, const mha_model_info *info,
                             const mha_model_info *teacher);
int train_settings_fit_data(const cli_session *s, train_settings *t, int64_t sequences);
/* Settings of gates: the functions check them, set the defaults of start and end, and return them as library options
 * (train_gates.c). */
int train_settings_check_gates(const cli_session *s, const train_settings *t);
int train_settings_fit_gates(const cli_session *s, train_settings *t);
mha_train_gates train_settings_gates_of(const train_settings *t);
/* The first function returns the keys of settings with derived defaults, for training.json; the second marks the
 * settings with these keys as not given. */
json_t *train_settings_following(const train_settings *t);
void train_settings_unset(train_settings *t, const json_t *keys);
/* Returns `given` (the value of --save-every, --eval-every or --sample-every) if it is greater than 0; otherwise the
 * value of --save-every if set, or a default that depends on the number of steps. */
long long train_settings_every(const train_settings *t, long long given);
/* Settings of a teacher: the functions check them, set the default weights (`logits`: both models have logits), return
 * whether labels are needed, and return the settings as library options (train_teacher.c). */
int train_settings_check_teacher(const cli_session *s, const train_settings *t);
void train_settings_fit_teacher(train_settings *t, bool logits);
bool train_settings_labels(const train_settings *t);
mha_model_distill train_settings_distill_of(const train_settings *t);
/* Returns the number of virtual workers; 1 unless given. */
long long train_settings_workers(const train_settings *t);
/* Returns the settings as library options, except for the teacher; `t` must outlive the result. */
mha_train_options train_settings_options_of(const train_settings *t);

/* Marks all settings as not given. */
void train_settings_none(train_settings *t);
/* The next three functions set settings in *t and return an exit code. The caller must free *t even after an error. */
/* Parses settings from a JSON object; `name` is its file, for messages. */
int train_settings_take(const cli_session *s, const char *name, const json_t *object, train_settings *t);
/* Parses the file of --config. */
int train_settings_load(const cli_session *s, const char *path, train_settings *t);
/* Parses the command line, including -m and arguments. */
int train_settings_take_options(const cli_session *s, train_settings *t);
/* Returns all given settings as an object; NULL if memory is exhausted. */
json_t *train_settings_json(const train_settings *t);
void train_settings_free(train_settings *t);
/* Frees the lists allocated by popt. */
void train_settings_free_options(void);

#endif
