/* read_json.c - files of JSON that options name. */
#include <errno.h>
#include <string.h>

#include "input/input.h"
#include "output.h"
#include "session.h"

static int refuse(const cli_session *session, const char *name, const json_error_t *wrong)
{
    switch (json_error_code(wrong)) {
    case json_error_out_of_memory:
        return cli_error(session, CLI_FAILED, "%s: out of memory for its JSON", name);
    default:
        return cli_error(session, CLI_REFUSED, "%s: line %d: %s", name, wrong->line, cli_shown(wrong->text));
    }
}

int cli_json_read(const cli_session *session, const char *path, json_t **json)
{
    json_error_t wrong;
    FILE *file = cli_open_stream(path);
    *json = file ? json_loadf(file, JSON_REJECT_DUPLICATES, &wrong) : NULL;
    if (!file) return cli_error(session, CLI_REFUSED, "%s: %s", cli_shown(path), strerror(errno));
    fclose(file);
    return *json ? CLI_DONE : refuse(session, cli_shown(path), &wrong);
}

int cli_json_parse(const cli_session *session, const char *name, const char *text, size_t bytes, json_t **json)
{
    json_error_t wrong;
    *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &wrong);
    return *json ? CLI_DONE : refuse(session, name, &wrong);
}
