/* page_data.c - writes JSON that cannot end the HTML block around it. */
#include "page/page_data.h"

#include "page/color_scale.h"
#include <stdlib.h>
#include <string.h>

/* Writes ASCII JSON with <, > and & escaped. JSON contains these characters only inside strings. */
static void put_block(const char *json, FILE *out)
{
    for (; *json; json++) {
        if (strchr("<>&", *json))
            fprintf(out, "\\u%04x", (unsigned)*json);
        else
            putc(*json, out);
    }
}

int page_data_write(json_t *data, FILE *out)
{
    char *json = data ? json_dumps(data, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(data);
    if (!json) return 0;
    put_block(json, out);
    free(json);
    return 1;
}

json_t *page_color_ramp(void)
{
    json_t *ramp = json_array();
    for (int i = 0; i < COLOR_STOPS; i++)
        json_array_append_new(ramp, json_pack("[i,i,i]", color_stops[i].r, color_stops[i].g, color_stops[i].b));
    return ramp;
}
