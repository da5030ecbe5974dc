/* tour_request.c - parses the options of a tour's values and refuses options that a tour does not accept. */
#include "tour/tour_request.h"

#include "input/input.h"
#include "options.h"
#include "output.h"
#include <limits.h>
#include <string.h>

static struct {
    const char *text, *seed, *width, *heads, *weights, *model, *layer, *head;
} given;

const struct poptOption tour_request_options[] = {
    {"text", 0, POPT_ARG_STRING, &given.text, 0, "words of the tour, separated by spaces; with -m, any text", "TEXT"},
    {"seed", 's', POPT_ARG_STRING, &given.seed, 0, "random seed of inputs and weights, at least 0", "SEED"},
    {"width", 0, POPT_ARG_STRING, &given.width, 0, "width of the layer, 1 to 256", "N"},
    {"heads", 0, POPT_ARG_STRING, &given.heads, 0, "number of heads, 1 to 32", "N"},
    {"weights", 0, POPT_ARG_STRING, &given.weights, 0, "read the parameters of the layer from a safetensors file",
     "FILE"},
    {"model", 'm', POPT_ARG_STRING, &given.model, 0, "show a layer of a checkpoint: its folder, minilm, or builtin",
     "MODEL"},
    {"layer", 0, POPT_ARG_STRING, &given.layer, 0, "layer of the model (default: 0)", "L"},
    {"head", 0, POPT_ARG_STRING, &given.head, 0, "head of the layer, in tours of one head (default: 0)", "H"},
    POPT_TABLEEND};

/* ---- refusals ---- */

/* Why a tour does not accept an option; `tour` NULL = all tours without a line of their own. */
static const struct reason {
    const char *tour;
    unsigned option;
    const char *text;
} reasons[] = {
    {"batched-product", TOUR_TEXT, "it shows the shape of a tensor, whose rows are not words"},
    {"reshape", TOUR_TEXT, "it shows the shape of a tensor, whose rows are not words"},
    {"moe-heads", TOUR_TEXT, "its three sequences must differ, so they are sampled"},
    {"head-pruning", TOUR_TEXT, "its three sequences must differ, so they are sampled"},
    {"adaptive-heads", TOUR_TEXT, "its four sequences must differ, so they are sampled"},
    {"variants", TOUR_TEXT, "it compares parameters and flops, which do not depend on the words"},
    {NULL, TOUR_TEXT, "its queries and keys come from different sequences, which are sampled"},
    {"induction", TOUR_SEED, "it shows a trained model, in which nothing is sampled"},
    {"induction", TOUR_WIDTH, "the width is that of the model"},
    {"induction", TOUR_CHOICE_HEADS, "the heads are those of the model"},
    {"induction", TOUR_CHOICE_WEIGHTS, "-m MODEL chooses the weights"},
    {"variants", TOUR_WIDTH, "it compares one published size; mha plan compares other sizes"},
    {"variants", TOUR_CHOICE_HEADS, "it compares one published size; mha plan compares other sizes"},
    {"variants", TOUR_CHOICE_WEIGHTS, "it has seven layers"},
    {"adaptive-heads", TOUR_CHOICE_HEADS, "a predictor chooses 4, 8 or 16 heads"},
    {NULL, TOUR_CHOICE_HEADS, "it shows one head"},
    {NULL, TOUR_CHOICE_WEIGHTS, "it has no layer"},
    {"induction", TOUR_LAYER, "it finds the layers itself"},
    {"dropout", TOUR_LAYER, "models apply dropout during training only"},
    {"stacked-heads", TOUR_LAYER,
     "checkpoints store the heads of a layer in one matrix, which the tour weight-split shows"},
    {"batched-product", TOUR_LAYER, "it has no layer"},
    {"reshape", TOUR_LAYER, "it has no layer"},
    {"qkv-attention", TOUR_LAYER, "the layers of a checkpoint have an output projection; see the tour standard-mha"},
    {"variants", TOUR_LAYER, "it compares layers of one size"},
    {NULL, TOUR_LAYER, "its selection of heads is not that of a published checkpoint"},
    {"induction", TOUR_HEAD, "it finds the heads itself"},
    {NULL, TOUR_HEAD, "it shows all heads of the layer"},
};

static int refuse(const cli_session *s, const tour_entry *e, const char *option, unsigned need)
{
    const struct reason *r = reasons;
    while (r->option != need || (r->tour && strcmp(r->tour, e->name) != 0))
        r++;
    return cli_usage(s, "the tour %s does not accept %s: %s", e->name, option, r->text);
}

/* ---- values ---- */

/* Options in the order of the checks; `need`: the flag of tours that accept the option. */
static const struct known {
    const char *name;
    const char *const *value;
    unsigned need;
    bool of_model; /* describes a layer of a model; other options describe sampled layers */
} known[] = {
    {"--text", &given.text, TOUR_TEXT, true},
    {"--seed", &given.seed, TOUR_SEED, false},
    {"--width", &given.width, TOUR_WIDTH, false},
    {"--heads", &given.heads, TOUR_CHOICE_HEADS, false},
    {"--weights", &given.weights, TOUR_CHOICE_WEIGHTS, false},
    {"--model", &given.model, TOUR_LAYER, true},
    {"--layer", &given.layer, TOUR_LAYER, true},
    {"--head", &given.head, TOUR_HEAD, true},
};
enum { KNOWN = sizeof known / sizeof *known };

static unsigned accepted(const tour_entry *e, const struct known *k)
{
    const bool text_of_layer = k->need == TOUR_TEXT && given.model && (e->accepts & TOUR_LAYER);
    const bool whole_model = k->value == &given.model && (e->accepts & TOUR_MODEL);
    return text_of_layer || whole_model || (e->accepts & k->need);
}

static int check_accepted(const cli_session *s, const tour_entry *e)
{
    for (const struct known *k = known; k < known + KNOWN; k++) {
        if (!*k->value) continue;
        if (!e) return cli_usage(s, "%s requires the name of one tour", k->name);
        if (!accepted(e, k)) return refuse(s, e, k->name, k->need);
        if (given.model && !k->of_model)
            return cli_usage(s, "%s and -m are mutually exclusive: the checkpoint defines the layer", k->name);
    }
    if (given.layer && !given.model) return cli_usage(s, "--layer requires -m MODEL");
    if (given.head && !given.model) return cli_usage(s, "--head requires -m MODEL");
    return CLI_DONE;
}

static int read_text(const cli_session *s, tour_choice *choice)
{
    enum { BYTES_MAX = 400 }; /* cli_shown truncates longer texts */
    choice->text = given.text;
    if (given.text && (strlen(given.text) > BYTES_MAX || strcmp(cli_shown(given.text), given.text) != 0))
        return cli_usage(s, "--text must be at most %d bytes of printable UTF-8 (got \"%s\")", BYTES_MAX,
                         cli_shown(given.text));
    return CLI_DONE;
}

static int read_values(const cli_session *s, tour_choice *choice)
{
    enum { WIDTH_MAX = 256, HEADS_MAX = 32, LAYERS_MAX = 65535 };
    long long seed = 0, width = 0, heads = 0, layer = 0, head = 0;
    int code = read_text(s, choice);
    if (code == CLI_DONE) code = cli_whole(s, "--seed", given.seed, 0, LLONG_MAX, &seed);
    if (code == CLI_DONE) code = cli_whole(s, "--width", given.width, 1, WIDTH_MAX, &width);
    if (code == CLI_DONE) code = cli_whole(s, "--heads", given.heads, 1, HEADS_MAX, &heads);
    if (code == CLI_DONE) code = cli_whole(s, "--layer", given.layer, 0, LAYERS_MAX, &layer);
    if (code == CLI_DONE) code = cli_whole(s, "--head", given.head, 0, LAYERS_MAX, &head);
    choice->seeded = given.seed != NULL;
    choice->seed = (uint64_t)seed;
    choice->width = width, choice->heads = heads, choice->layer = layer, choice->head = head;
    choice->weights = given.weights;
    choice->model_chosen = given.model != NULL;
    return code;
}

int tour_request_read(cli_session *s, const tour_entry *entry, tour_choice *choice)
{
    int code = check_accepted(s, entry);
    if (code == CLI_DONE) code = read_values(s, choice);
    if (code != CLI_DONE || !(given.model || (entry ? entry->accepts & TOUR_MODEL : s->arg_count > 0))) return code;
    return cli_model_find(s, given.model ? given.model : "builtin");
}
