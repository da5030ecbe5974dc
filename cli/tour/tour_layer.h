/* tour_layer.h - the steps of the attention of a layer of a checkpoint, with its weights and hidden states. */
#ifndef CLI_TOUR_TOUR_LAYER_H
#define CLI_TOUR_TOUR_LAYER_H

#include "tour/tour.h"

/* The tours that can show a layer, with the attention that they require. */
typedef enum tour_layer_kind {
    TOUR_SHOWS_SPLIT = 0, /* causal, each head with its own keys and values, no rotary positions */
    TOUR_SHOWS_PLAIN,     /* the same without a causal mask */
    TOUR_SHOWS_GROUPS,    /* heads that share keys and values, with or without the other options */
    TOUR_SHOWS_ROTARY     /* rotary positions, with or without shared keys and values */
} tour_layer_kind;

/* Adds the steps of layer tour.choice.layer of tour.model on the chosen text, or `usual`. Ends the tour with an error
 * if the attention of the layer differs from `kind`, naming the tour that shows it. */
void tour_show_layer(tour *t, const char *usual, tour_layer_kind kind);

#endif
