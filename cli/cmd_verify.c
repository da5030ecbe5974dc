/* cmd_verify.c - `mha verify`: checks this build against double precision, or against a folder of recorded results. */
#include <string.h>

#include "output.h"
#include "verify.h"

static const char *golden, *lm;
static int strict;

static const struct poptOption options[] = {
    {"golden", 0, POPT_ARG_STRING, &golden, 0, "folder of recorded results: index.json and tensor files", "DIR"},
    {"lm", 0, POPT_ARG_STRING, &lm, 0, "the language model of recorded heads", "FOLDER"},
    {"strict", 0, POPT_ARG_NONE, &strict, 0, "also say no when a case was refused", NULL},
    POPT_TABLEEND,
};

/* ---- kinds of folders ---- */

static bool first_case_has(const json_t *index, const char *key)
{
    return json_object_get(json_array_get(json_object_get(index, "cases"), 0), key) != NULL;
}

static bool is_attention(const json_t *index)
{
    return first_case_has(index, "layout") && first_case_has(index, "q_heads");
}

static bool is_models(const json_t *index)
{
    return json_is_array(json_object_get(index, "models"));
}

static bool is_sentences(const json_t *index)
{
    return first_case_has(index, "text") || first_case_has(index, "rows");
}

static bool is_ops(const json_t *index)
{
    return json_object_get(index, "torch_mha") != NULL;
}

static bool is_seeds(const json_t *index)
{
    return json_object_get(index, "draws") != NULL;
}

static bool is_heads(const json_t *index)
{
    return json_object_get(index, "pattern_names") != NULL;
}

static int check_heads(cli_session *session, const char *folder, const json_t *index, verify_log *log)
{
    return verify_heads(session, folder, lm, index, log);
}

typedef int (*suite)(cli_session *session, const char *folder, const json_t *index, verify_log *log);

static const struct kind {
    const char *name;
    bool (*matches)(const json_t *index);
    suite check;
} kinds[] = {
    {"attention", is_attention, verify_attention},
    {"models", is_models, verify_models},
    {"minilm", is_sentences, verify_sentences},
    {"ops", is_ops, verify_ops},
    {"seeds", is_seeds, verify_seeds},
    {"heads", is_heads, check_heads},
};

static int check_folder(cli_session *session, const json_t *index, verify_log *log)
{
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        if (!kinds[n].matches(index)) continue;
        mha_error error = {0};
        log->kind = kinds[n].name;
        if (verify_keys(golden, kinds[n].name, index, &error) != MHA_OK) return cli_refuse(session, &error);
        return kinds[n].check(session, golden, index, log);
    }
    return cli_error(session, CLI_REFUSED, "%s/index.json: recorded results of no known kind", cli_shown(golden));
}

static int run_golden(cli_session *session, verify_log *log)
{
    mha_error error = {0};
    json_t *index = verify_index_open(golden, &error);
    if (!index) return cli_refuse(session, &error);
    int code = check_folder(session, index, log);
    json_decref(index);
    return code;
}

static int run(cli_session *session)
{
    if (session->arg_count) return cli_usage(session, "unexpected argument \"%s\"", cli_shown(session->args[0]));
    if (session->options.model && !golden) return cli_usage(session, "-m says nothing without --golden");
    if (lm && !golden) return cli_usage(session, "--lm says nothing without --golden");
    verify_log log;
    verify_log_open(&log);
    int code = golden ? run_golden(session, &log) : verify_self(session, &log);
    if (code == CLI_DONE) code = verify_print(session, &log, strict);
    verify_log_close(&log);
    return code;
}

const cli_command cli_verify = {
    .name = "verify",
    .summary = "check this build against double precision or recorded results",
    .usage = "",
    .details = "Without --golden: every instruction set of this CPU against the same problem in double precision.\n"
               "With --golden DIR: DIR as made by the project's scripts for attention, ops, seeds (the walk-throughs), "
               "models (-m FOLDER_OF_MODELS), minilm (-m MODEL) or heads (-m MODEL --lm FOLDER). Exit status 4 when a "
               "case failed, 3 when DIR is "
               "broken, of another format, or asks in index.json for something that is not checked.\n"
               "In JSON, \"worst\" is the largest error in units of its limit.",
    .shared = CLI_MODEL | CLI_JSON,
    .options = options,
    .examples = "mha verify\n"
                "mha verify --strict --json\n",
    .run = run,
};
