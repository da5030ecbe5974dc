/* tour_print.h - prints a tour as text or JSON. */
#ifndef CLI_TOUR_TOUR_PRINT_H
#define CLI_TOUR_TOUR_PRINT_H

#include "command.h"
#include "tour/tour.h"
#include <jansson.h>

/* Prints the steps as text to session->out. */
void tour_put_text(const cli_session *session, const tour *t);
/* Returns {name, summary, steps}; NULL if memory is exhausted. */
json_t *tour_to_json(const tour *t);
/* Writes the shape, for example "[5, 4]", to `text` and returns it; "" for a scalar. */
const char *tour_shape_text(const tour_tensor *tensor, char text[96]);
/* Writes the index of a matrix of the last two axes, for example "[0, 1]", to `text` and returns it; "" if the tensor
 * has one matrix. */
const char *tour_index_text(const tour_tensor *tensor, int64_t matrix, char text[96]);
#endif
