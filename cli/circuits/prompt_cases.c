/* prompt_cases.c - reads pairs of prompts: tokens, answers and the measured position. */
#include "circuits/prompt_cases.h"

#include "input/input.h"
#include "input/sequence.h"
#include "options.h"
#include "output.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokens ---- */

const char *prompt_token(const mha_model *model, int32_t id, char text[PROMPT_TOKEN])
{
    char *name = cli_token_readable(mha_model_tokenizer(model), id);
    snprintf(text, PROMPT_TOKEN, "%s", cli_shown_start(name ? name : "", 24));
    free(name);
    return text;
}

/* Encodes a text, or parses ids with --ids. The caller must free *ids. */
static int read_tokens(const cli_session *s, const mha_model *model, const char *what, const char *text, int32_t **ids,
                       int64_t *count)
{
    mha_error error = {0};
    mha_encoding *encoding = NULL;
    const int64_t vocab = mha_model_describe(model)->vocab;
    *count = 0;
    if (s->options.ids) {
        const cli_texts one = {1, (const char *[]){text}, (size_t[]){strlen(text)}, NULL, NULL, NULL};
        *ids = calloc(strlen(text) / 2 + 1, sizeof **ids);
        return *ids ? cli_ids_read(s, &one, 0, vocab, *ids, count) : cli_error(s, CLI_FAILED, "out of memory for ids");
    }
    if (!mha_model_tokenizer(model))
        return cli_error(s, CLI_REFUSED, "%s has no tokenizer.json; give token ids with --ids",
                         cli_shown(s->model_name));
    if (mha_tokenizer_encode(mha_model_tokenizer(model), text, strlen(text), NULL, 0, NULL, &encoding, &error) !=
        MHA_OK)
        return cli_refuse(s, &error);
    *count = encoding->count;
    *ids = calloc((size_t)encoding->count + 1, sizeof **ids);
    if (*ids) memcpy(*ids, encoding->ids, (size_t)encoding->count * sizeof **ids);
    mha_encoding_free(encoding);
    if (!*ids) return cli_error(s, CLI_FAILED, "out of memory for ids");
    return *count ? CLI_DONE : cli_usage(s, "%s must have at least one token (got \"%s\")", what, cli_shown(text));
}

/* Returns the tokens of the clean prompt in the form that the functions of sequence.h accept. It must not be freed. */
static cli_sequence sequence_of(const mha_model *model, const prompt_case *one)
{
    return (cli_sequence){
        .tokenizer = (mha_tokenizer *)mha_model_tokenizer(model), .ids = one->clean, .count = one->length};
}

enum { PLACE = 500 };

/* Writes the name of an argument for messages: "--answer", or "pairs.jsonl: line 3: answer". */
static const char *place_of(const prompt_request *r, const char *member, char place[PLACE])
{
    snprintf(place, PLACE, "%s%s", r->line ? r->line : "--", member);
    return place;
}

/* Reads an answer, which must be one token. */
static int read_answer(const cli_session *s, const mha_model *model, const prompt_case *one, const prompt_request *r,
                       const char *member, const char *text, int32_t *id)
{
    char place[PLACE];
    const cli_sequence q = sequence_of(model, one);
    if (!text) return cli_usage(s, "missing %s TOKEN", place_of(r, member, place));
    return cli_sequence_answer(s, model, &q, place_of(r, member, place), text, id);
}

int prompt_position(const cli_session *s, const mha_model *model, const prompt_case *one, const char *option,
                    const char *text, int64_t *position)
{
    const cli_sequence q = sequence_of(model, one);
    return cli_sequence_position(s, &q, option, text, position);
}

/* Sets the position: as given, or the only mask token of an encoder, or the last token. */
static int set_position(const cli_session *s, const mha_model *model, const prompt_request *r, prompt_case *one)
{
    char place[PLACE];
    place_of(r, "position", place);
    one->position = one->length - 1;
    if (r->position) return prompt_position(s, model, one, place, r->position, &one->position);
    if (mha_model_describe(model)->causal) return CLI_DONE;
    const int32_t mask = mha_model_tokenizer(model) ? mha_tokenizer_mask_id(mha_model_tokenizer(model)) : -1;
    int64_t found = 0;
    for (int64_t t = 0; t < one->length; t++)
        if (one->clean[t] == mask) {
            one->position = t;
            found++;
        }
    return found == 1 ? CLI_DONE
                      : cli_usage(s, "%s is required unless the prompt has one mask token (got %lld)", place,
                                  (long long)found);
}

/* ---- one pair ---- */

static void show_rows(const cli_session *s, const mha_model *model, const int32_t *ids, int64_t count, const char *what)
{
    char token[PROMPT_TOKEN], line[1200];
    size_t used = 0;
    for (int64_t t = 0; t < count && used < sizeof line - PROMPT_TOKEN - 8; t++)
        used += (size_t)snprintf(line + used, sizeof line - used, "|%s", prompt_token(model, ids[t], token));
    line[used] = '\0';
    cli_say(s, "%-10s %lld tokens: %s|", what, (long long)count, line);
}

/* Checks that both prompts have the same number of tokens; otherwise shows both, and where they begin to differ. */
static int check_lengths(const cli_session *s, const mha_model *model, const prompt_request *r, const prompt_case *one,
                         int64_t corrupted)
{
    int64_t t = 0;
    if (one->length == corrupted) return CLI_DONE;
    while (t < one->length && t < corrupted && one->clean[t] == one->corrupted[t])
        t++;
    show_rows(s, model, one->clean, one->length, "clean");
    show_rows(s, model, one->corrupted, corrupted, "corrupted");
    return cli_usage(
        s, "%sboth prompts must have the same number of tokens (got %lld and %lld; they differ from token %lld)",
        r->line ? r->line : "", (long long)one->length, (long long)corrupted, (long long)t);
}

static int read_case(const cli_session *s, const mha_model *model, const char *clean, const char *corrupted,
                     const prompt_request *r, prompt_case *one)
{
    int64_t count = 0;
    char place[PLACE];
    int code =
        read_tokens(s, model, r->line ? place_of(r, "clean", place) : "the prompt", clean, &one->clean, &one->length);
    if (code == CLI_DONE)
        code = read_tokens(s, model, place_of(r, "corrupted", place), corrupted ? corrupted : clean, &one->corrupted,
                           &count);
    if (code == CLI_DONE) code = check_lengths(s, model, r, one, count);
    if (code == CLI_DONE) code = read_answer(s, model, one, r, "answer", r->answer, &one->answer);
    if (code == CLI_DONE) code = read_answer(s, model, one, r, "wrong", r->wrong ? r->wrong : r->answer, &one->wrong);
    if (code == CLI_DONE && r->wrong && one->wrong == one->answer)
        code = cli_usage(s, "%s must differ from the answer (got \"%s\")", place_of(r, "wrong", place),
                         cli_shown(r->wrong));
    return code == CLI_DONE ? set_position(s, model, r, one) : code;
}

static prompt_case *append(prompt_cases *cases)
{
    prompt_case *list = realloc(cases->list, (size_t)(cases->count + 1) * sizeof *list);
    if (!list) return NULL;
    cases->list = list;
    list[cases->count] = (prompt_case){0};
    return &list[cases->count++];
}

/* ---- corruption by noise ---- */

/* Parses --noise: token numbers or tokens, separated by commas. */
static int noise_positions(const cli_session *s, const mha_model *model, const prompt_case *one, const char *text,
                           int64_t *positions, int64_t *count)
{
    char *copy = strdup(text), *rest = copy;
    int code = copy ? CLI_DONE : cli_error(s, CLI_FAILED, "out of memory");
    for (char *word; code == CLI_DONE && (word = strsep(&rest, ","));) {
        if (*count == one->length)
            code = cli_usage(s, "--noise must have at most one entry per token (got \"%s\")", cli_shown(text));
        else
            code = prompt_position(s, model, one, "--noise", word, &positions[(*count)++]);
    }
    free(copy);
    return code;
}

/* Appends a copy of the first case, without its noise; NULL if memory is exhausted. */
static prompt_case *append_copy(prompt_cases *cases)
{
    prompt_case *one = append(cases);
    if (!one) return NULL;
    const prompt_case *first = cases->list;
    const size_t bytes = (size_t)first->length * sizeof *first->clean;
    *one = *first;
    one->noise = NULL;
    one->clean = malloc(bytes);
    one->corrupted = malloc(bytes);
    if (!one->clean || !one->corrupted) return NULL;
    memcpy(one->clean, first->clean, bytes);
    memcpy(one->corrupted, first->corrupted, bytes);
    return one;
}

/* Adds draw n of the noise: to the first case, or to a copy of it. */
static int add_draw(const cli_session *s, const mha_model *model, double times, const int64_t *positions, int64_t count,
                    long long n, prompt_cases *cases)
{
    mha_error error = {0};
    prompt_case *one = n ? append_copy(cases) : cases->list;
    const size_t elements = one ? (size_t)(one->length * mha_prompt_noise_width(model)) : 0;
    if (one) one->noise = malloc(elements * sizeof *one->noise);
    if (!one || !one->noise) return cli_error(s, CLI_FAILED, "out of memory for draws");
    const uint64_t seed = (uint64_t)s->options.seed + (uint64_t)n;
    return mha_prompt_noise(model, one->length, positions, count, times, seed, one->noise, &error) == MHA_OK
               ? CLI_DONE
               : cli_refuse(s, &error);
}

/* Makes a case per draw from the first case. */
static int add_draws(const cli_session *s, const mha_model *model, const prompt_request *r, prompt_cases *cases)
{
    long long draws = 10;
    double times = 3;
    int64_t count = 0;
    int64_t *positions = calloc((size_t)cases->list[0].length, sizeof *positions);
    if (!positions) return cli_error(s, CLI_FAILED, "out of memory for draws");
    int code = noise_positions(s, model, &cases->list[0], r->noise, positions, &count);
    if (code == CLI_DONE) code = cli_whole(s, "--draws", r->draws, 1, 10000, &draws);
    if (code == CLI_DONE) code = cli_number(s, "--noise-scale", r->times_std, 0, 1000, &times);
    for (long long n = 0; code == CLI_DONE && n < draws; n++)
        code = add_draw(s, model, times, positions, count, n, cases);
    free(positions);
    return code;
}

/* ---- a file of pairs ---- */

static const char *text_of(const json_t *line, const char *key)
{
    return json_string_value(json_object_get(line, key));
}

/* Returns whether a line is an object of strings with the keys of a pair; a number as position is allowed. */
static bool is_pair(json_t *line)
{
    const char *key;
    json_t *value;
    json_object_foreach(line, key, value)
    {
        const bool at = strcmp(key, "position") == 0;
        const bool known =
            at || !strcmp(key, "clean") || !strcmp(key, "corrupted") || !strcmp(key, "answer") || !strcmp(key, "wrong");
        if (!known || !(json_is_string(value) || (at && json_is_integer(value)))) return false;
    }
    return text_of(line, "clean") && text_of(line, "corrupted") && text_of(line, "answer") && text_of(line, "wrong");
}

static int read_line(const cli_session *s, const mha_model *model, const prompt_request *r, const char *name,
                     json_t *line, prompt_cases *cases)
{
    char position[24], place[PLACE];
    const json_t *at = json_object_get(line, "position");
    if (!is_pair(line))
        return cli_error(s, CLI_REFUSED,
                         "%s: pair must be an object with the strings clean, corrupted, answer and wrong, an optional "
                         "position, and no other keys",
                         name);
    prompt_request own = {.answer = text_of(line, "answer"),
                          .wrong = text_of(line, "wrong"),
                          .position = at ? json_string_value(at) : r->position};
    if (json_is_integer(at)) {
        snprintf(position, sizeof position, "%lld", (long long)json_integer_value(at));
        own.position = position;
    }
    snprintf(place, sizeof place, "%s: ", name);
    own.line = place;
    prompt_case *one = append(cases);
    if (!one) return cli_error(s, CLI_FAILED, "out of memory for pairs");
    return read_case(s, model, text_of(line, "clean"), text_of(line, "corrupted"), &own, one);
}

static int read_pairs(const cli_session *s, const mha_model *model, const prompt_request *r, prompt_cases *cases)
{
    char *text = NULL, *rest;
    size_t bytes = 0;
    int64_t number = 0;
    int code = cli_file_read(s, r->pairs, &text, &bytes);
    rest = text;
    for (char *line; code == CLI_DONE && (line = strsep(&rest, "\n"));) {
        json_t *object = NULL;
        char name[400];
        number++;
        if (line[strspn(line, " \t\r")] == '\0') continue;
        snprintf(name, sizeof name, "%s: line %lld", cli_shown(r->pairs), (long long)number);
        code = cli_json_parse(s, cli_shown(r->pairs), number, line, strlen(line), &object);
        if (code == CLI_DONE) code = read_line(s, model, r, name, object, cases);
        json_decref(object);
    }
    free(text);
    if (code == CLI_DONE && cases->count == 0)
        return cli_error(s, CLI_REFUSED, "%s: the file must contain at least one pair", cli_shown(r->pairs));
    return code;
}

/* ---- all cases ---- */

static int read_arguments(cli_session *s, const mha_model *model, const prompt_request *r, prompt_cases *cases)
{
    if (s->arg_count != 1) return cli_usage(s, "exactly one prompt is required (got %d)", s->arg_count);
    if (!r->corrupted && !r->noise && !r->alone)
        return cli_usage(s, "--corrupted TEXT, --noise TOKENS or --pairs FILE is required");
    if (!r->noise && (r->draws || r->times_std)) return cli_usage(s, "--draws and --noise-scale require --noise");
    if (r->corrupted && r->noise) return cli_usage(s, "--corrupted and --noise are mutually exclusive");
    prompt_case *one = append(cases);
    if (!one) return cli_error(s, CLI_FAILED, "out of memory for prompts");
    const int code = read_case(s, model, s->args[0], r->corrupted, r, one);
    return code == CLI_DONE && r->noise ? add_draws(s, model, r, cases) : code;
}

int prompt_cases_read(cli_session *s, const mha_model *model, const prompt_request *r, prompt_cases *cases)
{
    *cases = (prompt_cases){.same_length = true};
    if (mha_model_describe(model)->vocab == 0)
        return cli_error(s, CLI_REFUSED, "model must have logits of tokens (got %s)",
                         mha_model_describe(model)->family);
    if (r->pairs && (s->arg_count || r->corrupted || r->noise || r->draws || r->times_std || r->answer || r->wrong))
        return cli_usage(s, "--pairs replaces the prompt, --corrupted, --noise, --draws, --noise-scale, --answer and "
                            "--wrong");
    const int code = r->pairs ? read_pairs(s, model, r, cases) : read_arguments(s, model, r, cases);
    for (int64_t n = 1; n < cases->count; n++)
        if (cases->list[n].length != cases->list[0].length) cases->same_length = false;
    return code;
}

void prompt_cases_free(prompt_cases *cases)
{
    for (int64_t n = 0; n < cases->count; n++) {
        free(cases->list[n].clean);
        free(cases->list[n].corrupted);
        free(cases->list[n].noise);
    }
    free(cases->list);
    *cases = (prompt_cases){0};
}
