/* removed_edges.c - see removed_edges.h. */
#include "input/removed_edges.h"

#include "options.h"
#include "output.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Reads a number from 0 to max - 1. Returns the text after it, or NULL. */
static const char *read_index(const char *text, int64_t max, int64_t *index)
{
    char *end;
    if (*text < '0' || *text > '9') return NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    *index = value;
    return errno == 0 && value < max ? end : NULL;
}

/* Reads LAYER.HEAD, LAYER or all. Returns the text after it, or NULL. */
static const char *read_where(const mha_model *model, const char *text, mha_attention_edge *edge)
{
    mha_model_head head;
    const char *end = cli_head(text, &head);
    edge->layer = edge->head = -1;
    if (strncmp(text, "all", 3) == 0) return text + 3;
    if (!end) return read_index(text, mha_model_describe(model)->layers, &edge->layer);
    edge->layer = head.layer;
    edge->head = mha_head_place(model, head.layer, head.head);
    return edge->head < 0 ? NULL : end;
}

/* Reads one edge. Returns the text after it, or NULL. */
static const char *read_edge(const mha_model *model, const char *text, int64_t length, mha_attention_edge *edge)
{
    const char *end = read_where(model, text, edge);
    if (end) end = *end == ':' ? read_index(end + 1, length, &edge->query) : NULL;
    if (end) end = *end == '-' ? read_index(end + 1, length, &edge->key) : NULL;
    return end && (*end == ',' || *end == '\0') ? end : NULL;
}

int removed_edges_read(const cli_session *s, const mha_model *model, const char *text, int64_t length,
                       removed_edges *edges)
{
    *edges = (removed_edges){0};
    if (!text) return CLI_DONE;
    edges->list = calloc(strlen(text) / 4 + 1, sizeof *edges->list);
    if (!edges->list) return cli_error(s, CLI_FAILED, "out of memory for edges");
    for (const char *end; text; text = *end ? end + 1 : NULL) {
        end = read_edge(model, text, length, &edges->list[edges->count]);
        if (!end)
            return cli_usage(
                s,
                "--knockout must be WHERE:QUERY-KEY,... with heads of the model and tokens from 0 to %lld, "
                "such as 1.0:5-3 (got \"%s\")",
                (long long)length - 1, cli_shown_start(text, 40));
        edges->count++;
    }
    return CLI_DONE;
}

void removed_edges_free(removed_edges *edges)
{
    free(edges->list);
    *edges = (removed_edges){0};
}
