/* demo_copy.h - how well a decoder says something again, with all of its heads and without some of them. */
#ifndef CLI_DEMO_COPY_H
#define CLI_DEMO_COPY_H

#include "command.h"

/* A text that ends with a second copy of some of its words. */
typedef struct demo_copy {
    const mha_model *model;
    const mha_heads *heads; /* measured on the text, with maps */
    int64_t again;          /* the token that the second copy begins with */
} demo_copy;

/* A table: the chance of the right token in the second copy, with all heads, without the induction heads, without those
 * that look at the token before, and without the others beside the induction heads. Returns an exit code. */
int demo_copy_show(cli_session *session, const demo_copy *copy, int indent);

#endif
