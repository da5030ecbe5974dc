/* held_out_texts.h - reads two disjoint lists: learning texts, on which heads are chosen and weights fitted, and
 * held-out texts. */
#ifndef CLI_EDIT_HELD_OUT_TEXTS_H
#define CLI_EDIT_HELD_OUT_TEXTS_H

#include "command.h"
#include "heads/importance_scores.h"
#include "input/input.h"

typedef struct held_texts {
    cli_texts texts, test;
    mha_head_data *learn; /* learning texts; NULL if no texts are used to choose heads or to fit weights */
    mha_head_data *held;  /* held-out texts; NULL if there are no evaluation texts */
    const char *split;    /* how the texts were split, for messages */
} held_texts;

/* Reads -f and `test` (a file, or NULL). The held-out texts are the texts of `test`; without `test`, every fourth text
 * of -f if the command `learns` from texts, otherwise all texts of -f. A held-out text that is also used for learning
 * is removed, with a log line. If `scores` (NULL = none) use --loss pairs, each line of -f is a pair and is not divided
 * between the lists; `learn` then contains all first texts, then all second texts. Returns an exit code and prints any
 * error. The caller must free *t even after an error. */
int held_texts_read(cli_session *s, const mha_model *model, const char *test, bool learns,
                    const importance_scores *scores, held_texts *t);
void held_texts_free(held_texts *t);

#endif
