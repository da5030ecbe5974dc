/* tour_figure.h - writes a tensor of a tour as a figure. */
#ifndef CLI_TOUR_TOUR_FIGURE_H
#define CLI_TOUR_TOUR_FIGURE_H

#include "command.h"
#include "tour/tour.h"

/* Returns true if the tensor is a curve or a map. */
bool tour_can_draw(const tour_tensor *tensor);

/* Returns the tensor NAME, or of one matrix NAME[i, j], whose number *matrix receives (0 without an index). NULL = the
 * first tensor that can be drawn, or if there is none the first tensor. Returns NULL for an unknown name or index. */
const tour_tensor *tour_tensor_find(const tour *t, const char *name, int64_t *matrix);

/* Draws the tensor NAME, or one matrix NAME[i, j] of a tensor with more than two axes (default: the first), as a map or
 * a curve. NULL = the first tensor of the tour that can be drawn. Writes the file of -o. Returns an exit code. */
int tour_figure_save(cli_session *session, const tour *t, const char *name);

#endif
