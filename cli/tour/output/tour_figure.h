/* tour_figure.h - writes a tensor of a tour as a figure. */
#ifndef CLI_TOUR_TOUR_FIGURE_H
#define CLI_TOUR_TOUR_FIGURE_H

#include "command.h"
#include "tour/tour.h"

/* Draws the tensor NAME, or one matrix NAME[i, j] of a tensor with more than two axes (default: the first), as a map or
 * a curve. NULL = the first tensor of the tour that can be drawn. Writes the file of -o. Returns an exit code. */
int tour_figure_save(cli_session *session, const tour *t, const char *name);

#endif
