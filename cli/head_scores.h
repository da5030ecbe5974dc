/* head_scores.h - how much heads matter: the options that `mha heads` and `mha report` share, and what they measure. */
#ifndef CLI_HEAD_SCORES_H
#define CLI_HEAD_SCORES_H

#include <jansson.h>

#include "input.h"

/* Values of the options, as they were given; NULL = not given. */
extern struct head_scores_given {
    char *by, *loss, *probes, *settle, *batch;
} head_scores_given;

#define HEAD_SCORES__TEXT(name, value, help, unit)                        \
    {                                                                     \
        name, 0, POPT_ARG_STRING, &head_scores_given.value, 0, help, unit \
    }
#define HEAD_SCORES_OPTIONS                                                                                  \
    HEAD_SCORES__TEXT("by", by, "measure how much each head matters by SCORE, see below", "SCORE"),          \
        HEAD_SCORES__TEXT("loss", loss, "of scores that need one: lm, mlm (15 % masked), pairs", "LOSS"),    \
        HEAD_SCORES__TEXT("probes", probes, "random vectors of jacobian_probe (default: 4)", "K"),           \
        HEAD_SCORES__TEXT("settle", settle, "stop when halves of the texts rank alike, say 0.95 of 1", "R"), \
        HEAD_SCORES__TEXT("batch", batch, "texts (or pairs) whose loss is one mean (default: all)", "N")

/* The options as the library wants them. */
typedef struct head_scores {
    bool wanted; /* --by was given */
    mha_importance_options how;
} head_scores;

/* Reads the options. Returns an exit code; the message has been printed. */
int head_scores_read(const cli_session *s, head_scores *scores);

/* With the loss of pairs: cuts every text at its tab; the first parts come first, then the second ones. */
int head_scores_pair(const cli_session *s, const head_scores *scores, cli_texts *texts);

/* Scores every head of the model on the data; *out is NULL if that was not asked for. Returns an exit code. */
int head_scores_measure(cli_session *s, const head_scores *scores, const mha_model *model, const mha_head_data *data,
                        mha_importance **out);

/* {by, loss, texts, halves, saturated, values, low, high}, the last three [layers][heads]; a new reference, NULL when
 * memory is short. loss, halves, low and high are null where they have no meaning. */
json_t *head_scores_json(const mha_importance *importance, const mha_heads *heads, mha_head_score by);

/* Their lists under --help. */
void head_scores_put_lists(FILE *out, int columns, int margin);

#endif
