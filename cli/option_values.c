/* option_values.c - see option_values.h. Each command checks its option values itself; a test compares the accepted
 * values with this table. */
#include "option_values.h"

#include "options.h"
#include "output.h"
#include <string.h>

const char option_models[] = "builtin minilm";

static const char *score_name(int n)
{
    return n < MHA_IMPORTANCE_SCORES ? mha_importance_score_key((mha_importance_score)n) : NULL;
}

static const char *method_name(int n)
{
    return n < MHA_REGROUP_METHODS ? mha_regroup_method_key((mha_regroup_method)n) : NULL;
}

static const char *job_name(int n)
{
    return mha_host_job_key((mha_host_job)n);
}

/* The values of options. The first matching row applies; `command` NULL matches every command. `more`, if not NULL,
 * returns further word n, or NULL after the last word. */
static const struct row {
    const char *command, *option, *words;
    const char *(*more)(int n);
} rows[] = {
    {NULL, "documents", "line paragraph whole", NULL},
    {NULL, "isa", "scalar avx2 avx512 avx512vnni avx512bf16 amx neon", NULL},
    {"train", "dtype", "f32 bf16", NULL},
    {"plan", "dtype", "f32 bf16 f16", NULL},
    {"plan", "weights", "f32 bf16 f16 int8", NULL},
    {"plan", "network", "", mha_host_network_key},
    {"plan", "job", "", job_name},
    {"bench", "dtype", "f32 bf16 f16 all", NULL},
    {NULL, "dtype", "f32 bf16 f16 int8", NULL},
    {NULL, "kv-dtype", "f32 bf16 f16 int8 int4 e4m3", NULL},
    {"train", "export-dtype", "bf16 f16 f32", NULL},
    {"train", "schedule", "cosine constant", NULL},
    {"train", "decays", "matrices dense all", NULL},
    {"train", "gates", "l0 l1", NULL},
    {"tokenizer", "type", "bpe wordpiece", NULL},
    {"embed", "pool", "mean cls", NULL},
    {NULL, "colors", "root linear", NULL},
    {"prune", "by", "joint", score_name},
    {"attribute", "by", "component head source", NULL},
    {"patch", "by", "position head head-position", NULL},
    {NULL, "by", "", score_name},
    {NULL, "loss", "lm mlm pairs", NULL},
    {"regroup", "method", "", method_name},
};

static const struct row *find_row(const cli_command *command, const struct poptOption *option)
{
    for (size_t i = 0; option->longName && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].option, option->longName) == 0 &&
            (!rows[i].command || strcmp(rows[i].command, command->name) == 0))
            return &rows[i];
    return NULL;
}

/* Returns true if the placeholder of the option's value, such as FILE, stands for a path. */
static bool takes_path(const struct poptOption *option)
{
    static const char *const paths[] = {"FILE", "OUT", "DIR", "FOLDER", "SHAPE"};
    for (size_t i = 0; option->argDescrip && i < sizeof paths / sizeof *paths; i++)
        if (strcmp(option->argDescrip, paths[i]) == 0) return true;
    return false;
}

option_kind option_kind_of(const cli_command *command, const struct poptOption *option)
{
    if ((option->argInfo & POPT_ARG_MASK) == POPT_ARG_NONE) return OPTION_FLAG;
    if (find_row(command, option)) return OPTION_WORD;
    if (option->argDescrip && strncmp(option->argDescrip, "MODEL", 5) == 0) return OPTION_MODEL;
    return takes_path(option) ? OPTION_PATH : OPTION_FREE;
}

const char *option_values(const cli_command *command, const struct poptOption *option, char words[OPTION_VALUES])
{
    const struct row *row = find_row(command, option);
    const char *word;
    snprintf(words, OPTION_VALUES, "%s", row ? row->words : "");
    for (int n = 0; row && row->more && (word = row->more(n)); n++) {
        const size_t used = strlen(words);
        snprintf(words + used, OPTION_VALUES - used, "%s%s", used ? " " : "", word);
    }
    return words;
}

/* ---- empty paths ---- */

static int check_path(const cli_session *s, const struct poptOption *o, const char *value)
{
    char name[CLI_OPTION_NAME];
    if (!value || *value || strcmp(o->argDescrip, "SHAPE") == 0) return CLI_DONE;
    const bool model = option_kind_of(s->command, o) == OPTION_MODEL;
    return cli_usage(s, "%s must name a %s (got \"\")", cli_option_name(o, name),
                     model                                  ? "model"
                     : strcmp(o->argDescrip, "FOLDER") == 0 ? "folder"
                                                            : "file");
}

int option_paths_check(const cli_session *s)
{
    struct poptOption table[CLI_MAX_OPTIONS];
    int code = CLI_DONE;
    cli_option_table(s->command, table);
    for (const struct poptOption *o = table; (o->longName || o->shortName) && code == CLI_DONE; o++) {
        const option_kind kind = option_kind_of(s->command, o);
        if (kind != OPTION_PATH && kind != OPTION_MODEL) continue;
        if (o->argInfo == POPT_ARG_STRING) code = check_path(s, o, *(const char *const *)o->arg);
        const char *const *list = o->argInfo == POPT_ARG_ARGV ? *(const char *const *const *)o->arg : NULL;
        for (int n = 0; list && list[n] && code == CLI_DONE; n++)
            code = check_path(s, o, list[n]);
    }
    return code;
}
