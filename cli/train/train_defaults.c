/* train_defaults.c - sets the defaults of settings, and converts settings to library options. */
#include "input/text_reader.h"
#include "options.h"
#include "output.h"
#include "train/train_settings.h"
#include <math.h>
#include <string.h>

static void whole(long long *value, long long usual)
{
    if (*value < 0) *value = usual;
}

static void number(double *value, double usual)
{
    if (isnan(*value)) *value = usual;
}

static const char *const followers[TRAIN_FOLLOWERS] = {"floor", "warmup", "gates_end"};

json_t *train_settings_following(const train_settings *t)
{
    json_t *keys = json_array();
    for (int n = 0; n < TRAIN_FOLLOWERS; n++)
        if (t->follows[n]) json_array_append_new(keys, json_string(followers[n]));
    return keys;
}

void train_settings_unset(train_settings *t, const json_t *keys)
{
    for (size_t i = 0; i < json_array_size(keys); i++) {
        const char *key = json_string_value(json_array_get(keys, i));
        if (key && strcmp(key, followers[TRAIN_FLOOR]) == 0) t->floor = NAN;
        if (key && strcmp(key, followers[TRAIN_WARMUP]) == 0) t->warmup = -1;
        if (key && strcmp(key, followers[TRAIN_GATES_END]) == 0) t->gates_end = -1;
    }
}

/* Checks that the value `text` of an option is one of the words; NULL (not given) is valid. */
static int check_word(const cli_session *s, const char *option, const char *text, const char *const *words)
{
    char list[80] = "";
    for (int n = 0; words[n]; n++) {
        if (!text || strcmp(text, words[n]) == 0) return CLI_DONE;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", n ? ", " : "", words[n]);
    }
    return cli_usage(s, "%s must be one of %s (got \"%s\")", option, list, cli_shown(text));
}

static const char *const schedules[] = {"cosine", "constant", NULL};
static const char *const export_dtypes[] = {"bf16", "f16", "f32", NULL};
static const char *const dtypes[] = {"f32", "bf16", NULL};
static const char *const decays[] = {"matrices", "dense", "all",
                                     NULL}; /* values of --decayed, in the order of mha_train_decay */

static const char *const reductions[] = {"tree", "fast", NULL}; /* in the order of mha_train_reduce */

long long train_settings_workers(const train_settings *t)
{
    return t->workers < 0 ? 1 : t->workers;
}

/* Checks --workers, --accumulate and --reduce. --workers and --reduce remain unset unless they are given, so that
 * training.json does not contain their defaults. */
static int check_workers(const cli_session *s, train_settings *t)
{
    const long long workers = train_settings_workers(t);
    whole(&t->accumulate, workers);
    if (workers & (workers - 1)) return cli_usage(s, "--workers must be a power of two (got %lld)", workers);
    if (t->accumulate % workers == 0) return check_word(s, "--reduce", t->reduce, reductions);
    return cli_usage(s, "--accumulate must be a multiple of --workers = %lld (got %lld)", workers, t->accumulate);
}

int train_settings_check(const cli_session *s, train_settings *t)
{
    int code = train_settings_check_texts(s, t);
    if (code == CLI_DONE) code = cli_documents_check(s, t->documents);
    if (code == CLI_DONE) code = check_word(s, "--schedule", t->schedule, schedules);
    if (code == CLI_DONE) code = check_word(s, "--decays", t->decays, decays);
    if (code == CLI_DONE) code = check_word(s, "--dtype", t->dtype, dtypes);
    if (code == CLI_DONE) code = check_word(s, "--moments", t->moments, dtypes);
    if (code == CLI_DONE) code = check_word(s, "--export-dtype", t->export_dtype, export_dtypes);
    if (code == CLI_DONE) code = check_workers(s, t);
    if (code == CLI_DONE) code = train_settings_check_gates(s, t);
    if (code == CLI_DONE) code = train_settings_check_teacher(s, t);
    if (code != CLI_DONE) return code;
    if (t->export_dtype && !t->export) return cli_usage(s, "--export-dtype requires --export");
    if (t->file.count && t->tokens.count) return cli_usage(s, "-f and --tokens are mutually exclusive");
    if (!t->file.count && !t->tokens.count)
        return cli_usage(s, "missing data: give texts with -f FILE, or token ids with --tokens FILE");
    whole(&t->batch, 8);
    whole(&t->seed, 0);
    number(&t->rate, t->from ? 5e-5 : 1e-3);
    t->follows[TRAIN_FLOOR] = isnan(t->floor);
    number(&t->floor, t->rate / 10);
    number(&t->decay, 0.1);
    number(&t->beta1, 0.9);
    number(&t->beta2, 0.95);
    number(&t->clip, 1);
    number(&t->mask, 0.15);
    number(&t->dropout, 0);
    whole(&t->eval_sequences, 512);
    whole(&t->sample_tokens, 40);
    number(&t->temperature, 0.8);
    number(&t->eval_share, 0);
    if (t->eval.count && t->eval_share > 0) return cli_usage(s, "--eval and --eval-share are mutually exclusive");
    if (t->floor > t->rate) return cli_usage(s, "--floor must be at most --rate = %g (got %g)", t->rate, t->floor);
    return CLI_DONE;
}

int train_settings_fit_model(const cli_session *s, train_settings *t, const mha_model_info *info,
                             const mha_model_info *teacher)
{
    int64_t max = info->max_positions < 128 ? info->max_positions : 128;
    if (teacher && teacher->max_positions < max) max = teacher->max_positions;
    whole(&t->length, max);
    if (!teacher || t->length <= teacher->max_positions) return CLI_DONE;
    return cli_usage(s, "--length must be at most the %lld tokens of the teacher (got %lld)",
                     (long long)teacher->max_positions, (long long)t->length);
}

int train_settings_fit_data(const cli_session *s, train_settings *t, int64_t sequences)
{
    const double of_step = (double)t->batch * (double)t->accumulate;
    const double steps = ceil((isnan(t->epochs) ? 1 : t->epochs) * (double)sequences / of_step);
    if (steps > 1e12)
        return cli_usage(s, "--epochs must give at most 1e12 steps (got %g epochs, %g steps)", t->epochs, steps);
    whole(&t->steps, (long long)steps);
    t->epochs = NAN; /* --epochs has been converted to --steps */
    t->follows[TRAIN_WARMUP] = t->warmup < 0;
    whole(&t->warmup, t->steps / 50);
    if (t->warmup > t->steps)
        return cli_usage(s, "--warmup must be at most the %lld steps (got %lld)", t->steps, t->warmup);
    return train_settings_fit_gates(s, t);
}

long long train_settings_every(const train_settings *t, long long given)
{
    if (given > 0) return given;
    if (t->save_every > 0) return t->save_every;
    return t->steps < 10 ? 1 : t->steps > 10000 ? 1000 : t->steps / 10;
}

/* Returns the dropout rate `own`, or --dropout if `own` is not given. */
static double share(const train_settings *t, double own)
{
    return isnan(own) ? t->dropout : own;
}

mha_train_options train_settings_options_of(const train_settings *t)
{
    const bool falls = !t->schedule || strcmp(t->schedule, schedules[0]) == 0;
    mha_train_options o = {.size = sizeof o,
                           .rate = t->rate,
                           .beta1 = t->beta1,
                           .beta2 = t->beta2,
                           .decay = t->decay,
                           .warmup = t->warmup,
                           .steps = falls ? t->steps : 0,
                           .floor = falls ? t->floor : 0,
                           .clip = t->clip,
                           .recompute = t->recompute,
                           .dropout = {.embedding = share(t, t->embedding_dropout),
                                       .attention = share(t, t->attention_dropout),
                                       .residual = share(t, t->residual_dropout)},
                           .dtype = t->dtype ? cli_dtype(t->dtype) : MHA_F32,
                           .moments = t->moments ? cli_dtype(t->moments) : MHA_F32,
                           .seed = (uint64_t)t->seed,
                           .gates = train_settings_gates_of(t),
                           .frozen = (const char *const *)t->freeze.item,
                           .frozen_count = t->freeze.count,
                           .workers = train_settings_workers(t),
                           .reduce = t->reduce && strcmp(t->reduce, reductions[MHA_REDUCE_FAST]) == 0};
    while (t->decays && strcmp(t->decays, decays[o.decays]) != 0)
        o.decays++;
    return o;
}
