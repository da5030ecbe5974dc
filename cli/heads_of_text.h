/* heads_of_text.h - a model, one text, and the maps of all its heads: what `mha report` and `mha draw` start from. */
#ifndef CLI_HEADS_OF_TEXT_H
#define CLI_HEADS_OF_TEXT_H

#include "input.h"

typedef struct heads_of_text {
    const char *name;   /* of the model, as the user said it */
    const char *folder; /* the last part of that name: for figures, which are shown to others */
    mha_model *model;
    mha_heads *heads;
    cli_texts texts;
    const char *text;
} heads_of_text;

/* Opens -m, takes the one text of the command line (or of -f) and measures. Returns an exit code, the message has been
 * printed; heads_of_text_free is called either way. */
int heads_of_text_measure(cli_session *s, heads_of_text *h);
/* The same for another model on the same text, with its own tokens; `first` keeps the text. */
int heads_of_text_again(cli_session *s, const char *model, const heads_of_text *first, heads_of_text *h);
void heads_of_text_free(heads_of_text *h);

#endif
