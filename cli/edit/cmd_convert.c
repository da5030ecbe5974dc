/* cmd_convert.c - `mha convert`: copies a model between a checkpoint folder and a GGUF file. */
#include "commands.h"
#include "input/input.h"
#include "input/model_folder.h"
#include "options.h"
#include "output.h"
#include "output_is_input.h"

static struct {
    char *dtype;
    int force;
} given;

static const struct poptOption options[] = {
    {"dtype", 0, POPT_ARG_STRING, &given.dtype, 0,
     "type of the weights in DEST: f32, bf16, f16, or int8 (GGUF only: q8_0); default: as in SRC", "TYPE"},
    {"force", 0, POPT_ARG_NONE, &given.force, 0, "replace DEST if it exists", NULL},
    POPT_TABLEEND};

/* Saves the model in the format that the name of the destination selects. */
static int save(cli_session *s, const mha_model *model, const char *to, const mha_model_save_options *how)
{
    mha_error error = {0};
    const mha_status status =
        cli_ends(to, ".gguf") ? mha_model_save_gguf(model, to, how, &error) : mha_model_save(model, to, how, &error);
    if (status == MHA_ERR_UNSUPPORTED || status == MHA_ERR_FORMAT) return cli_refuse(s, &error);
    if (status != MHA_OK) return cli_fail(s, &error);
    cli_say(s, "%s: written", cli_shown(to));
    return CLI_DONE;
}

static int run(cli_session *s)
{
    mha_model_options open = {.size = sizeof open, .no_weights = 1};
    mha_model_save_options how = {.size = sizeof how, .overwrite = given.force};
    mha_model *model = NULL;
    if (s->arg_count != 2) return cli_usage(s, "SRC and DEST must be given (got %d arguments)", s->arg_count);
    how.dtype = given.dtype ? cli_dtype(given.dtype) : MHA_DTYPE_DEFAULT;
    if (how.dtype == MHA_DTYPE_OTHER)
        return cli_usage(s, "--dtype must be one of f32, bf16, f16, int8 (got \"%s\")", cli_shown(given.dtype));
    if (how.dtype == MHA_Q8_0 && !cli_ends(s->args[1], ".gguf"))
        return cli_usage(s, "--dtype int8 requires a DEST whose name ends in .gguf (got \"%s\")",
                         cli_shown(s->args[1]));
    open.no_tokenizer = model_folder_lacks_tokenizer(s->args[0]);
    int code = cli_input_check(s, "DEST", s->args[1], "SRC", s->args[0]);
    if (code == CLI_DONE) code = cli_model_open_named(s, s->args[0], &open, &model);
    if (code == CLI_DONE) code = save(s, model, s->args[1], &how);
    mha_model_free(model);
    return code;
}

const cli_command cli_convert = {
    .name = "convert",
    .summary = "copy a model between a folder and a GGUF file",
    .usage = "SRC DEST",
    .details = "SRC is a checkpoint folder or a GGUF file, minilm or builtin. If the name of DEST ends in .gguf, DEST "
               "becomes a GGUF file for llama.cpp, otherwise a checkpoint folder for transformers. Quantized weights "
               "become f32 in a folder. A model that the format cannot express is refused, for example a model with "
               "different head counts in its layers.",
    .examples = "mha convert builtin model.gguf\n"
                "mha convert --dtype int8 builtin small.gguf\n"
                "mha convert small.gguf folder\n",
    .options = options,
    .run = run,
};
