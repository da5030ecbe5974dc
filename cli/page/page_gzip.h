/* page_gzip.h - compresses binary data for the JSON block of a page. */
#ifndef CLI_PAGE_PAGE_GZIP_H
#define CLI_PAGE_PAGE_GZIP_H

#include <jansson.h>
#include <stddef.h>

/* Return the data as a JSON string in base64: page_base64 as they are, page_gzip as a gzip stream without a time stamp,
 * so that equal data give equal strings. `maps`: the data are attention maps, in which long matches are rare. Return
 * NULL if memory is exhausted or if there are 4 GiB or more. */
json_t *page_base64(const unsigned char *data, size_t bytes);
json_t *page_gzip(const unsigned char *data, size_t bytes, int maps);

#endif
