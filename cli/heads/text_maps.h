/* text_maps.h - a model, texts, and the maps of all its heads on one of them: what `mha report` and `mha draw`
 * start from. */
#ifndef CLI_HEADS_TEXT_MAPS_H
#define CLI_HEADS_TEXT_MAPS_H

#include "input/input.h"

typedef struct text_maps {
    const char *name;   /* of the model, as the user said it */
    const char *folder; /* the last part of that name: for figures, which are shown to others */
    mha_model *model;
    mha_heads *heads;       /* on `text`; NULL before text_maps_at */
    cli_texts own;          /* read by text_maps_open */
    const cli_texts *texts; /* `own`, or those of another model */
    const char *text;
} text_maps;

/* All return an exit code, the message has been printed; text_maps_free is called either way. */

/* Reads the texts of the command line (or of -f) and opens -m. */
int text_maps_open(cli_session *s, text_maps *h);
/* Opens another model on the texts of `first`, which keeps them. */
int text_maps_other(cli_session *s, const char *model, const text_maps *first, text_maps *h);
/* Measures text i; the heads of the text before are freed. */
int text_maps_at(cli_session *s, text_maps *h, int64_t i);
/* Opens -m with exactly one text, and measures it. */
int text_maps_measure(cli_session *s, text_maps *h);
void text_maps_free(text_maps *h);

#endif
