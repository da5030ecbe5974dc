/* circuits_page.c - writes the page of patching and knockout: the grids, and the maps of the heads in both runs. */
#include "circuits/circuits_page.h"

#include "circuits/head_numbers.h"
#include "output.h"
#include "page/page_file.h"
#include <math.h>

enum { WEIGHTS_MAX = 1 << 20 }; /* maps with more weights in total are left out of the page */

static json_t *map_json(const float *map, int64_t length)
{
    json_t *rows = json_array();
    for (int64_t i = 0; i < length; i++) {
        json_t *row = json_array();
        for (int64_t j = 0; j < length; j++)
            json_array_append_new(row, cli_real(round((double)map[i * length + j] * 1e4) / 1e4));
        json_array_append_new(rows, row);
    }
    return rows;
}

/* Returns {clean, corrupted}: maps by layer and head number, null for heads that a layer does not have; null if the
 * maps are too large. */
static json_t *maps_json(const prompt_report *r)
{
    static const char *const names[] = {"clean", "corrupted"};
    const mha_model_info *m = mha_model_describe(r->model);
    const int64_t length = mha_prompt_pair_length(r->first), columns = head_columns(r->model, MHA_SITE_Z);
    if (m->layers * m->heads * length * length > WEIGHTS_MAX / 2) return json_null();
    json_t *maps = json_object();
    for (int run = 0; run < 2; run++) {
        json_t *layers = json_array();
        for (int64_t l = 0; l < m->layers; l++) {
            json_t *heads = json_array();
            for (int64_t n = 0; n < columns; n++) {
                const int64_t h = mha_head_place(r->model, l, n);
                json_array_append_new(
                    heads,
                    h < 0 ? json_null() : map_json(mha_prompt_pair_map(r->first, (mha_prompt_run)run, l, h), length));
            }
            json_array_append_new(layers, heads);
        }
        json_object_set_new(maps, names[run], layers);
    }
    return maps;
}

int circuits_page_save(const cli_session *s, const prompt_report *r, json_t *results)
{
    json_object_set_new(results, "mha", json_string(mha_version()));
    json_object_set_new(results, "command", json_string(s->command->name));
    json_object_set_new(results, "maps", maps_json(r));
    return page_file_save(s, circuits_page_before, results, circuits_page_after);
}
