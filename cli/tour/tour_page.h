/* tour_page.h - tours as one HTML page that needs nothing but itself. */
#ifndef CLI_TOUR_TOUR_PAGE_H
#define CLI_TOUR_TOUR_PAGE_H

#include "tour/tour.h"

/* The page around its tours, made at build time from cli/tour/ (cmake/embed_page.cmake). */
extern const unsigned char tour_page_before[], tour_page_after[]; /* terminated */

/* The steps with their texts, tensors and counts, and pictures of the tensors. */
void tour_put_page(FILE *out, tour *const *tours, int count);

/* Text as HTML; a shape such as [5, 4] stays on one line. */
void tour_put_escaped(FILE *out, const char *text);

/* A tensor as a picture, as its look says; nothing for TOUR_ROWS. */
void tour_put_svg(FILE *out, const tour_tensor *tensor);

#endif
