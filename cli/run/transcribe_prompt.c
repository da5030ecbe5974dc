/* transcribe_prompt.c - the first tokens of a transcript: they select language, task, and text without time stamps. */
#include "output.h"
#include "run/transcribe.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const no_times = "<|notimestamps|>", *const transcribe = "<|transcribe|>";

/* Returns false if generation_config.json says that the model has one language. */
static bool is_multilingual(const cli_session *s, const mha_tokenizer *tokenizer)
{
    char path[PATH_MAX];
    struct stat st; /* the size is limited, because parsing requires much more memory than the file has bytes */
    bool several = mha_tokenizer_id(tokenizer, transcribe) >= 0;
    if (snprintf(path, sizeof path, "%s/generation_config.json", s->model) >= (int)sizeof path) return several;
    if (stat(path, &st) != 0 || st.st_size > 1 << 20) return several;
    json_t *file = json_load_file(path, 0, NULL); /* the library has already read the file and rejects invalid JSON */
    if (json_is_false(json_object_get(file, "is_multilingual"))) several = false;
    json_decref(file);
    return several;
}

/* Returns true for tokens such as <|en|> and <|haw|>. */
static bool is_language(const char *token)
{
    const size_t bytes = token ? strlen(token) : 0;
    return (bytes == 6 || bytes == 7) && strncmp(token, "<|", 2) == 0 && strcmp(token + bytes - 2, "|>") == 0 &&
           strspn(token + 2, "abcdefghijklmnopqrstuvwxyz") == bytes - 4;
}

/* Sets *language to the most likely language after the start of a text; -1 if the model has no tokens of languages. */
static int detect(const cli_session *s, const mha_model *model, const float *features, int32_t start, int32_t *language)
{
    const mha_model_info *info = mha_model_describe(model), *encoder = mha_model_describe(mha_model_encoder(model));
    const mha_model_input source = {
        .size = sizeof source, .batch = 1, .length = encoder->max_positions, .features = features};
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 1, .ids = &start, .source = &source};
    float *logits = calloc((size_t)info->vocab, sizeof *logits);
    const mha_model_output output = {.size = sizeof output, .last_logits = logits};
    mha_error error = {0};
    *language = -1;
    if (!logits) return cli_error(s, CLI_FAILED, "out of memory for the logits");
    int code = CLI_DONE;
    if (mha_model_forward(model, &input, &output, &error) != MHA_OK) code = cli_refuse(s, &error);
    for (int32_t id = 0; code == CLI_DONE && id < info->vocab; id++)
        if (is_language(mha_tokenizer_token(mha_model_tokenizer(model), id)) &&
            (*language < 0 || logits[id] > logits[*language]))
            *language = id;
    free(logits);
    return code;
}

/* Finds the token of a language, such as en. */
static int find_language(const cli_session *s, const mha_tokenizer *tokenizer, const char *name, int32_t *id)
{
    char token[16];
    const bool fits = snprintf(token, sizeof token, "<|%s|>", name) < (int)sizeof token;
    *id = fits && is_language(token) ? mha_tokenizer_id(tokenizer, token) : -1;
    if (*id >= 0) return CLI_DONE;
    return cli_error(s, CLI_REFUSED,
                     "--language must be the code of a language that the model has, such as en (got %s)",
                     cli_shown(name));
}

static void append(transcribe_prompt *p, int32_t id)
{
    if (id >= 0) p->ids[p->count++] = id;
}

int transcribe_prompt_make(const cli_session *s, const mha_model *model, const char *language, const char *task,
                           const float *features, transcribe_prompt *p)
{
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    const int32_t start = (int32_t)mha_model_describe(model)->decoder_start;
    *p = (transcribe_prompt){.language = -1};
    if (start < 0) return cli_error(s, CLI_REFUSED, "the model must have decoder_start_token_id (got none)");
    append(p, start);
    if (!is_multilingual(s, tokenizer)) {
        if (language || task)
            return cli_error(s, CLI_REFUSED, "%s must not be given for a model with one language",
                             language ? "--language" : "--task");
    } else {
        const int code = language ? find_language(s, tokenizer, language, &p->language)
                                  : detect(s, model, features, start, &p->language);
        if (code != CLI_DONE) return code;
        append(p, p->language);
        const char *token = task && strcmp(task, "translate") == 0 ? "<|translate|>" : transcribe;
        const int32_t id = mha_tokenizer_id(tokenizer, token);
        if (id < 0) return cli_error(s, CLI_REFUSED, "the model must have the token %s for --task %s", token, task);
        append(p, id);
    }
    append(p, mha_tokenizer_id(tokenizer, no_times));
    return CLI_DONE;
}
