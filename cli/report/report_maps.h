/* report_maps.h - encodes the attention maps of a model for the report. */
#ifndef CLI_REPORT_REPORT_MAPS_H
#define CLI_REPORT_REPORT_MAPS_H

#include "mha/mha.h"
#include <jansson.h>

/* Returns {type, data}: data has one string per head, in layer order; the heads must be measured with keep_maps. If all
 * weights fit in `exact_bytes` as floats, the type is "f32". Otherwise it is "u8sqrt", which stores the square root of
 * each weight in 8 bits: weight = (byte / 255)^2, with an error of at most 0.004. NULL if memory is exhausted. */
json_t *report_maps_json(const mha_heads *heads, size_t exact_bytes);

/* The same for `count` maps [rows, columns]. */
json_t *report_maps_of(const float *maps, int64_t count, int64_t rows, int64_t columns, size_t exact_bytes);

/* Returns the number of weights in all maps. */
size_t report_maps_weights(const mha_heads *heads);

#endif
