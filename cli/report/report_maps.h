/* report_maps.h - the attention maps of a model, packed for the report. */
#ifndef CLI_REPORT_REPORT_MAPS_H
#define CLI_REPORT_REPORT_MAPS_H

#include <jansson.h>

#include "mha/mha.h"

/* {type, data}: data is a list of one text for each head, layer behind layer, of heads that were measured with
 * keep_maps. type "f32" has exact floats, up to `exact_bytes` of them in all; "u8sqrt" has the square root in 8
 * bits: weight = (byte / 255)^2, largest error 0.004, and the page says so. NULL when memory is short. */
json_t *report_maps_json(const mha_heads *heads, size_t exact_bytes);

/* The number of weights of all maps. */
size_t report_maps_weights(const mha_heads *heads);

#endif
