/* demo_heads.c - see demo_heads.h. */
#include "run/demo_heads.h"

#include "heads/heads_grid.h"
#include "input/tokens.h"
#include "output.h"
#include "word_wrap.h"
#include <math.h>

/* The kind of token pair that illustrates a label. */
typedef enum example { EXAMPLE_NONE, EXAMPLE_STRONGEST, EXAMPLE_SAME_TOKEN, EXAMPLE_WHAT_FOLLOWED } example;

/* Descriptions of labels, the most interesting first. */
static const struct story {
    mha_head_label label;
    const char *words; /* %.0f is the label's score in percent */
    example example;
} stories[] = {
    {MHA_LABEL_INDUCTION,
     "continues repeats: in repeated random text, %.0f %% of its weight is on the token after the first copy.",
     EXAMPLE_WHAT_FOLLOWED},
    {MHA_LABEL_PREV, "attends to the previous token: %.0f %% of its weight.", EXAMPLE_STRONGEST},
    {MHA_LABEL_DUPLICATE, "finds repeats: in repeated random text, %.0f %% of its weight is on the other copy.",
     EXAMPLE_SAME_TOKEN},
    {MHA_LABEL_PUNCT, "attends to punctuation: %.0f %% of its weight.", EXAMPLE_STRONGEST},
    {MHA_LABEL_SELF, "attends to the token itself: %.0f %% of its weight.", EXAMPLE_NONE},
    {MHA_LABEL_LOCAL, "attends within two tokens: %.0f %% of its weight.", EXAMPLE_STRONGEST},
    {MHA_LABEL_FIRST, "attends to the first token: %.0f %% of its weight, often a sign of an idle head.", EXAMPLE_NONE},
    {MHA_LABEL_SEP, "attends to the separator: %.0f %% of its weight, often a sign of an idle head.", EXAMPLE_NONE},
    {MHA_LABEL_BROAD, "spreads its weight over all tokens: %.0f %% of the largest possible entropy.", EXAMPLE_NONE},
    {MHA_LABEL_VERTICAL, "attends to the same tokens from every position: this explains %.0f %% of its map.",
     EXAMPLE_NONE},
};

typedef struct place {
    int64_t layer, head;
    double score;
} place;

/* Returns the head with this label and the highest score; score is NAN if no head has the label. */
static place best_head(const mha_heads *heads, mha_head_label label)
{
    place best = {.score = NAN};
    for (int64_t l = 0; l < mha_heads_layers(heads); l++)
        for (int64_t h = 0; h < mha_heads_count(heads, l); h++) {
            double score = mha_heads_value(heads, l, h, cli_label_metric(label));
            if (mha_heads_label(heads, l, h) == label && !(score <= best.score)) best = (place){l, h, score};
        }
    return best;
}

/* Returns true if query token i and key token j form a pair of the given kind. */
static bool fits(const mha_encoding *tokens, example kind, int64_t i, int64_t j)
{
    const int32_t *ids = tokens->ids;
    if (i == j) return false;
    switch (kind) {
    case EXAMPLE_NONE:
        return false;
    case EXAMPLE_STRONGEST:
        return true;
    case EXAMPLE_SAME_TOKEN:
        return ids[i] == ids[j];
    case EXAMPLE_WHAT_FOLLOWED:
        return j > 0 && ids[i] == ids[j - 1];
    }
    return false;
}

/* Finds the pair of this kind with the largest weight and returns the weight; 0 if there is no such pair. */
static float find_example(const mha_heads *heads, place at, example kind, int64_t *from, int64_t *to)
{
    const mha_encoding *tokens = mha_heads_tokens(heads);
    const float *map = mha_heads_map(heads, at.layer, at.head);
    const int64_t n = tokens->count;
    float best = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            if (!(map[i * n + j] > best) || !fits(tokens, kind, i, j)) continue;
            best = map[i * n + j];
            *from = i;
            *to = j;
        }
    return best;
}

static void put_example(const cli_session *s, const mha_model *model, const mha_encoding *tokens, float weight,
                        int64_t from, int64_t to, int indent)
{
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    char *word[2] = {NULL, NULL};
    const bool read = mha_tokenizer_decode(tokenizer, tokens->ids + from, 1, 0, &word[0], NULL, NULL) == MHA_OK &&
                      mha_tokenizer_decode(tokenizer, tokens->ids + to, 1, 0, &word[1], NULL, NULL) == MHA_OK;
    fprintf(s->out, "%*s", indent, "");
    if (read)
        cli_put_prose(s, indent, indent, "Here, token %lld \"%s\" puts %.0f %% of its weight on token %lld \"%s\".",
                      (long long)from, cli_shown(word[0]), 100 * (double)weight, (long long)to, cli_shown(word[1]));
    for (int i = 0; i < 2; i++)
        mha_tokenizer_text_free(tokenizer, word[i]);
}

static void tell_head(const cli_session *s, const mha_model *model, const mha_heads *heads, const struct story *story,
                      place at, int indent)
{
    char head[48], words[128];
    const int used = snprintf(head, sizeof head, "Head %lld.%lld ", (long long)at.layer, (long long)at.head);
    snprintf(words, sizeof words, story->words, at.score * 100);
    fprintf(s->out, "%*s%s%s%s", indent, "", cli_bold(s), head, cli_plain(s));
    cli_put_prose(s, indent + used, indent + 2, "%s", words);
    int64_t from = 0, to = 0;
    const float weight = find_example(heads, at, story->example, &from, &to);
    if (weight > 0) put_example(s, model, mha_heads_tokens(heads), weight, from, to, indent + 2);
}

void demo_heads_tell(const cli_session *s, const mha_model *model, const mha_heads *heads, int count, int indent)
{
    for (size_t i = 0; i < sizeof stories / sizeof *stories && count > 0; i++) {
        const place at = best_head(heads, stories[i].label);
        if (isnan(at.score)) continue;
        tell_head(s, model, heads, &stories[i], at, indent);
        count--;
    }
}
