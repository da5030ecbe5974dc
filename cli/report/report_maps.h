/* report_maps.h - the attention maps of a model, packed for the report. */
#ifndef CLI_REPORT_REPORT_MAPS_H
#define CLI_REPORT_REPORT_MAPS_H

#include <jansson.h>

#include "mha/mha.h"

/* Returns {type, data}: data has one string per head, in layer order; the heads must be measured with keep_maps. Type
 * "f32" stores exact floats, if they fit `exact_bytes` in total; "u8sqrt" stores the square root in 8 bits: weight =
 * (byte / 255)^2, largest error 0.004, as stated on the page. NULL if memory is exhausted. */
json_t *report_maps_json(const mha_heads *heads, size_t exact_bytes);

/* Returns the number of weights in all maps. */
size_t report_maps_weights(const mha_heads *heads);

#endif
