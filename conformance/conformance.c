/* conformance.c - detects the kind of a golden folder and runs the checks of this kind. */
#include "conformance/golden_folder.h"
#include "output.h"

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

static bool is_circuits(const json_t *index)
{
    return json_is_array(json_object_get(index, "metrics")) && json_is_object(json_object_get(index, "weights"));
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
    {"heads", is_heads, verify_heads},
    {"circuits", is_circuits, verify_circuits},
};

static int check_folder(cli_session *session, const char *folder, const json_t *index, verify_log *log)
{
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        if (!kinds[n].matches(index)) continue;
        mha_error error = {0};
        log->kind = kinds[n].name;
        if (verify_keys(folder, kinds[n].name, index, &error) != MHA_OK) return cli_refuse(session, &error);
        return kinds[n].check(session, folder, index, log);
    }
    return cli_error(session, CLI_REFUSED, "%s/index.json: must contain a supported kind of recorded results",
                     cli_shown(folder));
}

int verify_golden(cli_session *session, const char *folder, verify_log *log)
{
    mha_error error = {0};
    json_t *index = verify_index_open(folder, &error);
    if (!index) return cli_refuse(session, &error);
    int code = check_folder(session, folder, index, log);
    json_decref(index);
    return code;
}
