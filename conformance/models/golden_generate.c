/* golden_generate.c - compares a model's greedy output with its golden output: with and without a cache, and for
 * several prompts together. */
#include "conformance/models/golden_model.h"
#include "mha/generate.h"
#include "mha/seq2seq.h"
#include <string.h>

enum { TWINS = 3 };

/* The recorded input: a prompt, or the source of an encoder-decoder, as tokens or as audio features. */
typedef struct recorded_input {
    mha_prompt tokens;
    const float *features; /* NULL = tokens */
} recorded_input;

/* Continues the prompt and compares the tokens: several copies of the prompt with a cache, or one copy without a
 * cache. Each text of an encoder-decoder begins with the first token of the model. */
static void check_run(const mha_model *model, const recorded_input *input, const char *name, const int64_t *want,
                      int64_t count, bool cached, int32_t *room, verify_case *outcome)
{
    int64_t lengths[TWINS], wrong = 0;
    mha_error error = {0};
    static const mha_prompt starts[TWINS] = {{0}};
    const mha_prompt prompts[TWINS] = {input->tokens, input->tokens, input->tokens};
    const float *const features[TWINS] = {input->features, input->features, input->features};
    const bool sources = mha_model_encoder(model) != NULL;
    const mha_generate_options o = {.size = sizeof o,
                                    .max_new = count,
                                    .eos_count = -1,
                                    .no_cache = !cached,
                                    .at_once = cached ? 2 : 1,
                                    .sources = sources && !input->features ? prompts : NULL,
                                    .features = input->features ? features : NULL,
                                    .no_rules = 1}; /* recorded without forced tokens */
    const int64_t copies = cached ? TWINS : 1;
    if (mha_model_generate(model, sources ? starts : prompts, copies, &o, room, lengths, &error) != MHA_OK) {
        verify_stopped(outcome, &error);
        return;
    }
    for (int64_t n = 0; n < copies; n++)
        for (int64_t i = 0; i < count; i++)
            wrong += lengths[n] != count || room[n * count + i] != want[i];
    verify_measured(outcome, name, (double)wrong, 0);
}

/* Tensor names of one recorded output. */
typedef struct text_names {
    const char *prompt, *fresh, *without_cache;
} text_names;

/* Reads the ids, or the features of an encoder that reads audio. */
static recorded_input read_input(verify_memory *memory, const verify_entry *e, const mha_file *file, const char *name,
                                 const mha_model *model)
{
    static const char *const features = "seq2seq/input_features";
    recorded_input input = {0};
    int64_t batch = 0;
    mha_model_input source;
    if (mha_model_encoder(model) && mha_file_find(file, features)) {
        verify_features_of(memory, e, file, features, model, &source);
        input.features = source.features;
    } else {
        input.tokens.ids = verify_ids_of(memory, e, file, name, &batch, &input.tokens.count);
        if (input.tokens.ids && batch != 1)
            verify_fault(e, "tensor \"%s\" must have one sequence (got %lld)", name, (long long)batch);
    }
    return input;
}

static void generate(const verify_entry *e, const mha_file *file, const text_names *names, const mha_model *model,
                     verify_case *outcome)
{
    verify_memory memory = {0};
    int64_t fresh[1] = {-1};
    const recorded_input input = read_input(&memory, e, file, names->prompt, model);
    const int64_t *with = verify_integers(&memory, e, verify_tensor(e, file, names->fresh, 1, fresh));
    const bool differs = mha_file_find(file, names->without_cache) != NULL;
    const char *other = differs ? names->without_cache : names->fresh;
    const int64_t *without = differs ? verify_integers(&memory, e, verify_tensor(e, file, other, 1, fresh)) : with;
    int32_t *room = with ? verify_alloc(&memory, TWINS * fresh[0], sizeof *room, e) : NULL;
    if (e->error->status == MHA_OK && room && without) {
        check_run(model, &input, names->fresh, with, fresh[0], true, room, outcome);
        check_run(model, &input, other, without, fresh[0], false, room, outcome);
    }
    verify_release(&memory);
}

void verify_generate(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome)
{
    static const text_names names = {"gen/prompt_ids", "gen/new_ids", "gen/new_ids_no_cache"},
                            source_names = {"gen/input_ids", "gen/new_ids", "gen/new_ids_no_cache"};
    generate(e, file, mha_model_encoder(model) ? &source_names : &names, model, outcome);
}

void verify_generate_long(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome)
{
    static const text_names names = {"gen_long/prompt_ids", "gen_long/new_ids", "gen_long/new_ids_no_cache"};
    generate(e, file, &names, model, outcome);
}
