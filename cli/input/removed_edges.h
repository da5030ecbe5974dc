/* removed_edges.h - the attention edges of `mha logits --knockout`, written as on the page of `mha live`. */
#ifndef CLI_INPUT_REMOVED_EDGES_H
#define CLI_INPUT_REMOVED_EDGES_H

#include "command.h"

typedef struct removed_edges {
    mha_attention_edge *list;
    int64_t count;
} removed_edges;

/* Parses WHERE:QUERY-KEY,... for a sequence of `length` tokens: WHERE is LAYER.HEAD, LAYER or all. Returns an exit
 * code; call removed_edges_free even after an error. */
int removed_edges_read(const cli_session *session, const mha_model *model, const char *text, int64_t length,
                       removed_edges *edges);
void removed_edges_free(removed_edges *edges);

#endif
