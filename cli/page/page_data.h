/* page_data.h - the block of JSON that a page holds. */
#ifndef CLI_PAGE_PAGE_DATA_H
#define CLI_PAGE_PAGE_DATA_H

#include <jansson.h>
#include <stdio.h>

/* Writes `data` (a reference that is taken over) to `out`. Everything in it that came from outside is text inside a
 * JSON string in which <, > and & (and U+2028, U+2029) are written as \u escapes, so that no text can end the block.
 * Returns 0 when memory is short, also when `data` is NULL. */
int page_data_write(json_t *data, FILE *out);

#endif
