/* lens_page.c - writes the page with the maps as its data. */
#include "lens/lens_page.h"

#include "output.h"
#include "page/page_file.h"

int lens_page_write(const cli_session *s, const char *title, json_t *lines, json_t *maps)
{
    json_t *all = json_pack("{s:s, s:s, s:s, s:o, s:o}", "mha", mha_version(), "title", title, "model",
                            cli_shown(s->model_name), "lines", lines, "maps", maps);
    return page_file_save(s, lens_page_before, all, lens_page_after);
}
