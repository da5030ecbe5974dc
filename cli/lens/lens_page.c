/* lens_page.c - writes the maps as a figure, or the page with the maps as its data. */
#include "lens/lens_page.h"

#include "draw/figure.h"
#include "lens/map_figure.h"
#include "output.h"
#include "page/page_file.h"

int lens_page_write(const cli_session *s, const char *title, json_t *lines, json_t *maps)
{
    if (figure_knows(s->options.out)) {
        const int code = map_figure_save(s, title, lines, maps);
        json_decref(lines);
        json_decref(maps);
        return code;
    }
    json_t *all = json_pack("{s:s, s:s, s:s, s:o, s:o}", "mha", mha_version(), "title", title, "model",
                            cli_shown(s->model_name), "lines", lines, "maps", maps);
    return page_file_save(s, lens_page_before, all, lens_page_after);
}
