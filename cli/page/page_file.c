/* page_file.c - builds an HTML page in memory, and writes it as a whole. */
#include "page/page_file.h"

#include "memory.h"
#include "output.h"
#include "page/page_data.h"
#include <stdlib.h>

int page_file_check(const cli_session *s)
{
    if (cli_out_is_stdout(s) && s->options.csv)
        return cli_usage(s, "with --csv, the output must be a file, because the CSV goes to stdout (got -)");
    return cli_check_out(s);
}

int page_file_save(const cli_session *s, const unsigned char *before, json_t *data, const unsigned char *after)
{
    char *page;
    size_t bytes;
    FILE *memory = cli_memory_open(&page, &bytes);
    fputs((const char *)before, memory);
    const int whole = page_data_write(data, memory);
    fputs((const char *)after, memory);
    fclose(memory);
    const int code = whole ? cli_write_file(s, page, bytes) : cli_error(s, CLI_FAILED, "out of memory for the page");
    if (code == CLI_DONE) cli_say(s, "%s: %.1f KB; open it in a browser", cli_out_name(s), (double)bytes / 1e3);
    free(page);
    return code;
}
