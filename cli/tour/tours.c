/* tours.c - defines the table of all tours. */
#include "tour/tours.h"

const tour_entry tour_entries[] = {
#define TOUR__X(name, walk, example, accepts, summary) {name, example, summary, walk, accepts},
    TOUR_MAP(TOUR__X)
#undef TOUR__X
        {NULL, NULL, NULL, NULL, 0}};
