/* attribution_parts.h - the parts of a logit that `mha attribute` shows: as maps, and ranked by size. */
#ifndef CLI_LENS_ATTRIBUTION_PARTS_H
#define CLI_LENS_ATTRIBUTION_PARTS_H

#include "lens/circuit_map.h"

/* An attribution, and the options of the command. */
typedef struct attribution {
    const mha_model *model;
    cli_sequence prompt;
    mha_logit_attribution_options o;
    mha_logit_attribution *a;
    int by;     /* parts to show: BY_COMPONENT, BY_HEAD or BY_SOURCE */
    int target; /* logit that the parts sum to: an mha_logit_target */
} attribution;

enum { BY_COMPONENT, BY_HEAD, BY_SOURCE };

/* Return what a head writes to the logit: in total, and what it reads from one source token. */
double attribution_head(const attribution *x, int64_t layer, int64_t head);
double attribution_source(const attribution *x, int64_t layer, int64_t head, int64_t token);
/* Returns the number of heads in a layer. */
int64_t attribution_heads(const attribution *x, int64_t layer);

typedef struct attribution_part {
    int64_t layer, head; /* head -1: the feed-forward part of the layer */
    double value;
} attribution_part;

/* Returns all heads and, if `mlps` is set, the feed-forward parts, largest magnitude first; NULL if memory is
 * exhausted. The caller frees the result. */
attribution_part *attribution_rank(const attribution *x, bool mlps, int64_t *count);

/* Returns the parts as a map with one cell per component, head or source token (BY_*); NULL if memory is exhausted. */
json_t *attribution_map(const attribution *x, int by);

#endif
