/* page_data.h - the data of HTML pages: writes the JSON block of a page. */
#ifndef CLI_PAGE_PAGE_DATA_H
#define CLI_PAGE_PAGE_DATA_H

#include <jansson.h>
#include <stdio.h>

/* Writes `data` to `out` and takes ownership of the reference. Untrusted text cannot end the block, because it is
 * inside JSON strings in which <, > and & (and U+2028, U+2029) are \u escapes. Returns 1; 0 if memory ran out or `data`
 * is NULL. */
int page_data_write(json_t *data, FILE *out);

/* Returns the color scale of color_scale.h as [r, g, b] triples, for pages that color weights. */
json_t *page_color_ramp(void);

#endif
