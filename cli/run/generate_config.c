/* generate_config.c - logs settings of generation_config.json as the equivalent options of `mha generate`. */
#include "run/generate_config.h"

#include "output.h"
#include <jansson.h>
#include <limits.h>
#include <sys/stat.h>

/* Writes the options for the settings of the file, for example " --top-k 20 --top-p 0.9". Filters apply only if the
 * file requests sampling; a missing key has the default of transformers. */
static void list_options(const json_t *file, const mha_generate_options *o, bool has_max, char *text, size_t room)
{
    const mha_sampling *s = &o->sampling;
    const struct {
        const char *key, *option;
        double unset, off;
        bool draws, given;
    } keys[] = {
        {"max_new_tokens", "-n", 0, 0, false, has_max},
        {"min_new_tokens", "--min-tokens", 0, 0, false, o->min_new > 0},
        {"repetition_penalty", "--repetition-penalty", 1, 1, false, s->repetition_penalty > 0},
        {"no_repeat_ngram_size", "--no-repeat-ngram", 0, 0, false, s->no_repeat_ngram > 0},
        {"temperature", "--temperature", 1, 0, true, s->temperature > 0},
        {"top_k", "--top-k", 50, 0, true, s->top_k > 0},
        {"top_p", "--top-p", 1, 1, true, s->top_p > 0},
        {"min_p", "--min-p", 0, 0, true, s->min_p > 0},
    };
    const bool draws = json_is_true(json_object_get(file, "do_sample"));
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(file, keys[i].key);
        const double number = json_is_number(value) ? json_number_value(value) : keys[i].unset;
        if (keys[i].given || number == keys[i].off || (keys[i].draws && !draws)) continue;
        const int n = snprintf(text + length, room - length, " %s %.9g", keys[i].option, number);
        if (n > 0 && (size_t)n < room - length) length += (size_t)n;
    }
}

void generate_config_say(const cli_session *session, const mha_generate_options *o, bool has_max)
{
    char path[PATH_MAX], text[400];
    if (snprintf(path, sizeof path, "%s/generation_config.json", session->model) >= (int)sizeof path) return;
    struct stat st; /* the size is limited to 1 MiB, because parsing 1 MiB of JSON requires up to 80 MiB of memory */
    if (stat(path, &st) != 0 || st.st_size > 1 << 20) return;
    json_t *file = json_load_file(path, 0, NULL); /* the library has already read the file and rejects invalid JSON */
    if (!file) return;
    list_options(file, o, has_max, text, sizeof text);
    json_decref(file);
    if (text[0])
        cli_say(session, "generation_config.json: to apply settings that are ignored by default, give%s", text);
}
