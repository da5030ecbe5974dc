/* held_out_texts.h - texts to choose and fit on, and held-out texts to evaluate on: disjoint lists. */
#ifndef CLI_EDIT_HELD_OUT_TEXTS_H
#define CLI_EDIT_HELD_OUT_TEXTS_H

#include "command.h"
#include "heads/importance_scores.h"
#include "input/input.h"

typedef struct held_texts {
    cli_texts texts, test;
    mha_head_data *learn; /* NULL if nothing is chosen or fitted */
    mha_head_data *held;  /* NULL if there are no evaluation texts */
    const char *split;    /* how the texts were split, for messages */
} held_texts;

/* Reads -f and `test` (a file, or NULL). The held-out texts are the texts of `test`, or else every fourth text of
 * -f, or all texts of -f unless the command `learns`. A held-out text that is also learned from is dropped, with a
 * log line. If `scores` (NULL = none) use the loss of pairs, each line of -f is a pair and is split as a whole;
 * `learn` then lists all first texts, then all second texts. Returns an exit code and prints any error. The
 * caller must free *t even after an error. */
int held_texts_read(cli_session *s, const mha_model *model, const char *test, bool learns,
                    const importance_scores *scores, held_texts *t);
void held_texts_free(held_texts *t);

#endif
