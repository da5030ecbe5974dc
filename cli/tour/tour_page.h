/* tour_page.h - writes tours as one self-contained HTML page. */
#ifndef CLI_TOUR_TOUR_PAGE_H
#define CLI_TOUR_TOUR_PAGE_H

#include "tour/tour.h"

/* The parts of the page before and after its tours, generated at build time from cli/tour/ (cmake/embed_page.cmake). */
extern const unsigned char tour_page_before[], tour_page_after[]; /* both terminated by NUL */

/* Writes the page: texts, tensors, images and counts of all steps. */
void tour_put_page(FILE *out, tour *const *tours, int count);

/* Writes text escaped for HTML; a shape such as [5, 4] stays on one line. */
void tour_put_escaped(FILE *out, const char *text);

/* Writes the images of a tensor according to its look; writes nothing for TOUR_ROWS and TOUR_WHOLE. */
void tour_put_svg(FILE *out, const tour_tensor *tensor);

#endif
