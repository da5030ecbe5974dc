/* held_texts.h - texts that heads are chosen and fitted on, and others to judge by: never the same. */
#ifndef CLI_HELD_TEXTS_H
#define CLI_HELD_TEXTS_H

#include "command.h"
#include "input.h"

typedef struct held_texts {
    cli_texts texts, test;
    mha_head_data *learn; /* NULL: nothing is learned */
    mha_head_data *held;  /* NULL: there are none to judge by */
    const char *split;    /* how the two were told apart */
} held_texts;

/* Reads -f and `test` (a file, or NULL), both if they are given: those of `test` are held out, or else every fourth of
 * -f, or all of them if nothing `learns`; without those that are learned from as well, which it says. Returns an exit
 * code; the message has been printed. Free in any case. */
int held_texts_read(cli_session *s, const mha_model *model, const char *test, bool learns, held_texts *t);
void held_texts_free(held_texts *t);

#endif
