/* cmd_transcribe.c - `mha transcribe`: writes the text of speech in WAV files, and the time of each word. */
#include "commands.h"
#include "input/input.h"
#include "memory.h"
#include "options.h"
#include "output.h"
#include "run/transcribe.h"
#include "session.h"
#include <stdlib.h>
#include <string.h>

static struct {
    const char *max, *language, *task, *at_once;
    int times;
} given;

static const struct poptOption options[] = {
    {"language", 0, POPT_ARG_STRING, &given.language, 0, "language of the speech, such as en (default: detected)",
     "CODE"},
    {"task", 0, POPT_ARG_STRING, &given.task, 0, "transcribe (default), or translate to English", "TASK"},
    {"times", 0, POPT_ARG_NONE, &given.times, 0, "print when each word begins and ends", NULL},
    {"tokens", 'n', POPT_ARG_STRING, &given.max, 0, "maximum number of tokens per window (default: as many as fit)",
     "N"},
    {"at-once", 0, POPT_ARG_STRING, &given.at_once, 0, "number of windows computed in one batch (default: 8)", "N"},
    POPT_TABLEEND};

/* ---- one file ---- */

enum { AT_ONCE = 8, AT_ONCE_MAX = 4096 };

/* The transcript of a file, and the buffers of a batch of windows. */
typedef struct transcript {
    cli_session *session;
    const mha_model *model;
    const char *file;
    float *samples;
    int64_t count;        /* number of samples */
    int64_t bins, frames; /* shape of the features of a window */
    int64_t at_once, max_new;
    transcribe_prompt prompt;
    float *features;      /* [at_once, bins, frames] */
    const float **inputs; /* [at_once] features of each window */
    mha_prompt *prompts;  /* [at_once] the prompt of each window */
    int32_t *out;         /* [at_once, max_new] */
    int64_t *lengths;     /* [at_once] */
    int32_t *ids;         /* [id_count] tokens of all windows */
    int64_t id_count;
    transcribe_words words;
} transcript;

static int64_t window_samples(const transcript *t)
{
    return t->frames * MHA_AUDIO_HOP;
}

static double seconds_of(int64_t samples)
{
    return (double)samples / MHA_AUDIO_RATE;
}

/* Computes the features of `count` windows, beginning with number `first`. */
static int make_features(const transcript *t, int64_t first, int64_t count)
{
    mha_error error = {0};
    for (int64_t n = 0; n < count; n++) {
        const int64_t at = (first + n) * window_samples(t);
        if (mha_audio_features(t->session->ctx, t->samples + at, t->count - at, t->bins, t->frames,
                               t->features + n * t->bins * t->frames, &error) != MHA_OK)
            return cli_refuse(t->session, &error);
    }
    return CLI_DONE;
}

/* Returns the length of a text without an end-of-text token, which has no time. */
static int64_t without_end(const transcript *t, const int32_t *ids, int64_t length)
{
    return length > 0 && mha_tokenizer_is_special(mha_model_tokenizer(t->model), ids[length - 1]) ? length - 1 : length;
}

/* Computes the times of the words of a window. */
static int add_words(transcript *t, int64_t window, const float *features, const int32_t *new_ids, int64_t length)
{
    const int64_t origin = window * window_samples(t), left = t->count - origin, count = t->prompt.count + length;
    const int64_t samples = left < window_samples(t) ? left : window_samples(t), frames = samples / MHA_AUDIO_HOP;
    const mha_token_times_options o = {.size = sizeof o, .prompt = t->prompt.count, .frames = frames < 2 ? 2 : frames};
    int32_t *ids = calloc((size_t)count, sizeof *ids);
    double *seconds = calloc((size_t)count, sizeof *seconds);
    mha_error error = {0};
    int code = ids && seconds ? CLI_DONE : cli_error(t->session, CLI_FAILED, "out of memory for the words");
    if (code == CLI_DONE) {
        memcpy(ids, t->prompt.ids, (size_t)t->prompt.count * sizeof *ids);
        memcpy(ids + t->prompt.count, new_ids, (size_t)length * sizeof *ids);
        if (mha_model_token_times(t->model, features, ids, count, &o, seconds, &error) != MHA_OK)
            code = cli_refuse(t->session, &error);
    }
    if (code == CLI_DONE)
        code = transcribe_words_add(t->session, mha_model_tokenizer(t->model), new_ids, length, seconds,
                                    seconds_of(origin), seconds_of(origin + samples), &t->words);
    free(ids);
    free(seconds);
    return code;
}

/* Keeps the tokens of a window, and the words. */
static int keep(transcript *t, int64_t window, const float *features, const int32_t *ids, int64_t length)
{
    const int64_t count = without_end(t, ids, length);
    int32_t *all = realloc(t->ids, (size_t)(t->id_count + count + 1) * sizeof *all);
    if (!all) return cli_error(t->session, CLI_FAILED, "out of memory for the text");
    memcpy(all + t->id_count, ids, (size_t)count * sizeof *ids);
    t->ids = all;
    t->id_count += count;
    return given.times && count ? add_words(t, window, features, ids, count) : CLI_DONE;
}

static int run_windows(transcript *t, int64_t first, int64_t count)
{
    mha_error error = {0};
    const mha_generate_options o = {
        .size = sizeof o, .max_new = t->max_new, .at_once = t->at_once, .features = t->inputs};
    if (mha_model_generate(t->model, t->prompts, count, &o, t->out, t->lengths, &error) != MHA_OK)
        return cli_refuse(t->session, &error);
    int code = CLI_DONE;
    for (int64_t n = 0; n < count && code == CLI_DONE; n++)
        code = keep(t, first + n, t->inputs[n], t->out + n * t->max_new, t->lengths[n]);
    return code == CLI_DONE ? cli_stopped() : code;
}

/* Sets the number of new tokens per window, which must fit the positions of the decoder. */
static int fit(transcript *t)
{
    const int64_t max = mha_model_describe(t->model)->max_positions - t->prompt.count;
    long long number = max;
    if (max < 1)
        return cli_error(t->session, CLI_REFUSED, "the model must have more positions than the prompt (got %lld)",
                         (long long)(max + t->prompt.count));
    const int code = cli_whole(t->session, "-n", given.max, 1, max, &number);
    t->max_new = number;
    return code;
}

static int allocate(transcript *t)
{
    t->out = calloc((size_t)t->at_once, (size_t)t->max_new * sizeof *t->out);
    t->lengths = calloc((size_t)t->at_once, sizeof *t->lengths);
    t->inputs = calloc((size_t)t->at_once, sizeof *t->inputs);
    t->prompts = calloc((size_t)t->at_once, sizeof *t->prompts);
    if (!t->out || !t->lengths || !t->inputs || !t->prompts)
        return cli_error(t->session, CLI_FAILED, "out of memory for %lld tokens", (long long)(t->at_once * t->max_new));
    for (int64_t n = 0; n < t->at_once; n++) {
        t->inputs[n] = t->features + n * t->bins * t->frames;
        t->prompts[n] = (mha_prompt){t->prompt.ids, t->prompt.count};
    }
    return CLI_DONE;
}

/* ---- results ---- */

static json_t *words_json(const transcribe_words *words)
{
    json_t *list = json_array();
    for (int64_t n = 0; n < words->count; n++)
        json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "word", words->list[n].text, "begin",
                                              cli_real(words->list[n].begin), "end", cli_real(words->list[n].end)));
    return list;
}

static json_t *ids_json(const transcript *t)
{
    json_t *list = json_array();
    for (int64_t n = 0; n < t->id_count; n++)
        json_array_append_new(list, json_integer(t->ids[n]));
    return list;
}

static int put_json(const transcript *t, const char *text, size_t bytes)
{
    char language[8] = "";
    const char *token =
        t->prompt.language < 0 ? NULL : mha_tokenizer_token(mha_model_tokenizer(t->model), t->prompt.language);
    if (token) snprintf(language, sizeof language, "%.*s", (int)strlen(token) - 4, token + 2);
    json_t *object =
        json_pack("{s:s, s:o, s:o, s:s%, s:o}", "file", t->file, "seconds", cli_real(seconds_of(t->count)), "language",
                  token ? json_string(language) : json_null(), "text", text, bytes, "ids", ids_json(t));
    if (object && given.times) json_object_set_new(object, "words", words_json(&t->words));
    return cli_put_json(t->session, object, false);
}

static void print_words(const transcript *t)
{
    for (int64_t n = 0; n < t->words.count; n++) {
        const transcribe_word *w = &t->words.list[n];
        fprintf(t->session->out, "%s%8.2f %8.2f%s  ", cli_dim(t->session), w->begin, w->end, cli_plain(t->session));
        cli_put_shown(t->session->out, w->text, strlen(w->text));
        fputc('\n', t->session->out);
    }
}

static int put_result(const transcript *t, int64_t index, int64_t files)
{
    const cli_session *s = t->session;
    const mha_tokenizer *tokenizer = mha_model_tokenizer(t->model);
    char *text = NULL;
    size_t bytes = 0;
    mha_error error = {0};
    int code = CLI_DONE;
    if (mha_tokenizer_decode(tokenizer, t->ids, t->id_count, 1, &text, &bytes, &error) != MHA_OK)
        return cli_refuse(s, &error);
    const size_t spaces = strspn(text, " ");
    if (s->options.json) code = put_json(t, text + spaces, bytes - spaces);
    if (!s->options.json && files > 1)
        fprintf(s->out, "%s%s%s%s\n", index ? "\n" : "", cli_bold(s), cli_shown(t->file), cli_plain(s));
    if (!s->options.json && given.times) print_words(t);
    if (!s->options.json && !given.times) {
        cli_put_running(s->out, text + spaces, bytes - spaces);
        fputc('\n', s->out);
    }
    mha_tokenizer_text_free(tokenizer, text);
    return code;
}

/* ---- files ---- */

static int transcribe_samples(transcript *t)
{
    const int64_t windows = (t->count + window_samples(t) - 1) / window_samples(t);
    if (windows < t->at_once) t->at_once = windows;
    t->features = calloc((size_t)(t->at_once * t->bins), (size_t)t->frames * sizeof *t->features);
    if (!t->features) return cli_error(t->session, CLI_FAILED, "out of memory for features");
    int code = make_features(t, 0, 1);
    if (code == CLI_DONE)
        code = transcribe_prompt_make(t->session, t->model, given.language, given.task, t->features, &t->prompt);
    if (code == CLI_DONE) code = fit(t);
    if (code == CLI_DONE) code = allocate(t);
    for (int64_t first = 0, count; first < windows && code == CLI_DONE; first += count) {
        count = windows - first < t->at_once ? windows - first : t->at_once;
        code = make_features(t, first, count);
        if (code == CLI_DONE) code = run_windows(t, first, count);
    }
    return code;
}

static int transcribe_file(cli_session *s, const mha_model *model, int64_t index, int64_t at_once)
{
    const mha_model_info *encoder = mha_model_describe(mha_model_encoder(model));
    transcript t = {.session = s,
                    .model = model,
                    .file = s->args[index],
                    .bins = encoder->feature_bins,
                    .frames = 2 * encoder->max_positions,
                    .at_once = at_once};
    mha_error error = {0};
    int code = CLI_DONE;
    if (mha_audio_read(s->ctx, t.file, &t.samples, &t.count, &error) != MHA_OK) code = cli_refuse(s, &error);
    if (code == CLI_DONE) code = transcribe_samples(&t);
    if (code == CLI_DONE) code = put_result(&t, index, s->arg_count);
    mha_audio_free(s->ctx, t.samples);
    transcribe_words_free(&t.words);
    free(t.features);
    free(t.inputs);
    free(t.prompts);
    free(t.out);
    free(t.lengths);
    free(t.ids);
    return code;
}

static int check_model(const cli_session *s, const mha_model *model)
{
    const mha_model *encoder = mha_model_encoder(model);
    if (!encoder || !mha_model_describe(encoder)->feature_bins)
        return cli_error(s, CLI_REFUSED, "%s must be a model that reads audio, such as whisper (got %s)",
                         cli_shown(s->model_name), mha_model_describe(model)->family);
    if (mha_model_tokenizer(model)) return CLI_DONE;
    return cli_error(s, CLI_REFUSED, "%s must have a tokenizer", cli_shown(s->model_name));
}

static int run(cli_session *s)
{
    mha_model *model = NULL;
    long long at_once = AT_ONCE;
    if (s->arg_count < 1) return cli_usage(s, "a WAV file must be given");
    if (given.task && strcmp(given.task, "transcribe") != 0 && strcmp(given.task, "translate") != 0)
        return cli_usage(s, "--task must be one of transcribe, translate (got \"%s\")", cli_shown(given.task));
    int code = cli_whole(s, "--at-once", given.at_once, 1, AT_ONCE_MAX, &at_once);
    if (code == CLI_DONE) code = cli_model_open(s, NULL, &model);
    if (code == CLI_DONE) code = check_model(s, model);
    for (int64_t n = 0; n < s->arg_count && code == CLI_DONE; n++)
        code = transcribe_file(s, model, n, at_once);
    mha_model_free(model);
    return code;
}

const cli_command cli_transcribe = {
    .name = "transcribe",
    .summary = "write the text of speech in WAV files, with the times of words",
    .usage = "FILE.wav...",
    .details =
        "The model must read audio (whisper). A file must have 16,000 samples per second, as PCM or float, with one "
        "or two channels. Audio that is longer than a window of the model, 30 seconds in published models, is "
        "divided into windows, whose texts are joined; a word at a boundary may be lost. Without --language, a "
        "multilingual model chooses the language of the first window. With --times, a word begins where the "
        "attention of the checkpoint's alignment heads (generation_config.json) reaches it; words are separated by "
        "spaces. --json prints one object per file: {file, seconds, language, text, ids} and, with --times, words: "
        "[{word, begin, end}].",
    .shared = CLI_MODEL | CLI_JSON | CLI_DTYPE,
    .options = options,
    .examples = "mha transcribe -m whisper-small speech.wav\n"
                "mha transcribe -m whisper-small --times --json speech.wav\n",
    .run = run,
};
