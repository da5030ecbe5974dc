/* result_file.c - checks the output file given by -o before a long computation, and writes the file at the end. */
#include "output.h"
#include <stdio.h>
#include <unistd.h>

/* Checks the name of the output. */
static int check_name(const cli_session *session)
{
    const char *path = session->options.out;
    if (path && *path == '\0') return cli_usage(session, "the name of the output file must not be empty (got \"\")");
    if (cli_out_is_stdout(session) && session->options.json)
        return cli_usage(session, "with --json, the output must be a file, because the JSON goes to stdout (got -)");
    if (!path || cli_out_is_stdout(session)) return CLI_DONE;
    if (session->options.force || access(path, F_OK) != 0) return CLI_DONE;
    return cli_usage(session, "%s exists; --force replaces it", cli_shown(path));
}

int cli_check_out(const cli_session *session)
{
    mha_error error = {0};
    if (!cli_writes(session)) return CLI_DONE;
    const int code = check_name(session);
    if (code != CLI_DONE || !session->options.out || cli_out_is_stdout(session)) return code;
    return mha_file_write_check(session->options.out, session->options.force, &error) == MHA_OK
               ? CLI_DONE
               : cli_fail(session, &error);
}

int cli_check_folder(const cli_session *session, const char *path, bool overwrite)
{
    mha_error error = {0};
    return mha_model_save_check(path, overwrite, &error) == MHA_OK ? CLI_DONE : cli_fail(session, &error);
}

int cli_check_out_folder(const cli_session *session)
{
    if (!cli_writes(session)) return CLI_DONE;
    const int code = check_name(session);
    if (code != CLI_DONE) return code;
    if (cli_out_is_stdout(session)) return cli_usage(session, "-o requires a folder (got \"-\")");
    return cli_check_folder(session, session->options.out, session->options.force);
}

int cli_write_file(const cli_session *session, const void *data, size_t bytes)
{
    mha_error error = {0};
    if (!cli_writes(session)) return CLI_DONE;
    const int code = check_name(session);
    if (code != CLI_DONE) return code;
    if (cli_out_is_stdout(session)) {
        fwrite(data, 1, bytes, session->out); /* main.c checks session->out for errors */
        return CLI_DONE;
    }
    if (mha_file_write(session->options.out, data, bytes, session->options.force, &error) != MHA_OK)
        return cli_fail(session, &error);
    return CLI_DONE;
}
