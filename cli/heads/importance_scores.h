/* importance_scores.h - how much heads matter: options that `mha heads`, `report`, `prune` and `regroup` share. */
#ifndef CLI_HEADS_IMPORTANCE_SCORES_H
#define CLI_HEADS_IMPORTANCE_SCORES_H

#include <jansson.h>

#include "input/input.h"

/* Values of the options, as they were given; NULL = not given. */
extern struct importance_scores_given {
    char *by, *loss, *probes, *settle, *batch, *state, *file;
} importance_scores_given;

#define IMPORTANCE_SCORES__TEXT(name, value, help, unit)                        \
    {                                                                           \
        name, 0, POPT_ARG_STRING, &importance_scores_given.value, 0, help, unit \
    }
#define IMPORTANCE_SCORES_OPTIONS \
    IMPORTANCE_SCORES_OPTIONS_FOR("measure how much each head matters by SCORE, see below")
/* Commands that use the scores take those of a file as well. */
#define IMPORTANCE_SCORES_FILE \
    IMPORTANCE_SCORES__TEXT("scores", file, "scores that mha heads --by wrote: --json or --csv", "FILE")
#define IMPORTANCE_SCORES_OPTIONS_FOR(help)                                                                            \
    IMPORTANCE_SCORES__TEXT("by", by, help, "SCORE"),                                                                  \
        IMPORTANCE_SCORES__TEXT("loss", loss, "of scores that need one: lm, mlm (15 % masked), pairs", "LOSS"),        \
        IMPORTANCE_SCORES__TEXT("probes", probes, "random vectors of jacobian_probe (default: 4)", "K"),               \
        IMPORTANCE_SCORES__TEXT("settle", settle,                                                                      \
                                "stop when two halves of the texts rank heads alike: correlation, such as 0.95", "R"), \
        IMPORTANCE_SCORES__TEXT("batch", batch, "texts (or pairs) whose loss is one mean (default: all)", "N"),        \
        IMPORTANCE_SCORES__TEXT("state", state, "save the measurement in FILE; resume from it", "FILE")

/* The options as the library wants them. */
typedef struct importance_scores {
    bool wanted;      /* --by was given */
    const char *file; /* of --scores; NULL = none */
    mha_importance_options how;
} importance_scores;

/* Reads the options. Returns an exit code; the message has been printed. */
int importance_scores_read(const cli_session *s, importance_scores *scores);

bool importance_scores_use_pairs(const importance_scores *scores);
/* With the loss of pairs: cuts every text at its tab; the first parts come first, then the second ones. A text without
 * a tab is refused, unless the texts are `not_scored`. */
int importance_scores_pair(const cli_session *s, const importance_scores *scores, bool not_scored, cli_texts *texts);

/* --state FILE names one run; each measure of it has a file of its own, FILE.WORD, say FILE.gate; the second model of a
 * comparison (`model` = 1) FILE.2.WORD. */
typedef struct head_state {
    char path[4096];
} head_state;
enum { HEAD_STATE_WORD = 32 }; /* bytes of a word, at most */
/* NULL without --state. */
const char *head_state_path(int model, const char *word, head_state *memory);

/* Scores every head of the model (number `number`, as above) on the data; *out is NULL if that was not asked for.
 * Returns an exit code. */
int importance_scores_measure(cli_session *s, const importance_scores *scores, const mha_model *model, int number,
                              const mha_head_data *data, mha_importance **out);

/* For commands that use the scores, of --by or --scores: were any given; are texts needed to measure them; where they
 * come from, in words for a record. */
bool importance_scores_given_any(const importance_scores *scores);
bool importance_scores_need_texts(const importance_scores *scores);
/* A sentence where the scores are those of a file, in `text`: the texts that they were measured on are unknown. NULL
 * otherwise. */
enum { IMPORTANCE_SCORES_UNKNOWN = 640 };
const char *importance_scores_unknown(const importance_scores *scores, char text[IMPORTANCE_SCORES_UNKNOWN]);
const char *importance_scores_source(const importance_scores *scores);
/* Fills values [layers, H] with them: those of a file, or measured on the data, to the digits that a file has. */
int importance_scores_values(cli_session *s, const importance_scores *scores, const mha_model *model,
                             const mha_head_data *data, double *values);

/* {by, loss, texts, halves, saturated, values, low, high}, the last three [layers][heads]; a new reference, NULL when
 * memory is short. loss, halves, low and high are null where they have no meaning. */
json_t *importance_scores_json(const mha_importance *importance, const mha_heads *heads, mha_importance_score by);

/* Their lists under --help. */
void importance_scores_put_lists(FILE *out, int columns, int margin);

#endif
