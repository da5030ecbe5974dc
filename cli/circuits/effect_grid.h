/* effect_grid.h - results of an intervention for every part of a model, over one or several pairs of prompts:
 * collecting, and printing as a grid, JSON or CSV. */
#ifndef CLI_CIRCUITS_EFFECT_GRID_H
#define CLI_CIRCUITS_EFFECT_GRID_H

#include "circuits/prompt_cases.h"
#include <jansson.h>

/* Values of one metric, shaped [rows..., columns]. The axes are named "layer", "head", "position" or otherwise. Heads
 * have their numbers in the unpruned model (head_numbers.h), so that the axes of heads are the same in all layers. */
typedef struct effect_grid {
    const mha_model *model;
    char title[64];                                        /* such as "z by head, denoise" */
    const char *site, *by, *direction, *metric, *estimate; /* for JSON; estimate NULL = exact */
    mha_site patched;                                      /* the site and the mha_patch_direction, for patching */
    mha_site head_site; /* the site whose heads the axes "head" and "receiver" have; senders are query heads */
    int run;
    const char *axes[3];
    int64_t heads[2]; /* heads per layer of the axes sender and receiver, which are numbered layer * heads + head; 0 for
                       * other axes */
    char sender[24];  /* the only sender of paths, such as "0.5"; "" = none, or an axis of the grid */
    mha_path_edge *edges; /* [count] the elements of the only axis "edge"; NULL = other axes */
    int rank;
    int64_t shape[3], count;
    int64_t *element, measured; /* [measured] the element of each measured value; -1 = a head that the layer lacks */
    bool *absent;               /* [count] elements of such heads */
    int64_t pairs;
    /* [count] of the values less the base metric of their pair: the mean, and the sum of squared deviations from it */
    double *change, *squares;
    double *value, *half; /* [count] after effect_grid_finish: the mean, and half of its 95 % interval (0 for one
                                * pair), normalized unless `raw` */
    double *mean;         /* [count] mean metric in nats */
    double base, clean, corrupted; /* means over pairs */
    bool raw;                      /* value is in nats: asked for, or the runs hardly differ */
} effect_grid;

/* Allocates the arrays for values of the given shape, in which heads are numbered by position; `heads` of the grid are
 * then heads per layer by position. Sets shape, heads and count. Returns false if memory is exhausted. */
bool effect_grid_open(effect_grid *grid, int rank, const int64_t *shape);
/* Adds the values [measured] of one pair, with the metric of the base run and of both runs. */
void effect_grid_add(effect_grid *grid, const double *values, double base, double clean, double corrupted);
/* Computes mean, value and half; `raw` shows nats. */
void effect_grid_finish(effect_grid *grid, bool raw);
void effect_grid_free(effect_grid *grid);

/* Returns the change of an element: value less the value of the base run. */
double effect_grid_change(const effect_grid *grid, int64_t n);
/* Writes the name of index n of an axis, such as "3" or, for senders and receivers, "0.3". */
enum { EFFECT_INDEX = 48 };
void effect_grid_index(const effect_grid *grid, int axis, int64_t n, char text[EFFECT_INDEX]);
/* Writes the name of an element, such as "0.1", "0.5 -> 1.0", "0.5 -> 1.0 k" or "0.1 @3 'key'", to text and returns it.
 * `one` may be NULL for edges. */
enum { EFFECT_PART = 160 };
const char *effect_grid_part(const effect_grid *grid, const prompt_case *one, int64_t n, char text[EFFECT_PART]);
/* Returns the present element that has the largest change among those that are not in `taken` [count], and adds it to
 * them; -1 if there is none. */
int64_t effect_grid_next(const effect_grid *grid, bool *taken);

/* Prints the grid, rows down and the last axis across (unless it is a list of edges), then the `top` elements with the
 * largest change. */
void effect_grid_print(const cli_session *session, const effect_grid *grid, const prompt_case *one, int top);
/* Returns the printed grid as a map (lens/circuit_map.h), for figures; not for a list of edges. */
json_t *effect_grid_map(const effect_grid *grid, const prompt_case *one);
json_t *effect_grid_json(const effect_grid *grid);
void effect_grid_csv_head(FILE *out);
void effect_grid_csv(FILE *out, const effect_grid *grid);

#endif
