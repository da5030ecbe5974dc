/* held_out_texts.h - texts that heads are chosen and fitted on, and others to judge by: never the same. */
#ifndef CLI_EDIT_HELD_OUT_TEXTS_H
#define CLI_EDIT_HELD_OUT_TEXTS_H

#include "command.h"
#include "heads/importance_scores.h"
#include "input/input.h"

typedef struct held_texts {
    cli_texts texts, test;
    mha_head_data *learn; /* NULL: nothing is learned */
    mha_head_data *held;  /* NULL: there are none to judge by */
    const char *split;    /* how the two were told apart */
} held_texts;

/* Reads -f and `test` (a file, or NULL), both if they are given: those of `test` are held out, or else every fourth of
 * -f, or all of them if nothing `learns`; without those that are learned from as well, which it says. With `scores`
 * (NULL = none) by the loss of pairs each line of -f is a pair, of which neither text is held out without the other:
 * there are the first texts to learn from, then the second ones. Returns an exit code; the message has been printed.
 * Free in any case. */
int held_texts_read(cli_session *s, const mha_model *model, const char *test, bool learns,
                    const importance_scores *scores, held_texts *t);
void held_texts_free(held_texts *t);

#endif
