/* result_file.c - checks the output file given by -o before a long computation, and writes the file at the end. */
#include <errno.h>
#include <limits.h>
#include <mha/model_save.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "output.h"
#include "output_is_input.h"

/* Checks that files can be created in the folder that contains `path`. */
static int check_parent(const cli_session *s, const char *path)
{
    char folder[PATH_MAX];
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    if (n >= sizeof folder - 1) return cli_error(s, CLI_FAILED, "%s: the path is too long", cli_shown(path));
    memcpy(folder, path, n);
    memcpy(folder + n, ".", 2);
    if (access(folder, W_OK | X_OK) == 0) return CLI_DONE;
    return cli_error(s, CLI_FAILED, "%s: cannot write: %s", cli_shown(path), strerror(errno));
}

int cli_check_out(const cli_session *session)
{
    const char *path = session->options.out;
    if (!cli_writes(session)) return CLI_DONE;
    if (path && *path == '\0') return cli_usage(session, "the name of the output file must not be empty (got \"\")");
    if (cli_out_is_stdout(session) && session->options.json)
        return cli_usage(session, "with --json, the output must be a file, because the JSON goes to stdout (got -)");
    if (!path || cli_out_is_stdout(session)) return CLI_DONE;
    const int code = session->command->shared & CLI_OUT ? cli_inputs_check(session, "-o", path) : CLI_DONE;
    if (code != CLI_DONE) return code;
    if (!session->options.force && access(path, F_OK) == 0)
        return cli_usage(session, "%s exists; --force replaces it", cli_shown(path));
    return check_parent(session, path);
}

int cli_check_out_model(const cli_session *session)
{
    mha_error error = {0};
    const int code = cli_check_out(session);
    if (code != CLI_DONE || !cli_writes(session)) return code;
    return mha_model_save_check(session->options.out, session->options.force, &error) == MHA_OK
               ? CLI_DONE
               : cli_fail(session, &error);
}

int cli_write_file(const cli_session *session, const void *data, size_t bytes)
{
    mha_error error = {0};
    int code = cli_check_out(session);
    if (code != CLI_DONE || !cli_writes(session)) return code;
    if (cli_out_is_stdout(session)) {
        fwrite(data, 1, bytes, session->out); /* main.c checks session->out for errors */
        return CLI_DONE;
    }
    if (mha_file_write(session->options.out, data, bytes, session->options.force, &error) != MHA_OK)
        return cli_fail(session, &error);
    return CLI_DONE;
}
