/* text_maps.h - the inputs of `mha report` and `mha draw`: a model, its texts, and the attention maps of one text. */
#ifndef CLI_HEADS_TEXT_MAPS_H
#define CLI_HEADS_TEXT_MAPS_H

#include "input/input.h"

typedef struct text_maps {
    const char *name;   /* the model as named on the command line */
    const char *folder; /* last path component: figures must not show the user's paths */
    mha_model *opened;
    const mha_model *model; /* `opened`, or its image tower if the texts are images */
    mha_heads *heads;       /* maps of `text`; NULL before text_maps_at */
    cli_texts own;          /* texts read by text_maps_open */
    const cli_texts *texts; /* `own`, or the texts of the first model */
    const char *text;
} text_maps;

/* The following functions return an exit code and print any error. Call text_maps_free even after an error. */

/* Reads the texts from the arguments or -f, and opens -m. */
int text_maps_open(cli_session *s, text_maps *h);
/* Opens another model with the texts of `first`, which keeps ownership. */
int text_maps_other(cli_session *s, const char *model, const text_maps *first, text_maps *h);
/* Computes the maps of text i and frees the maps of the previous text. */
int text_maps_at(cli_session *s, text_maps *h, int64_t i);
/* Reads exactly one text, opens -m, and computes the maps of the text. */
int text_maps_measure(cli_session *s, text_maps *h);
void text_maps_free(text_maps *h);

#endif
