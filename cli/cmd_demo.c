/* cmd_demo.c - `mha demo`: the first thing that anyone runs. A sentence goes through a real BERT; its tokens, its heads
 * and a few vectors are shown, with words for the numbers and the commands to go on with. */
#include <math.h>
#include <string.h>

#include "commands.h"
#include "heads_grid.h"
#include "input.h"
#include "output.h"
#include "tokens.h"
#include "wrap.h"

static const char *const sentence = "The nurse told the doctor, and the doctor thanked the nurse for the good news.";
static const char *const alike[] = {"The ferry leaves at noon.", "At midday the boat departs.",
                                    "My bicycle has a flat tyre."};
enum { ALIKE = sizeof alike / sizeof *alike, INDENT = 2, HEADS_IN_WORDS = 3 };

static void title(const cli_session *s, int number, const char *text)
{
    fprintf(s->out, "\n%s%d. ", cli_bold(s), number);
    cli_put_prose(s, 3, 3, "%s", text);
    fprintf(s->out, "%s\n", cli_plain(s));
}

/* ---- heads in words ---- */

/* Which pair of tokens is shown as an example of what a head does. */
typedef enum example { EXAMPLE_NONE, EXAMPLE_STRONGEST, EXAMPLE_SAME_TOKEN } example;

/* The most telling label first. */
static const struct story {
    mha_head_label label;
    const char *words; /* %.0f is the label's score in percent */
    example example;
} stories[] = {
    {MHA_LABEL_PREV, "looks back one token: %.0f %% of its weight lies there.", EXAMPLE_STRONGEST},
    {MHA_LABEL_DUPLICATE, "finds repeats: in random text said twice, %.0f %% goes to the other copy.",
     EXAMPLE_SAME_TOKEN},
    {MHA_LABEL_INDUCTION, "continues repeats: in random text said twice, %.0f %% goes to what came next.",
     EXAMPLE_NONE},
    {MHA_LABEL_NEXT, "looks ahead one token: %.0f %% of its weight lies there.", EXAMPLE_STRONGEST},
    {MHA_LABEL_PUNCT, "looks at punctuation: %.0f %% of its weight.", EXAMPLE_STRONGEST},
    {MHA_LABEL_SELF, "keeps to the token itself: %.0f %% of its weight.", EXAMPLE_NONE},
    {MHA_LABEL_LOCAL, "stays within two tokens: %.0f %% of its weight.", EXAMPLE_STRONGEST},
    {MHA_LABEL_FIRST, "rests on the first token: %.0f %% of its weight, often a sign of nothing to do.", EXAMPLE_NONE},
    {MHA_LABEL_SEP, "rests on the separator: %.0f %% of its weight, often a sign of nothing to do.", EXAMPLE_NONE},
    {MHA_LABEL_BROAD, "spreads its weight: %.0f %% of the most even it could be.", EXAMPLE_NONE},
    {MHA_LABEL_VERTICAL, "looks at the same tokens from everywhere: %.0f %% of its map is explained so.", EXAMPLE_NONE},
};

typedef struct place {
    int64_t layer, head;
    double score;
} place;

/* The head with this label and the highest score; score is NAN when there is none. */
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

/* The strongest link between two different places of the text, of the kind wanted; weight 0 when there is none. */
static float find_example(const mha_heads *heads, place at, example kind, int64_t *from, int64_t *to)
{
    const mha_encoding *tokens = mha_heads_tokens(heads);
    const float *map = mha_heads_map(heads, at.layer, at.head);
    int64_t n = tokens->count;
    float best = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            bool words = tokens->sequence[i] >= 0 && tokens->sequence[j] >= 0 && i != j;
            bool fits = kind == EXAMPLE_STRONGEST || (kind == EXAMPLE_SAME_TOKEN && tokens->ids[i] == tokens->ids[j]);
            if (!words || !fits || !(map[i * n + j] > best)) continue;
            best = map[i * n + j];
            *from = i;
            *to = j;
        }
    return best;
}

static void tell_head(const cli_session *s, const mha_model *model, const mha_heads *heads, const struct story *story,
                      place at)
{
    fprintf(s->out, "%*s%sHead %lld.%lld%s ", INDENT, "", cli_bold(s), (long long)at.layer, (long long)at.head,
            cli_plain(s));
    char head[48], words[128];
    const int used = snprintf(head, sizeof head, "Head %lld.%lld ", (long long)at.layer, (long long)at.head);
    snprintf(words, sizeof words, story->words, at.score * 100);
    cli_put_prose(s, INDENT + used, INDENT + 2, "%s", words);
    int64_t from = 0, to = 0;
    float weight = find_example(heads, at, story->example, &from, &to);
    if (!(weight > 0)) return;
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    const int32_t *ids = mha_heads_tokens(heads)->ids;
    fprintf(s->out, "%*s", INDENT + 2, "");
    cli_put_prose(s, INDENT + 2, INDENT + 2, "Here token %lld \"%s\" gives %.0f %% to token %lld \"%s\".",
                  (long long)from, cli_shown(cli_token_text(tokenizer, ids[from])), 100 * (double)weight, (long long)to,
                  cli_shown(cli_token_text(tokenizer, ids[to])));
}

static void tell_heads(const cli_session *s, const mha_model *model, const mha_heads *heads)
{
    int told = 0;
    for (size_t i = 0; i < sizeof stories / sizeof *stories && told < HEADS_IN_WORDS; i++) {
        place at = best_head(heads, stories[i].label);
        if (isnan(at.score)) continue;
        tell_head(s, model, heads, &stories[i], at);
        told++;
    }
}

/* ---- vectors ---- */

static double dot(const float *x, const float *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

static int show_similarity(const cli_session *s, const mha_model *model)
{
    mha_error error = {0};
    int64_t width = mha_model_describe(model)->hidden;
    float *e = mha_alloc(s->ctx, ALIKE * (size_t)width * sizeof *e);
    if (!e) return cli_error(s, CLI_FAILED, "out of memory for %d vectors", ALIKE);
    int code = CLI_DONE;
    if (mha_model_embed(model, alike, ALIKE, NULL, e, &error) != MHA_OK) code = cli_refuse(s, &error);
    for (int i = 0; code == CLI_DONE && i < ALIKE; i++)
        for (int j = i + 1; j < ALIKE; j++) {
            fprintf(s->out, "%*s%5.2f  ", INDENT, "", dot(e + i * width, e + j * width, width));
            cli_put_prose(s, INDENT + 7, INDENT + 7, "%s  %s", alike[i], alike[j]);
        }
    mha_free(s->ctx, e);
    return code;
}

/* ---- the whole ---- */

static void show_model(const cli_session *s, const mha_model *model, bool random)
{
    const mha_model_info *info = mha_model_describe(model);
    const char *name = random ? "A tiny test model" : "MiniLM";
    fprintf(s->out, "%s%s%s", cli_bold(s), name, cli_plain(s));
    cli_put_prose(s, (int)strlen(name), 0, ": %s, %lld layers of %lld heads, %.3g million weights. It reads:\n",
                  info->causal ? "a decoder" : "a BERT encoder", (long long)info->layers, (long long)info->heads,
                  (double)info->parameters / 1e6);
    fprintf(s->out, "\n%*s%s", INDENT, "", cli_bold(s));
    cli_put_prose(s, INDENT, INDENT, "%s", sentence);
    fputs(cli_plain(s), s->out);
    if (random)
        cli_put_prose(s, 0, 0,
                      "\nIts weights are random: nobody has trained it. The pictures are right, the labels mean "
                      "nothing.\nFor a real model, with network:  ./run fetch minilm");
}

/* A command and what it does, below each other where the terminal is too narrow for both. */
static void show_command(const cli_session *s, const char *command, const char *what)
{
    enum { COMMAND = 47 }; /* columns */
    const int taken = (int)strlen(command) > COMMAND ? (int)strlen(command) : COMMAND;
    const bool beside = INDENT + taken + 1 + (int)strlen(what) <= s->columns;
    fprintf(s->out, "%*s", INDENT, "");
    if (beside) {
        fprintf(s->out, "%-*s %s%s%s\n", COMMAND, command, cli_dim(s), what, cli_plain(s));
        return;
    }
    cli_put_prose(s, INDENT, INDENT + 2, "%s", command);
    fprintf(s->out, "%*s%s", INDENT + 4, "", cli_dim(s));
    cli_put_prose(s, INDENT + 4, INDENT + 4, "%s", what);
    fputs(cli_plain(s), s->out);
}

static void show_next(const cli_session *s, bool random)
{
    static const struct {
        const char *command, *arguments, *what;
    } next[] = {
        {"heads", "\"Your own sentence.\"", "every head, with all scores"},
        {"report", "\"Your own sentence.\" -o heads.html", "the same as a page"},
        {"embed", "\"One text.\" \"Another.\"", "vectors, and how alike they are"},
        {"info", "", "what the checkpoint holds"},
    };
    fprintf(s->out, "\n%sNext%s ", cli_bold(s), cli_plain(s));
    cli_put_prose(s, 5, 0, "(from a checkout: ./run instead of mha)\n");
    for (size_t i = 0; i < sizeof next / sizeof *next; i++) {
        char line[96];
        snprintf(line, sizeof line, "mha %s %s%s", next[i].command, random ? "-m builtin " : "", next[i].arguments);
        show_command(s, line, next[i].what);
    }
    show_command(s, "mha --help", "all commands");
}

static int64_t count_heads(const mha_heads *heads)
{
    int64_t count = 0;
    for (int64_t l = 0; l < mha_heads_layers(heads); l++)
        count += mha_heads_count(heads, l);
    return count;
}

static int show(cli_session *s, const mha_model *model, const mha_heads *heads, bool random)
{
    show_model(s, model, random);
    title(s, 1, "Its tokens, and their numbers in the vocabulary");
    cli_put_tokens(s, mha_model_tokenizer(model), mha_heads_tokens(heads), INDENT);
    char heads_title[96];
    snprintf(heads_title, sizeof heads_title, "What its %lld heads do with them: a label, and how strongly in percent",
             (long long)count_heads(heads));
    title(s, 2, heads_title);
    cli_put_grid(s, heads, INDENT);
    fputc('\n', s->out);
    cli_put_legend(s, heads, INDENT);
    if (!random) {
        title(s, 3, "Three of them in words (head LAYER.HEAD)");
        tell_heads(s, model, heads);
        title(s, 4, "Like meaning, like vectors: cosine similarity of whole sentences");
        int code = show_similarity(s, model);
        if (code != CLI_DONE) return code;
    }
    show_next(s, random);
    return CLI_DONE;
}

static int run(cli_session *s)
{
    if (s->arg_count > 0) return cli_usage(s, "takes no arguments; for your own text: mha heads TEXT");
    bool random = !cli_minilm_present();
    s->options.model = random ? "builtin" : "minilm";
    mha_model *model = NULL;
    mha_heads *heads = NULL;
    mha_error error = {0};
    const mha_heads_options how = {.size = sizeof how, .keep_maps = 1};
    int code = cli_model_open(s, NULL, &model);
    if (code == CLI_DONE && mha_heads_measure(model, &sentence, 1, &how, &heads, &error) != MHA_OK)
        code = cli_refuse(s, &error);
    if (code == CLI_DONE) code = show(s, model, heads, random);
    mha_heads_free(heads);
    mha_model_free(model);
    return code;
}

const cli_command cli_demo = {
    .name = "demo",
    .summary = "a sentence through a real BERT: tokens, heads, similarity",
    .usage = "",
    .run = run,
};
