/* plan_train.c - options and training runs of `mha plan --train`. */
#include "plan/plan_train.h"

#include "model_name.h"
#include "options.h"
#include "output.h"
#include "plan/plan_hosts.h"
#include "session.h"
#include "train/train_inputs.h"
#include "train/train_model.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *steps, *seeds, *variants, *tokenizer, *rate, *feed_forward;
    const char **file, **eval;
    int train, encoder;
} given;

const struct poptOption plan_train_options[] = {
    {"train", 0, POPT_ARG_NONE, &given.train, 0,
     "with --measure: train a small model of each variant, with equal parameters, batches and steps", NULL},
    {"steps", 0, POPT_ARG_STRING, &given.steps, 0, "training steps (default: 300)", "N"},
    {"seeds", 0, POPT_ARG_STRING, &given.seeds, 0, "train each variant with seeds 0 to N - 1 (default: 5)", "N"},
    {"variants", 0, POPT_ARG_STRING, &given.variants, 0, "variants to train, separated by commas (default: all)",
     "LIST"},
    {"encoder", 0, POPT_ARG_NONE, &given.encoder, 0,
     "train encoders on masked tokens, which can have all variants (default: decoders); requires --tokenizer FOLDER "
     "with [CLS], [SEP] and [MASK]",
     NULL},
    {"file", 'f', POPT_ARG_ARGV, &given.file, 0, "train on the lines of FILE (default: the built-in stories)", "FILE"},
    {"eval", 0, POPT_ARG_ARGV, &given.eval, 0,
     "measure the loss on the lines of FILE (default: the last tenth of the data)", "FILE"},
    {"tokenizer", 0, POPT_ARG_STRING, &given.tokenizer, 0, "folder of the tokenizer (default: the built-in model's)",
     "FOLDER"},
    {"rate", 0, POPT_ARG_STRING, &given.rate, 0, "maximum learning rate (default: 0.001)", "X"},
    {"feed-forward", 0, POPT_ARG_STRING, &given.feed_forward, 0,
     "feed-forward width of variant mha (default: 2.75 d_model, for encoders 4 d_model)", "N"},
    POPT_TABLEEND};

bool plan_train_given(void)
{
    return given.train;
}

int plan_train_min_seq(void)
{
    return given.encoder ? 3 : 2;
}

int plan_train_absent(const cli_session *s)
{
    const struct {
        const char *option;
        bool set;
    } others[] = {{"--steps", given.steps},         {"--seeds", given.seeds}, {"--variants", given.variants},
                  {"--encoder", given.encoder},     {"-f", given.file},       {"--eval", given.eval},
                  {"--tokenizer", given.tokenizer}, {"--rate", given.rate},   {"--feed-forward", given.feed_forward}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].set) return cli_usage(s, "%s requires --train", others[i].option);
    return CLI_DONE;
}

/* ---- options ---- */

/* Sets the sizes that were not given. */
static void set_defaults(mha_head_layout_options *layout)
{
    if (!layout->d_model) {
        layout->d_model = 128;
        if (!layout->heads) layout->heads = 8;
    }
    if (!layout->layers) layout->layers = 2;
    if (!layout->seq) layout->seq = 64;
    if (!layout->batch) layout->batch = 16;
}

static int bad_variants(const cli_session *s)
{
    char list[128] = "";
    for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", v ? ", " : "",
                 mha_head_layout_variant_key((mha_head_layout_variant)v));
    return cli_usage(s, "--variants must be a list of %s (got \"%s\")", list, cli_shown(given.variants));
}

static int choose_variants(const cli_session *s, plan_training *r)
{
    for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++)
        r->chosen[v] = !given.variants;
    for (const char *at = given.variants; at;) {
        const size_t n = strcspn(at, ",");
        int v = 0;
        while (v < MHA_HEAD_LAYOUT_VARIANTS &&
               (strlen(mha_head_layout_variant_key((mha_head_layout_variant)v)) != n ||
                memcmp(mha_head_layout_variant_key((mha_head_layout_variant)v), at, n) != 0))
            v++;
        if (v == MHA_HEAD_LAYOUT_VARIANTS || r->chosen[v]) return bad_variants(s);
        r->chosen[v] = true;
        at = at[n] ? at + n + 1 : NULL;
    }
    return CLI_DONE;
}

static int read_number(const cli_session *s, const char *option, const char *text, long long max, int64_t *value)
{
    long long number = *value;
    const int code = cli_whole(s, option, text, 1, max, &number);
    *value = number;
    return code;
}

static json_t *paths_json(const char *const *paths)
{
    json_t *list = json_array();
    for (; paths && *paths; paths++)
        json_array_append_new(list, json_string(*paths));
    return list;
}

/* Returns the settings of `mha train` for these runs. The shape is that of a minimal model of the family, which only
 * provides the tokenizer, the vocabulary and the special tokens of the data. */
static json_t *settings_json(const plan_training *r, const char *tokenizer, const char *stories)
{
    const mha_head_layout_options *m = &r->layout;
    json_t *file = given.file ? paths_json(given.file) : json_pack("[s]", stories);
    json_t *all = json_pack("{s:s, s:s, s:o, s:I, s:I, s:I, s:i}", "shape", r->encoder ? "bert:1x1x8" : "llama:1x1x8",
                            "tokenizer", tokenizer, "file", file, "length", (json_int_t)m->seq, "batch",
                            (json_int_t)m->batch, "steps", (json_int_t)r->steps, "seed", 0);
    if (given.eval) json_object_set_new(all, "eval", paths_json(given.eval));
    return all;
}

static int read_settings(const cli_session *s, const plan_training *r, train_settings *t)
{
    char builtin[PATH_MAX], stories[PATH_MAX + sizeof "/../texts/stories.txt"];
    if ((!given.tokenizer || !given.file) && !cli_find_builtin(builtin))
        return cli_error(s, CLI_FAILED, "the folder share/mha/builtin is missing from the installation");
    snprintf(stories, sizeof stories, "%s/../texts/stories.txt", builtin);
    json_t *all = settings_json(r, given.tokenizer ? given.tokenizer : builtin, stories);
    int code = all ? train_settings_take(s, "options", all, t) : cli_usage(s, "options must be valid UTF-8");
    json_decref(all);
    if (code == CLI_DONE) code = cli_number(s, "--rate", given.rate, 1e-12, 1e6, &t->rate);
    return code == CLI_DONE ? train_settings_check(s, t) : code;
}

static int read_given(const cli_session *s, plan_training *r, int64_t *feed_forward, train_settings *t)
{
    if (given.encoder && !given.tokenizer)
        return cli_usage(s, "--encoder requires --tokenizer FOLDER with [CLS], [SEP] and [MASK]");
    int code = choose_variants(s, r);
    if (code == CLI_DONE) code = read_number(s, "--steps", given.steps, 1LL << 40, &r->steps);
    if (code == CLI_DONE) code = read_number(s, "--seeds", given.seeds, PLAN_SEEDS, &r->seeds);
    if (code == CLI_DONE) code = read_number(s, "--feed-forward", given.feed_forward, 1 << 24, feed_forward);
    return code == CLI_DONE ? read_settings(s, r, t) : code;
}

static void free_list(const char **list)
{
    for (int n = 0; list && list[n]; n++)
        free((char *)list[n]); /* popt allocates copies of list arguments */
    free(list);
}

/* ---- data ---- */

typedef struct inputs {
    mha_model *model; /* has the tokenizer */
    train_form form;
    mha_train_data *data, *held;
} inputs;

static int read_data(cli_session *s, train_settings *t, inputs *in)
{
    int code = train_model_open(s, t, &in->model);
    if (code == CLI_DONE) code = train_form_find(s, t, in->model, &in->form);
    in->form.data.shorten = 0;
    if (code == CLI_DONE) code = train_inputs_texts(s, &in->form.data, &t->file, NULL, &in->data);
    if (code == CLI_DONE && t->eval.count) code = train_inputs_texts(s, &in->form.data, &t->eval, NULL, &in->held);
    if (code != CLI_DONE) return code;
    return train_settings_fit_data(s, t, mha_train_data_describe(in->data)->sequences);
}

static void free_inputs(inputs *in)
{
    mha_train_data_free(in->data);
    mha_train_data_free(in->held);
    mha_model_free(in->model);
}

/* ---- training runs ---- */

static int train_one(cli_session *s, const mha_layout_training *o, plan_training *r, int variant, int64_t seed)
{
    mha_error error = {0};
    mha_layout_trial *trial = plan_trial(r, variant, seed);
    const mha_layout_model *model = &r->models[variant];
    const char *const key = mha_head_layout_variant_key(model->variant);
    const mha_status status = mha_layout_train(s->ctx, o, model, (uint64_t)seed, trial, &error);
    cli_progress_clear();
    if (status != MHA_OK) return cli_fail(s, &error);
    cli_say(s, "seed %lld of %lld, %s: loss %.4f, %.2f ms per step", (long long)seed + 1, (long long)r->seeds, key,
            trial->loss, 1e3 * trial->step_median);
    return cli_stopped();
}

/* Trains all variants with a seed before the next seed, so that a change of the load affects all variants. */
static int train_all(cli_session *s, const mha_layout_training *o, plan_training *r)
{
    for (int64_t seed = 0; seed < r->seeds; seed++)
        for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++) {
            const int code = r->trained[v] ? train_one(s, o, r, v, seed) : CLI_DONE;
            if (code != CLI_DONE) return code;
        }
    return CLI_DONE;
}

/* Returns true if a variant that a decoder cannot have can be trained in an encoder. */
static bool encoder_has(const cli_session *s, const mha_layout_training *o, int variant)
{
    mha_layout_model models[MHA_HEAD_LAYOUT_VARIANTS];
    mha_layout_training encoder = *o;
    encoder.encoder = 1;
    return !o->encoder && o->layout->seq > 2 && mha_layout_models(s->ctx, &encoder, models, NULL) == MHA_OK &&
           !models[variant].refused;
}

/* Prints why no chosen variant can be trained: the reason of the first of them. */
static int none_trained(const cli_session *s, const mha_layout_training *o, const plan_training *r)
{
    int v = 0;
    while (!r->chosen[v])
        v++;
    return cli_usage(s, "--variants must contain a variant that can be trained (got \"%s\"): %s: %s%s",
                     given.variants ? given.variants : "all", mha_head_layout_variant_key((mha_head_layout_variant)v),
                     r->models[v].refused, encoder_has(s, o, v) ? "; --encoder can train it" : "");
}

/* Refuses models whose training exceeds the memory of this machine. */
static int check_memory(const cli_session *s, const plan_training *r)
{
    const double gib = 1 << 30, available = (double)plan_machine_memory();
    for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++)
        if (r->trained[v] && r->models[v].train_bytes > available)
            return cli_error(s, CLI_REFUSED,
                             "training of variant %s needs %.1f GiB, %.1f GiB available: reduce --d-model, --layers, "
                             "--batch or --seq",
                             mha_head_layout_variant_key((mha_head_layout_variant)v), r->models[v].train_bytes / gib,
                             available / gib);
    return CLI_DONE;
}

static int find_models(cli_session *s, const mha_layout_training *o, plan_training *r)
{
    mha_error error = {0};
    bool any = false;
    if (mha_layout_models(s->ctx, o, r->models, &error) != MHA_OK) return cli_fail(s, &error);
    for (int v = 0; v < MHA_HEAD_LAYOUT_VARIANTS; v++)
        any |= r->trained[v] = r->chosen[v] && !r->models[v].refused;
    if (!any) return none_trained(s, o, r);
    const int code = check_memory(s, r);
    if (code != CLI_DONE) return code;
    r->trials = calloc((size_t)r->seeds * MHA_HEAD_LAYOUT_VARIANTS, sizeof *r->trials);
    return r->trials ? CLI_DONE : cli_error(s, CLI_FAILED, "out of memory for the results");
}

static int run(cli_session *s, plan_training *r, int64_t feed_forward, const train_settings *t, const inputs *in)
{
    const mha_train_options train = train_settings_options_of(t);
    r->layout.vocab = in->form.data.vocab;
    r->data = mha_train_data_describe(in->data);
    r->held_out = in->held ? mha_train_data_describe(in->held) : NULL;
    const mha_layout_training o = {.size = sizeof o,
                                   .layout = &r->layout,
                                   .train = &train,
                                   .data = in->data,
                                   .held_out = in->held,
                                   .feed_forward = feed_forward,
                                   .encoder = r->encoder,
                                   .tokenizer = in->form.data.tokenizer,
                                   .mask = in->form.mask};
    r->rate = train.rate;
    int code = find_models(s, &o, r);
    if (code == CLI_DONE) code = train_all(s, &o, r);
    return code == CLI_DONE ? plan_train_print(s, r) : code;
}

int plan_train(cli_session *s, mha_head_layout_options layout)
{
    mha_error error = {0};
    plan_training r = {.encoder = given.encoder, .steps = 300, .seeds = 5};
    train_settings t;
    inputs in = {0};
    int64_t feed_forward = 0;
    set_defaults(&layout);
    if (mha_head_layout_resolve(&layout, &r.layout, &error) != MHA_OK) return cli_fail(s, &error);
    train_settings_none(&t);
    int code = read_given(s, &r, &feed_forward, &t);
    if (code == CLI_DONE) code = read_data(s, &t, &in);
    if (code == CLI_DONE) code = run(s, &r, feed_forward, &t, &in);
    free(r.trials);
    free_inputs(&in);
    train_settings_free(&t);
    free_list(given.file);
    free_list(given.eval);
    return code;
}
