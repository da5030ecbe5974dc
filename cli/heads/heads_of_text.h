/* heads_of_text.h - a model, texts, and the maps of all its heads on one of them: what `mha report` and `mha draw`
 * start from. */
#ifndef CLI_HEADS_HEADS_OF_TEXT_H
#define CLI_HEADS_HEADS_OF_TEXT_H

#include "input/input.h"

typedef struct heads_of_text {
    const char *name;   /* of the model, as the user said it */
    const char *folder; /* the last part of that name: for figures, which are shown to others */
    mha_model *model;
    mha_heads *heads;       /* on `text`; NULL before heads_of_text_at */
    cli_texts own;          /* read by heads_of_text_open */
    const cli_texts *texts; /* `own`, or those of another model */
    const char *text;
} heads_of_text;

/* All return an exit code, the message has been printed; heads_of_text_free is called either way. */

/* Reads the texts of the command line (or of -f) and opens -m. */
int heads_of_text_open(cli_session *s, heads_of_text *h);
/* Opens another model on the texts of `first`, which keeps them. */
int heads_of_text_other(cli_session *s, const char *model, const heads_of_text *first, heads_of_text *h);
/* Measures text i; the heads of the text before are freed. */
int heads_of_text_at(cli_session *s, heads_of_text *h, int64_t i);
/* Opens -m with exactly one text, and measures it. */
int heads_of_text_measure(cli_session *s, heads_of_text *h);
void heads_of_text_free(heads_of_text *h);

#endif
