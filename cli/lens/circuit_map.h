/* circuit_map.h - tables of results, such as layers x heads or layers x tokens, as one JSON value that is printed on
 * the terminal, as CSV and in pages. */
#ifndef CLI_LENS_CIRCUIT_MAP_H
#define CLI_LENS_CIRCUIT_MAP_H

#include "input/sequence.h"

/* Returns a map without cells: {title, hint, scale, row, column, rows: [], columns: [], values: [[]], texts: [[]],
 * notes: [[]]}. `scale` is "signed" (colors relative to the largest magnitude), "effect" (relative to 1, or to the
 * largest magnitude if it is greater) or "probability" (0..1); `row` and `column` name what rows and columns are. */
json_t *circuit_map(const char *title, const char *hint, const char *scale, const char *row, const char *column);
/* Append a column or a row. `name` is stolen. */
void circuit_map_column(json_t *map, json_t *name);
void circuit_map_row(json_t *map, json_t *name);
/* Appends a cell to the last row. NAN is an empty cell. `text` is shown instead of the value, and `note` in addition to
 * it (in pages); both are stolen, and may be NULL. */
void circuit_map_cell(json_t *map, double value, json_t *text, json_t *note);

/* Returns element n of "rows" or "columns"; "" if it is missing. */
const char *circuit_map_name(const json_t *map, const char *key, size_t n);
/* Returns a cell of "values", "texts" or "notes". */
const json_t *circuit_map_at(const json_t *map, const char *key, size_t row, size_t column);
/* Returns the magnitude that has the full color. */
double circuit_map_max(const json_t *map);

/* Sets the background for a value from -1 to 1: orange for positive values, blue for negative ones. Returns false, and
 * prints nothing, without color, for NAN and for magnitudes below 0.05. */
bool circuit_map_color(const cli_session *session, double part);
/* Prints the map, in blocks of columns that fit the terminal. */
void circuit_map_print(const cli_session *session, const json_t *map);
/* Prints a line per cell: row, column, value, and the text if there is one. */
void circuit_map_csv(FILE *out, const json_t *map);

/* Returns the name of a head, "LAYER.HEAD", as a JSON string. */
json_t *circuit_head(const mha_model *model, int64_t layer, int64_t head);
/* Returns the name of a token as a JSON string: its text, or its id without a tokenizer. */
json_t *circuit_token(const cli_sequence *sequence, int32_t id);
/* Returns the names of all tokens of a sequence. */
json_t *circuit_tokens(const cli_sequence *sequence);

#endif
