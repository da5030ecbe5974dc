/* cmd_prune.c - `mha prune`: removes heads, or searches for the largest number of heads that can be removed. */
#include "commands.h"
#include "draw/figure.h"
#include "edit/prune_job.h"
#include "options.h"
#include "output.h"
#include "word_wrap.h"
#include <stdlib.h>
#include <string.h>

static prune_options given;

static const struct poptOption options[] = {
    IMPORTANCE_SCORES_OPTIONS_FOR("how to choose heads: joint (default) or a score, see below"),
    IMPORTANCE_SCORES_FILE,
    {"ratio", 0, POPT_ARG_STRING, &given.ratio, 0,
     "fraction of the model's heads to remove, 0 to 1, rounded to the nearest head or group", "R"},
    {"count", 0, POPT_ARG_STRING, &given.count, 0,
     "number of heads to remove; with shared keys, rounded up to whole groups", "N"},
    {"per-layer", 0, POPT_ARG_NONE, &given.per_layer, 0,
     "remove the same number of heads from every layer; a ratio is rounded up", NULL},
    {"floor", 0, POPT_ARG_STRING, &given.floor, 0, "minimum number of heads per layer (default: 1)", "N"},
    {"heads", 0, POPT_ARG_STRING, &given.heads, 0, "remove these heads, numbered as in the unpruned model", "L.H,..."},
    {"keep", 0, POPT_ARG_STRING, &given.keep, 0,
     "keep the heads listed in this JSON file: a list per layer, or a config.json", "FILE"},
    {"part", 0, POPT_ARG_STRING, &given.part, 0,
     "prune the encoder of an encoder-decoder, or the image tower of a CLIP model: encoder or image", "PART"},
    {"fill", 0, POPT_ARG_NONE, &given.fill, 0, "add the mean output of the removed heads to the output bias", NULL},
    {"refit", 0, POPT_ARG_NONE, &given.refit, 0, "refit the output projections on the texts", NULL},
    {"ridge", 0, POPT_ARG_STRING, &given.ridge, 0, "ridge parameter of --refit, 0.001 to 1000 (default: 3)", "X"},
    {"compatible", 0, POPT_ARG_NONE, &given.compatible, 0,
     "keep the original tensor shapes, zero-filled, so that Hugging Face transformers can load the model", NULL},
    {"test", 0, POPT_ARG_STRING, &given.test, 0, "evaluate on these texts (default: every fourth text of -f)", "FILE"},
    {"search", 0, POPT_ARG_NONE, &given.search, 0, "find how many heads can be removed; -o draws the curve", NULL},
    {"max-loss-increase", 0, POPT_ARG_STRING, &given.max_increase, 0, "maximum loss increase that --search allows",
     "X"},
    POPT_TABLEEND};

/* ---- output ---- */

/* Returns a warning if the heads or scores were given by the user, because they may have been chosen on the held-out
 * texts; otherwise NULL. */
static const char *unknown_choice(const prune_job *job, char text[IMPORTANCE_SCORES_UNKNOWN])
{
    if (!given.heads && !given.keep) return importance_scores_unknown(&job->by, text);
    return given.heads ? "The heads given with --heads may have been chosen on these texts."
                       : "The heads given with --keep may have been chosen on these texts.";
}

static int put_result(const prune_job *job, const held_out_evaluation *e)
{
    char text[IMPORTANCE_SCORES_UNKNOWN];
    const char *unknown = unknown_choice(job, text);
    const char *learned = !job->texts.learn ? NULL : unknown ? "fitting" : "choosing or fitting";
    cli_session *s = job->session;
    if (!s->options.json) {
        prune_parts_print(job);
        held_out_print_title(s);
        held_out_print_row(s, "heads", e->of.heads[0], e->of.heads[1]);
        held_out_print_rest(s, e, learned, unknown);
        return CLI_DONE;
    }
    json_t *all = json_pack("{s:s, s:s, s:s, s:o, s:o}", "model", cli_shown(s->model_name), "out",
                            cli_shown(s->options.out), "chosen_by", job->chosen_by, "removed",
                            prune_parts_json(job, NULL), "heads", held_out_pair_json(e->of.heads[0], e->of.heads[1]));
    held_out_add_json(all, e);
    return cli_put_json(s, all, false);
}

/* ---- pruning ---- */

static int make(prune_job *job, mha_model_edit **edit, held_out_evaluation *e)
{
    mha_error error = {0};
    const mha_prune_options how = prune_choice_options(job);
    if (mha_prune(job->model, job->keep[0], &how, edit, &error) != MHA_OK) return cli_reject(job->session, &error);
    return held_out_evaluate(job->session, *edit, &job->texts, e);
}

static int prune(prune_job *job)
{
    held_out_evaluation e;
    mha_model_edit *edit = NULL;
    int code = prune_choice_make(job);
    if (code == CLI_DONE) code = make(job, &edit, &e);
    if (code == CLI_DONE && given.compatible) /* the removed heads are still in the file */
        e.of.heads[1] = e.of.heads[0] - prune_parts_removed(job);
    if (code == CLI_DONE) code = held_out_save(job->session, edit, &e);
    if (code == CLI_DONE) {
        cli_say(job->session, "%s: %lld of %lld heads kept%s", cli_out_name(job->session), (long long)e.of.heads[1],
                (long long)e.of.heads[0], given.compatible ? ", the removed heads set to zero" : "");
        prune_choice_log(job);
        if (!given.compatible) held_out_log_transformers(job->session, &e);
        code = put_result(job, &e);
    }
    mha_model_edit_free(edit);
    return code;
}

/* Returns true if heads are chosen or weights fitted on texts. */
static bool prune_learns(const prune_job *job)
{
    return prune_choice_learns(job) || given.fill || given.refit;
}

static int check(prune_job *job)
{
    cli_session *s = job->session;
    int code = prune_choice_check(job);
    if (code == CLI_DONE) code = cli_number(s, "--ridge", given.ridge, 0.001, 1000, &job->ridge);
    if (code == CLI_DONE) code = cli_number(s, "--max-loss-increase", given.max_increase, 0, 1000, &job->max_increase);
    if (code != CLI_DONE) return code;
    code = cli_texts_of_file(s, prune_learns(job) || (given.search && !given.test));
    if (code != CLI_DONE) return code;
    if (given.ridge && !given.refit) return cli_usage(s, "--ridge requires --refit");
    if (given.max_increase && !given.search) return cli_usage(s, "--max-loss-increase requires --search");
    if (given.search && given.compatible)
        return cli_usage(s, "--compatible must not be given with --search, since --search writes no model");
    if (given.search && s->options.out && !figure_knows(s->options.out))
        return cli_usage(s, "with --search, -o must end in .png, .svg or .pdf (got \"%s\")", cli_shown(s->options.out));
    if (!given.search && !s->options.out) return cli_usage(s, "missing -o FOLDER");
    if (!given.search) return cli_check_out_folder(s);
    return s->options.out ? cli_check_out(s) : CLI_DONE;
}

static int work(prune_job *job)
{
    const bool learns = prune_learns(job);
    const bool reads = job->session->options.file || given.test;
    const mha_model_options how = {.size = sizeof how, .no_tokenizer = !reads};
    int code = cli_model_open(job->session, &how, &job->opened);
    if (code == CLI_DONE) code = prune_parts_find(job);
    if (code != CLI_DONE) return code;
    if (job->info->image_channels && (reads || learns || given.search))
        return cli_usage(job->session,
                         "heads of %s, which reads images, must be given with --heads or --keep, or chosen with --by "
                         "ov_norm or qk_norm, without -f and --test",
                         job->info->family);
    if (learns && !job->session->options.file)
        return cli_usage(job->session, "missing texts to choose heads or fit weights on: give -f FILE");
    code = held_texts_read(job->session, job->model, given.test, learns, &job->by, &job->texts);
    if (code == CLI_DONE && given.search && !job->texts.held)
        code = cli_usage(job->session, "missing texts for --search: give -f FILE");
    if (code == CLI_DONE) code = prune_choice_measure(job);
    if (code != CLI_DONE) return code;
    return given.search ? prune_curve(job) : prune(job);
}

static const cli_word words[] = {
    {"mha_prune_rule: count must ", "--count must "}, {"mha_prune_rule: ratio must ", "--ratio must "}, {NULL, NULL}};

static int run(cli_session *s)
{
    prune_job job = {.session = s, .given = given, .rule = {.size = sizeof(mha_prune_rule)}};
    cli_message_words(words);
    int code = check(&job);
    if (code == CLI_DONE) code = work(&job);
    held_texts_free(&job.texts);
    prune_parts_free(&job);
    mha_model_free(job.opened);
    free(job.scores);
    return code;
}

/* Returns true if processes can divide the measurements. Heads given by --heads or --keep are not measured, except for
 * --fill and --search. */
static bool divides(void)
{
    const bool measures = (!given.heads && !given.keep) || given.fill || given.search;
    return measures && importance_scores_divide();
}

static void print_scores(FILE *out, int columns)
{
    enum { MARGIN = 24 };
    fputs("\nHeads are chosen by:\n", out);
    fprintf(out, "  %-*s", MARGIN - 2, "joint");
    cli_put_wrapped(out, columns, MARGIN, MARGIN, "heads whose joint removal changes the output least are removed");
    fprintf(out, "  %-*s", MARGIN - 2, "a score");
    cli_put_wrapped(out, columns, MARGIN, MARGIN, "heads with low scores are removed first");
    importance_scores_put_lists(out, columns, MARGIN);
}

const cli_command cli_prune = {
    .name = "prune",
    .summary = "remove attention heads and write the smaller model",
    .usage = "-o FOLDER",
    .details =
        "The rows and columns of the heads are removed from the weights; heads that share keys are removed together. "
        "The folder contains the tokenizer and config and can be loaded and pruned again. Heads keep their original "
        "numbers (mha.heads in config.json); mha.record lists the removed heads, the source file (sha256) and the "
        "measured quality. transformers loads the folder if all layers have the same number of heads and, for LLaMA "
        "and Gemma-2, the hidden size is a multiple of that number. In all other cases, and always for BERT and "
        "GPT-2, whose head width is derived from the hidden size, use --compatible, which keeps the original shapes "
        "and writes zeros.\n"
        "An encoder-decoder has three kinds of heads, which --heads names as decoder.L.H (or L.H), cross.L.H "
        "(cross-attention of the decoder) and encoder.L.H. Heads of all kinds are chosen together, on source/target "
        "pairs: "
        "each line of -f and --test is a source and a target, separated by a tab. --part encoder prunes only the "
        "encoder, and chooses its heads on texts like those of other encoders. transformers loads a T5 if all layers "
        "of all kinds keep the same number of heads, and the layers of a side the same heads. --part image prunes the "
        "image tower of a CLIP model.\n"
        "--by accepts the scores and losses of mha heads; with --loss pairs, each line of -f contains two paraphrases "
        "separated by a tab. --scores FILE reads the output of mha heads --by SCORE (--json or --csv) for this model; "
        "- is standard input. For an encoder-decoder, the scores are those of source/target pairs, which cover its "
        "three "
        "kinds of heads; --part encoder also reads scores of the encoder only. With --scores, --loss pairs declares "
        "that each line of -f is a pair.\n"
        "Quality and speed are measured on held-out texts: the texts of --test or, by default, every fourth text of "
        "-f. (The scores of --scores may have been measured on these texts.) --search removes heads step by step and "
        "reports the largest number of heads whose removal increases the loss on the held-out texts by at most "
        "--max-loss-increase (decoders: mean -log p per token; encoders: 1 - cosine). It also prints the curve, and "
        "the --heads option that repeats the pruning; with --per-layer, it removes the same number of heads from every "
        "layer. -o FILE.svg, .png or .pdf draws the curve.\n"
        "--json prints {model, out, chosen_by, removed, heads, parameters, bytes, kv_bytes_per_token, quality, "
        "tokens_per_second}, where pairs are [before, after]. With --search, it prints {model, chosen_by, held_out, "
        "texts, max_loss_increase, curve: [{heads, parameters, bytes, kv_bytes_per_token, loss, mean_cosine, "
        "tokens_per_second, within}], best}, where loss is the increase and best also lists the removed heads.",
    .lists = print_scores,
    .shared = CLI_MODEL | CLI_FILE | CLI_IDS | CLI_OUT | CLI_JSON | CLI_SEED,
    .options = options,
    .examples = "mha prune --ratio 0.25 -f texts.txt -o pruned\n"
                "mha prune --heads 0.1,1.2 -o smaller\n"
                "mha prune --search -f texts.txt -o curve.svg\n",
    .divides = divides,
    .run = run,
};
