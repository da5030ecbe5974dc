/* lens_page.c - writes the page with the maps as its data. */
#include "lens/lens_page.h"

#include <stdlib.h>

#include "output.h"
#include "page/page_data.h"

int lens_page_write(const cli_session *s, const char *title, json_t *lines, json_t *maps)
{
    char *page = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&page, &bytes);
    json_t *all = json_pack("{s:s, s:s, s:s, s:o, s:o}", "mha", mha_version(), "title", title, "model",
                            cli_shown(s->model_name), "lines", lines, "maps", maps);
    if (!out) {
        json_decref(all);
        return cli_error(s, CLI_FAILED, "out of memory for the page");
    }
    fputs((const char *)lens_page_before, out);
    int whole = page_data_write(all, out);
    fputs((const char *)lens_page_after, out);
    whole = !ferror(out) && fclose(out) == 0 && whole;
    const int code = whole ? cli_write_file(s, page, bytes) : cli_error(s, CLI_FAILED, "out of memory for the page");
    free(page);
    return code;
}
