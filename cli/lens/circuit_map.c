/* circuit_map.c - builds and prints tables of results. */
#include "lens/circuit_map.h"

#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_WIDTH = 7, TEXT_WIDTH = 10, MARGIN_MAX = 16 };

json_t *circuit_map(const char *title, const char *hint, const char *scale, const char *row, const char *column)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:[], s:[], s:[], s:[], s:[]}", "title", title, "hint", hint, "scale",
                     scale, "row", row, "column", column, "rows", "columns", "values", "texts", "notes");
}

void circuit_map_column(json_t *map, json_t *name)
{
    json_array_append_new(json_object_get(map, "columns"), name);
}

void circuit_map_row(json_t *map, json_t *name)
{
    static const char *const cells[] = {"values", "texts", "notes"};
    json_array_append_new(json_object_get(map, "rows"), name);
    for (int i = 0; i < 3; i++)
        json_array_append_new(json_object_get(map, cells[i]), json_array());
}

static void append_last(json_t *map, const char *key, json_t *value)
{
    json_t *rows = json_object_get(map, key);
    json_array_append_new(json_array_get(rows, json_array_size(rows) - 1), value);
}

void circuit_map_cell(json_t *map, double value, json_t *text, json_t *note)
{
    append_last(map, "values", cli_real(value));
    append_last(map, "texts", text ? text : json_null());
    append_last(map, "notes", note ? note : json_null());
}

/* ---- cells ---- */

const json_t *circuit_map_at(const json_t *map, const char *key, size_t row, size_t column)
{
    return json_array_get(json_array_get(json_object_get(map, key), row), column);
}

const char *circuit_map_name(const json_t *map, const char *key, size_t n)
{
    const char *name = json_string_value(json_array_get(json_object_get(map, key), n));
    return name ? name : "";
}

double circuit_map_max(const json_t *map)
{
    const char *scale = json_string_value(json_object_get(map, "scale"));
    double max = strcmp(scale, "effect") == 0 ? 1 : 0;
    size_t r, c;
    const json_t *row, *value;
    if (strcmp(scale, "probability") == 0) return 1;
    json_array_foreach(json_object_get(map, "values"), r, row)
    {
        json_array_foreach(row, c, value) max = fmax(max, fabs(json_number_value(value)));
    }
    return max;
}

/* ---- terminal ---- */

/* Writes a name in exactly `width` columns, at the left. */
static void put_name(const cli_session *s, const char *name, int width)
{
    const char *shown = cli_shown_start(name, width - 1);
    fprintf(s->out, "%s%*s", shown, width - cli_shown_columns(shown, strlen(shown)), "");
}

bool circuit_map_color(const cli_session *s, double part)
{
    static const int positive[] = {230, 223, 216, 209, 202}, negative[] = {195, 153, 111, 69, 27};
    const double size = fabs(part);
    const int step = (int)(fmin(size, 1) * 4.999);
    if (!s->show_color || !(size >= 0.05)) return false;
    const bool dark = part < 0 && step > 2;
    fprintf(s->out, "\033[48;5;%d;38;5;%dm", part < 0 ? negative[step] : positive[step], dark ? 231 : 16);
    return true;
}

static void put_cell(const cli_session *s, const json_t *map, size_t row, size_t column, int width, double max)
{
    const json_t *value = circuit_map_at(map, "values", row, column);
    const char *text = json_string_value(circuit_map_at(map, "texts", row, column));
    if (!json_is_number(value) && !text) {
        fprintf(s->out, "%*s", width, "");
        return;
    }
    fputc(' ', s->out);
    circuit_map_color(s, max > 0 ? json_number_value(value) / max : 0);
    if (text)
        put_name(s, text, width - 1);
    else if (fabs(json_number_value(value)) < 0.005) /* without a sign, since it is only rounding */
        fprintf(s->out, "%*.2f", width - 1, 0.0);
    else
        fprintf(s->out, "%+*.2f", width - 1, json_number_value(value));
    fputs(cli_plain(s), s->out);
}

static bool has_texts(const json_t *map)
{
    return json_is_string(circuit_map_at(map, "texts", 0, 0));
}

static int margin_of(const json_t *map)
{
    int margin = (int)strlen(json_string_value(json_object_get(map, "row"))) + 1;
    for (size_t n = 0; n < json_array_size(json_object_get(map, "rows")); n++) {
        const char *name = circuit_map_name(map, "rows", n);
        const int columns = cli_shown_columns(name, strlen(name)) + 1;
        if (columns > margin) margin = columns;
    }
    return margin < MARGIN_MAX ? margin : MARGIN_MAX;
}

static void put_block(const cli_session *s, const json_t *map, size_t first, size_t count, int width, double max)
{
    const int margin = margin_of(map);
    fputs(cli_dim(s), s->out);
    put_name(s, json_string_value(json_object_get(map, "row")), margin);
    for (size_t c = first; c < first + count; c++) {
        const char *shown = cli_shown_start(circuit_map_name(map, "columns", c), width - 1);
        const int pad = width - 1 - cli_shown_columns(shown, strlen(shown));
        if (has_texts(map))
            fprintf(s->out, " %s%*s", shown, pad, "");
        else
            fprintf(s->out, " %*s%s", pad, "", shown);
    }
    fprintf(s->out, "%s\n", cli_plain(s));
    for (size_t r = 0; r < json_array_size(json_object_get(map, "rows")); r++) {
        put_name(s, circuit_map_name(map, "rows", r), margin);
        for (size_t c = first; c < first + count; c++)
            put_cell(s, map, r, c, width, max);
        fputc('\n', s->out);
    }
}

void circuit_map_print(const cli_session *s, const json_t *map)
{
    const int width = has_texts(map) ? TEXT_WIDTH : VALUE_WIDTH, room = (s->columns - margin_of(map)) / width;
    const size_t columns = json_array_size(json_object_get(map, "columns")), max = room > 1 ? (size_t)room : 1;
    const double size = circuit_map_max(map);
    fprintf(s->out, "%s%s%s\n", cli_bold(s), json_string_value(json_object_get(map, "title")), cli_plain(s));
    for (size_t first = 0; first < columns; first += max) {
        if (first) fputc('\n', s->out);
        put_block(s, map, first, columns - first < max ? columns - first : max, width, size);
    }
}

void circuit_map_csv(FILE *out, const json_t *map)
{
    size_t r, c;
    const json_t *row, *value;
    const bool texts = has_texts(map);
    fprintf(out, "%s,%s,value%s\n", json_string_value(json_object_get(map, "row")),
            json_string_value(json_object_get(map, "column")), texts ? ",text" : "");
    json_array_foreach(json_object_get(map, "values"), r, row)
    {
        json_array_foreach(row, c, value)
        {
            const char *text = json_string_value(circuit_map_at(map, "texts", r, c));
            if (!json_is_number(value) && !text) continue;
            cli_put_csv(out, circuit_map_name(map, "rows", r));
            fputc(',', out);
            cli_put_csv(out, circuit_map_name(map, "columns", c));
            cli_next_csv_number(out, json_is_number(value) ? json_number_value(value) : NAN);
            if (texts) fputc(',', out);
            if (text) cli_put_csv(out, text);
            fputc('\n', out);
        }
    }
}

/* ---- tokens ---- */

json_t *circuit_head(const mha_model *model, int64_t layer, int64_t head)
{
    return json_sprintf("%lld.%lld", (long long)layer, (long long)mha_head_number(model, layer, head));
}

json_t *circuit_token(const cli_sequence *q, int32_t id)
{
    return cli_token_json(q->tokenizer, id);
}

json_t *circuit_tokens(const cli_sequence *q)
{
    json_t *names = json_array();
    for (int64_t t = 0; t < q->count; t++)
        json_array_append_new(names, circuit_token(q, q->ids[t]));
    return names;
}
