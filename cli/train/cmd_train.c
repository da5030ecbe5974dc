/* cmd_train.c - `mha train`: trains a new model or a checkpoint on texts. */
#include "commands.h"
#include "output.h"
#include "session.h"
#include "train/train_run.h"
#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static const struct poptOption options[] = {
    {"config", 0, POPT_ARG_STRING, &train_given.config, 0, "read settings from a JSON file; options override them",
     "FILE"},
    {"resume", 0, POPT_ARG_NONE, &train_given.resume, 0, "continue from the checkpoint in FOLDER, if it exists", NULL},
    POPT_TABLEEND};

#define GROUP(name)                                                \
    (const struct poptOption[])                                    \
    {                                                              \
        TRAIN_SETTINGS_##name(TRAIN_SETTINGS_OPTION) POPT_TABLEEND \
    }
static const cli_option_group groups[] = {{"Model:", GROUP(MODEL)},
                                          {"Data:", GROUP(DATA)},
                                          {"Batches and steps:", GROUP(STEPS)},
                                          {"Optimizer:", GROUP(ADAMW)},
                                          {"Dropout:", GROUP(DROPOUT)},
                                          {"Gates that prune heads:", GROUP(GATES)},
                                          {"Distillation from a teacher:", GROUP(TEACHER)},
                                          {"Evaluation and samples:", GROUP(WATCH)},
                                          {"Checkpoints, export and log:", GROUP(KEEP)},
                                          {NULL, NULL}};
#undef GROUP

/* Returns the last loss on held-out text; NAN if it was never measured. */
static double last_eval(const mha_train_log *log)
{
    for (int64_t n = mha_train_log_count(log) - 1; n >= 0; n--) {
        const double eval = mha_train_log_record(log, n)->eval_loss;
        if (!isnan(eval)) return eval;
    }
    return NAN;
}

static int put_json(cli_session *s, const train_run *run, const mha_train_record *r, double rate, double eval)
{
    const mha_model_info *info = mha_model_describe(mha_trainer_model(run->trainer));
    json_t *all = json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "out", cli_shown(s->options.out),
                            "family", info->family, "parameters", (json_int_t)info->parameters, "steps",
                            (json_int_t)r->step, "tokens", (json_int_t)r->tokens, "loss", cli_real(r->loss),
                            "eval_loss", cli_real(eval), "perplexity", cli_real(run->teacher ? NAN : exp(eval)),
                            "seconds", cli_real(r->seconds), "tokens_per_second", cli_real(rate));
    const int code = all ? train_run_add_gates(run, all) : CLI_DONE;
    if (code == CLI_DONE) return cli_put_json(s, all, false);
    json_decref(all);
    return code;
}

static int put_result(cli_session *s, const train_run *run)
{
    const mha_model_info *info = mha_model_describe(mha_trainer_model(run->trainer));
    const mha_train_record *r = train_run_last(run);
    const double taken =
        r->seconds - mha_train_log_record(run->log, 0)->seconds; /* record 0 is the evaluation before the first step */
    const double rate = taken > 0 ? (double)r->tokens / taken : 0, eval = last_eval(run->log);
    if (s->options.json) return put_json(s, run, r, rate, eval);
    fprintf(s->out, "%s: %lld steps", cli_out_name(s), (long long)r->step);
    if (!isnan(r->loss)) fprintf(s->out, ", loss %.4f", r->loss); /* the loss is NaN if the log begins at this step */
    fputc('\n', s->out);
    if (!isnan(eval)) fprintf(s->out, "held-out loss %.4f", eval);
    if (!isnan(eval) && !run->teacher) fprintf(s->out, ", perplexity %.2f", exp(eval));
    if (!isnan(eval)) fputc('\n', s->out);
    const int code = train_run_put_gates(run);
    fprintf(s->out, "%s%s of %lld parameters; %lld tokens, %.0f per second%s\n", cli_dim(s), info->family,
            (long long)info->parameters, (long long)r->tokens, rate, cli_plain(s));
    return code;
}

/* Checks the folder name of -o and removes trailing slashes. */
static int take_folder(cli_session *s)
{
    static char folder[PATH_MAX];
    const char *out = s->options.out;
    size_t n = strlen(out), max = NAME_MAX - 32; /* leaves space for the names .NAME.tmp.PID and NAME.step-STEP */
    while (n > 0 && out[n - 1] == '/')
        n--;
    if (n >= sizeof folder) return cli_usage(s, "%s: the path is too long", cli_shown(out));
    memcpy(folder, out, n);
    folder[n] = '\0';
    const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
    if (!*name || strlen(name) > max)
        return cli_usage(s, "%s: the folder name must be 1 to %zu bytes long", cli_shown(out), max);
    s->options.out = folder;
    return CLI_DONE;
}

static int check(cli_session *s)
{
    const char *out = s->options.out;
    if (!out || !*out) return cli_usage(s, "missing -o FOLDER");
    if (strcmp(out, "-") == 0) return cli_usage(s, "-o requires a folder");
    const int code = take_folder(s);
    if (code != CLI_DONE) return code;
    if (train_run_is_link(s->options.out))
        return cli_usage(
            s, "%s must not be a symbolic link, since links are never overwritten: give the path of the folder",
            cli_shown(out));
    if (train_given.resume) return CLI_DONE;
    if (!s->options.force && access(train_run_path(s, "training.json"), F_OK) == 0)
        return cli_usage(s, "%s already contains a training run: --resume continues it, --force replaces it",
                         cli_shown(out));
    return cli_check_out_folder(s);
}

static bool resumes(void)
{
    return train_given.resume != 0;
}

static bool divides(void)
{
    return true;
}

static int run(cli_session *s)
{
    train_run training;
    int code = check(s);
    if (code == CLI_DONE) {
        code = train_run_open(s, train_given.resume != 0, train_given.config, &training);
        if (code == CLI_DONE) code = train_run_steps(&training);
        if (code == CLI_DONE) code = put_result(s, &training);
        const int freed = train_run_free(&training);
        if (code == CLI_DONE) code = freed;
    }
    train_settings_free_options();
    return code;
}

const cli_command cli_train = {
    .name = "train",
    .summary = "train a new model or a checkpoint on texts",
    .usage = "-o FOLDER -f FILE...",
    .details =
        "FOLDER is a checkpoint for mha and transformers, plus optimizer state (training.safetensors), settings "
        "(training.json) and log (training.jsonl). The folder is replaced every --save-every steps, at the end, and "
        "after Ctrl-C or SIGTERM. If the program is killed, the folder contains either the complete old or the "
        "complete new checkpoint. --resume continues with the settings of the checkpoint, bitwise identical to an "
        "uninterrupted run; without a checkpoint, it starts a new run.\n"
        "Decoders predict the next token, encoders the masked tokens. Texts (--documents) are concatenated, each "
        "followed by the end token, and split into sequences, which are read once per pass in an order that depends "
        "on --seed. Token files are .npy with uint16, int32 or int64 ids, or .bin as written by nanoGPT and llm.c.\n"
        "--config FILE is a JSON object of settings named like the options, with _ for -: {\"rate\": 0.0003, "
        "\"file\": [\"a.txt\"]}. docs/training.md is the manual.\n"
        "--json prints {out, family, parameters, steps, tokens, loss, eval_loss, perplexity, seconds, "
        "tokens_per_second}; loss is the loss of the last step, eval_loss the last loss on held-out text. --gates "
        "adds {heads, gates}: the number of open heads, and the gate of each head of each layer.\n"
        "--teacher MODEL trains on the outputs of MODEL (distillation), to repair a pruned or regrouped model. "
        "Encoders without logits learn to match the last hidden states of MODEL; each text is then one sequence.\n"
        "--gates multiplies each head by a trained gate, with a penalty for open gates. Closed heads are zeros in the "
        "saved model; mha prune --heads removes them permanently.\n"
        "mpirun -np P mha-mpi train --workers V divides the V workers among P processes, P = 1, 2, 4 ... V. The "
        "result does not depend on P.",
    .shared = CLI_MODEL | CLI_OUT | CLI_JSON,
    .options = options,
    .groups = groups,
    .examples = "mha train --shape llama:2x4x64 --tokenizer tokenizer -f stories.txt -o small\n"
                "mha train --resume --steps 60 -o small\n"
                "mha train --from small -f notes.txt --eval-share 0.1 -o tuned\n"
                "mha train --from small -f stories.txt --gates l0 --heads 6 --steps 40 -o fewer\n",
    .resumes = resumes,
    .divides = divides,
    .run = run,
};
