/* report_live.c - see report_live.h. */
#include "report/report_live.h"

#include "live/live_page.h"
#include "memory.h"
#include "output.h"
#include "page/page_data.h"
#include <stdlib.h>
#include <string.h>

int report_live_page(const cli_session *s, const char *text, json_t **page)
{
    json_t *data = NULL;
    char *html;
    size_t bytes;
    const int code = live_page_data(s, text, &data);
    if (code != CLI_DONE) return code;
    FILE *memory = cli_memory_open(&html, &bytes);
    fputs((const char *)live_page_before, memory);
    const int whole = page_data_write(data, memory);
    fputs((const char *)live_page_after, memory);
    fclose(memory);
    *page = whole ? json_stringn(html, bytes) : NULL;
    free(html);
    return *page ? CLI_DONE : cli_error(s, CLI_FAILED, "out of memory for the live page");
}

/* Writes `from` up to the end of the name of a directive of the policy, and the sources that the live page has for it.
 * Returns the rest of `from`. */
static const char *put_directive(const char *from, const char *name, FILE *out)
{
    const char *end = strstr(from, name) + strlen(name);
    const char *sources = strstr((const char *)live_page_before, name) + strlen(name);
    fwrite(from, 1, (size_t)(end - from), out);
    fwrite(sources, 1, strcspn(sources, ";\""), out);
    fputc(' ', out);
    return end;
}

char *report_live_allow(const unsigned char *before)
{
    char *text;
    size_t bytes;
    FILE *memory = cli_memory_open(&text, &bytes);
    const char *rest = put_directive((const char *)before, "script-src ", memory);
    rest = put_directive(rest, "style-src ", memory);
    fputs(rest, memory);
    fclose(memory);
    return text;
}
