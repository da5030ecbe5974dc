/* head_scores.h - how much heads matter: the options that `mha heads` and `mha report` share, and what they measure. */
#ifndef CLI_HEADS_HEAD_SCORES_H
#define CLI_HEADS_HEAD_SCORES_H

#include <jansson.h>

#include "input/input.h"

/* Values of the options, as they were given; NULL = not given. */
extern struct head_scores_given {
    char *by, *loss, *probes, *settle, *batch, *state, *file;
} head_scores_given;

#define HEAD_SCORES__TEXT(name, value, help, unit)                        \
    {                                                                     \
        name, 0, POPT_ARG_STRING, &head_scores_given.value, 0, help, unit \
    }
#define HEAD_SCORES_OPTIONS HEAD_SCORES_OPTIONS_FOR("measure how much each head matters by SCORE, see below")
/* Commands that use the scores take those of a file as well. */
#define HEAD_SCORES_FILE HEAD_SCORES__TEXT("scores", file, "scores that mha heads --by wrote: --json or --csv", "FILE")
#define HEAD_SCORES_OPTIONS_FOR(help)                                                                        \
    HEAD_SCORES__TEXT("by", by, help, "SCORE"),                                                              \
        HEAD_SCORES__TEXT("loss", loss, "of scores that need one: lm, mlm (15 % masked), pairs", "LOSS"),    \
        HEAD_SCORES__TEXT("probes", probes, "random vectors of jacobian_probe (default: 4)", "K"),           \
        HEAD_SCORES__TEXT("settle", settle, "stop when halves of the texts rank alike, say 0.95 of 1", "R"), \
        HEAD_SCORES__TEXT("batch", batch, "texts (or pairs) whose loss is one mean (default: all)", "N"),    \
        HEAD_SCORES__TEXT("state", state, "keep what has been measured in FILE; go on from it", "FILE")

/* The options as the library wants them. */
typedef struct head_scores {
    bool wanted;      /* --by was given */
    const char *file; /* of --scores; NULL = none */
    mha_importance_options how;
} head_scores;

/* Reads the options. Returns an exit code; the message has been printed. */
int head_scores_read(const cli_session *s, head_scores *scores);

bool head_scores_use_pairs(const head_scores *scores);
/* With the loss of pairs: cuts every text at its tab; the first parts come first, then the second ones. A text without
 * a tab is refused, unless the texts are `not_scored`. */
int head_scores_pair(const cli_session *s, const head_scores *scores, bool not_scored, cli_texts *texts);

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
int head_scores_measure(cli_session *s, const head_scores *scores, const mha_model *model, int number,
                        const mha_head_data *data, mha_importance **out);

/* For commands that use the scores, of --by or --scores: were any given; are texts needed to measure them; where they
 * come from, in words for a record. */
bool head_scores_given_any(const head_scores *scores);
bool head_scores_need_texts(const head_scores *scores);
/* A sentence where the scores are those of a file, in `text`: the texts that they were measured on are unknown. NULL
 * otherwise. */
enum { HEAD_SCORES_UNKNOWN = 640 };
const char *head_scores_unknown(const head_scores *scores, char text[HEAD_SCORES_UNKNOWN]);
const char *head_scores_source(const head_scores *scores);
/* Fills values [layers, H] with them: those of a file, or measured on the data, to the digits that a file has. */
int head_scores_values(cli_session *s, const head_scores *scores, const mha_model *model, const mha_head_data *data,
                       double *values);

/* {by, loss, texts, halves, saturated, values, low, high}, the last three [layers][heads]; a new reference, NULL when
 * memory is short. loss, halves, low and high are null where they have no meaning. */
json_t *head_scores_json(const mha_importance *importance, const mha_heads *heads, mha_head_score by);

/* Their lists under --help. */
void head_scores_put_lists(FILE *out, int columns, int margin);

#endif
