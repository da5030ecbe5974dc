/* importance_scores.h - importance scores of heads: options shared by `mha heads`, `report`, `prune` and `regroup`. */
#ifndef CLI_HEADS_IMPORTANCE_SCORES_H
#define CLI_HEADS_IMPORTANCE_SCORES_H

#include "heads/state_path.h"
#include "input/head_part.h"
#include "input/input.h"
#include <jansson.h>

/* Values of the options as given; NULL if absent. */
extern struct importance_scores_given {
    char *by, *loss, *probes, *settle, *batch, *file;
} importance_scores_given;

#define IMPORTANCE_SCORES__TEXT(name, value, help, unit)                        \
    {                                                                           \
        name, 0, POPT_ARG_STRING, &importance_scores_given.value, 0, help, unit \
    }
#define IMPORTANCE_SCORES_OPTIONS \
    IMPORTANCE_SCORES_OPTIONS_FOR("measure the importance of each head by SCORE, see below")
/* Option of the commands that can also read scores from a file. */
#define IMPORTANCE_SCORES_FILE \
    IMPORTANCE_SCORES__TEXT("scores", file, "read scores from the output of mha heads --by", "FILE")
#define IMPORTANCE_SCORES_OPTIONS_FOR(help)                                                                           \
    IMPORTANCE_SCORES__TEXT("by", by, help, "SCORE"),                                                                 \
        IMPORTANCE_SCORES__TEXT("loss", loss, "loss for scores that need one: lm, mlm (15 % masked), pairs", "LOSS"), \
        IMPORTANCE_SCORES__TEXT("probes", probes, "number of random vectors of jacobian_probe (default: 4)", "K"),    \
        IMPORTANCE_SCORES__TEXT("settle", settle,                                                                     \
                                "stop at rank correlation R between two halves of the texts, for example 0.95", "R"), \
        IMPORTANCE_SCORES__TEXT("batch", batch, "texts (or pairs) per loss and gradient (default: all)", "N"),        \
        STATE_PATH_OPTION("save the state of the measurement in FILE; resume from it")

/* The parsed options. */
typedef struct importance_scores {
    bool wanted;      /* true if --by was given */
    const char *file; /* value of --scores; NULL if absent */
    mha_importance_options how;
} importance_scores;

/* Parses importance_scores_given. Returns an exit code and prints any error. */
int importance_scores_read(const cli_session *s, importance_scores *scores);
/* Returns CLI_USAGE and prints a message if --state is given without --by, for commands that save only scores. */
int importance_scores_check_state(const cli_session *s);

/* Returns true if processes can divide the measurement. With --settle they cannot, because each step then depends on
 * all earlier steps. */
bool importance_scores_divide(void);

/* Returns true if each text is a pair, that is, if --by or --scores is given with --loss pairs. */
bool importance_scores_use_pairs(const importance_scores *scores);
/* If each text is a pair: splits every text at its tab and replaces `texts` with all first parts, then all second
 * parts. A text without a tab is an error, unless the texts are `not_scored`. */
int importance_scores_pair(const cli_session *s, const importance_scores *scores, bool not_scored, cli_texts *texts);

/* Scores every head on the data; `number` is the model number of state_path_of. *out is NULL without --by.
 * Returns an exit code. */
int importance_scores_measure(cli_session *s, const importance_scores *scores, const mha_model *model, int number,
                              const mha_head_data *data, mha_importance **out);
/* With --by, also measures the statistics of all heads, if possible in the same passes. Free *heads also after a
 * failure. */
int importance_scores_with_heads(cli_session *s, const importance_scores *scores, const mha_model *model, int number,
                                 const mha_head_data *data, const mha_heads_options *heads_how, mha_importance **out,
                                 mha_heads **heads);

/* Returns true if --by or --scores is given. */
bool importance_scores_given_any(const importance_scores *scores);
/* Returns true if texts are required to measure the scores. */
bool importance_scores_need_texts(const importance_scores *scores);
/* If the scores are read from a file, writes a warning to `text` that its texts are unknown, and returns the warning;
 * otherwise returns NULL. */
enum { IMPORTANCE_SCORES_UNKNOWN = 640 };
const char *importance_scores_unknown(const importance_scores *scores, char text[IMPORTANCE_SCORES_UNKNOWN]);
/* Returns the source of the scores for messages: the file of --scores, or the score of --by. */
const char *importance_scores_source(const importance_scores *scores);
/* Reads the values [layers, H] of all parts of a model from the file of --scores, or measures them on the data and
 * rounds them as `mha heads` does when it prints them. The values of the parts follow each other. */
int importance_scores_values(cli_session *s, const importance_scores *scores, const head_part *parts, int count,
                             const mha_head_data *data, double *values);

/* Returns {by, loss, texts, halves, saturated, values, low, high}, the last three [layers][heads], as a new reference;
 * NULL if memory is exhausted. Undefined values of loss, halves, low and high are null. */
json_t *importance_scores_json(const mha_importance *importance, const mha_heads *heads, mha_importance_score by);

/* Prints the list of scores for --help. */
void importance_scores_put_lists(FILE *out, int columns, int margin);

#endif
