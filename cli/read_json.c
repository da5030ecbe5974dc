/* read_json.c - files of JSON that options name. */
#include <errno.h>
#include <string.h>

#include "input.h"
#include "output.h"

int cli_json_read(const cli_session *session, const char *path, json_t **json)
{
    json_error_t wrong;
    errno = 0;
    *json = json_load_file(path, JSON_REJECT_DUPLICATES, &wrong);
    if (*json) return CLI_DONE;
    const int number = errno;
    switch (json_error_code(&wrong)) {
    case json_error_out_of_memory:
        return cli_error(session, CLI_FAILED, "%s: out of memory for its JSON", cli_shown(path));
    case json_error_cannot_open_file:
        return cli_error(session, CLI_REFUSED, "%s: %s", cli_shown(path), strerror(number));
    default:
        return cli_error(session, CLI_REFUSED, "%s: line %d: %s", cli_shown(path), wrong.line, cli_shown(wrong.text));
    }
}
