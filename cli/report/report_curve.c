/* report_curve.c - reads the file of --curve and checks it before it is embedded. */
#include "report/report_curve.h"

#include "input/input.h"
#include "output.h"

enum { POINTS_MAX = 10000 };

/* Returns a copy of a point of the curve with only its numbers and booleans; NULL if heads or loss is absent. */
static json_t *point_of(const json_t *given)
{
    if (!json_is_number(json_object_get(given, "heads")) || !json_is_number(json_object_get(given, "loss")))
        return NULL;
    json_t *point = json_object();
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)given, key, value) if (json_is_number(value) || json_is_boolean(value))
        json_object_set(point, key, value);
    return point;
}

int report_curve_read(const cli_session *s, const char *path, json_t **curve)
{
    json_t *all;
    *curve = NULL;
    const int code = cli_json_read(s, path, &all);
    if (code != CLI_DONE) return code;
    const json_t *points = json_object_get(all, "curve");
    const size_t count = json_array_size(points);
    json_t *list = count > 0 && count <= POINTS_MAX ? json_array() : NULL;
    for (size_t i = 0; list && i < count; i++) {
        json_t *point = point_of(json_array_get(points, i));
        if (point && json_array_append_new(list, point) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    json_decref(all);
    *curve = list;
    if (list) return CLI_DONE;
    return cli_error(s, CLI_REFUSED, "%s must be {\"curve\": [{\"heads\": N, \"loss\": X}, ...]} with 1 to %d points",
                     cli_shown(path), POINTS_MAX);
}
