/* tour_figure.h - a tensor of a tour as a figure for papers and slides. */
#ifndef CLI_TOUR_TOUR_FIGURE_H
#define CLI_TOUR_TOUR_FIGURE_H

#include "command.h"
#include "tour/tour.h"

/* Draws the tensor named NAME, or NAME[i, j] for one matrix of a tensor with more than two axes (the first one without
 * an index): a map of weights, or a curve. NULL: the first tensor of the tour that can be drawn. Writes the file of -o.
 * Returns an exit code. */
int tour_figure_save(cli_session *session, const tour *t, const char *name);

#endif
