/* cmd_draw.c - `mha draw`: draws the attention map of one head or of all heads as PNG, SVG or PDF. */
#include "commands.h"
#include "draw/figure.h"
#include "draw/figure_paint.h"
#include "heads/text_maps.h"
#include "input/tokens.h"
#include "options.h"
#include "output.h"
#include "page/color_option.h"
#include <stdlib.h>
#include <string.h>

static struct {
    char *head, *scale, *colors, *font;
    int grid;
} given;

static const struct poptOption options[] = {
    {"head", '\0', POPT_ARG_STRING, &given.head, 0, "head to draw, numbered as in the unpruned model", "L.H"},
    {"grid", '\0', POPT_ARG_NONE, &given.grid, 0, "draw all heads, one row per layer", NULL},
    {"scale", '\0', POPT_ARG_STRING, &given.scale, 0, "scale factor, 0.5 to 16 (default: 2 for PNG, 1 for SVG and PDF)",
     "X"},
    COLOR_OPTION(&given.colors, "weights"),
    {"font", '\0', POPT_ARG_STRING, &given.font, 0, "font family of all text (default: sans-serif)", "NAME"},
    POPT_TABLEEND,
};

static const char **token_texts(const text_maps *h)
{
    const mha_encoding *tokens = mha_heads_tokens(h->heads);
    const char **texts = malloc((size_t)tokens->count * (sizeof *texts + CLI_ID_DIGITS));
    char *digits = (char *)(texts + tokens->count);
    for (int64_t i = 0; texts && i < tokens->count; i++)
        texts[i] = cli_token_name(h->model, tokens->ids[i], digits + i * CLI_ID_DIGITS);
    return texts;
}

/* Writes the figure `data` to the file of -o, or reports the drawing error `wrong` (NULL = none). Takes ownership of
 * `data`. */
static int finish(cli_session *s, const text_maps *h, const char *wrong, unsigned char *data, size_t bytes,
                  const char *what)
{
    mha_error err = {.status = MHA_ERR_MEMORY};
    if (wrong)
        snprintf(err.message, sizeof err.message, "cannot draw a figure for %lld tokens: %s",
                 (long long)mha_heads_tokens(h->heads)->count, wrong);
    int code = wrong ? cli_fail(s, &err) : cli_write_file(s, data, bytes);
    if (code == CLI_DONE) cli_say(s, "%s: %.1f KB; %s", cli_shown(s->options.out), (double)bytes / 1e3, what);
    free(data);
    return code;
}

/* Logs a warning if the font lacks characters of the tokens. This is not an error, since the map is correct. */
static void warn_of_glyphs(const cli_session *s, const figure *f)
{
    const char *first = NULL;
    const int64_t count = figure_count_unreadable(f, &first);
    char lacks[96];
    snprintf(lacks, sizeof lacks, "lacks characters of %lld of %lld tokens", (long long)count, (long long)f->n);
    if (count > 0 && !figure_has_font())
        cli_say(s,
                "warning: no font is installed; the built-in font %s (first: \"%s\") and shows them as boxes; install "
                "a font, for example DejaVu Sans",
                lacks, cli_shown(first));
    else if (count > 0)
        cli_say(s,
                "warning: the font \"%s\" %s (first: \"%s\") and shows them as boxes; choose another font with --font "
                "NAME (fc-list lists the installed fonts)",
                cli_shown(given.font ? given.font : "sans-serif"), lacks, cli_shown(first));
}

/* Draws the head numbered `at` in the unpruned model. */
static int draw_head(cli_session *s, const text_maps *h, mha_model_head at)
{
    const int64_t head = mha_head_place(h->model, at.layer, at.head);
    char title[160], what[48];
    snprintf(title, sizeof title, "%.90s, layer %d head %d: %s", cli_shown(h->folder), (int)at.layer, (int)at.head,
             mha_head_label_key(mha_heads_label(h->heads, at.layer, head)));
    snprintf(what, sizeof what, "layer %d head %d", (int)at.layer, (int)at.head);
    const char **tokens = token_texts(h);
    figure f = {.title = title,
                .n = mha_heads_tokens(h->heads)->count,
                .tokens = tokens,
                .map = mha_heads_map(h->heads, at.layer, head)};
    unsigned char *data = NULL;
    size_t bytes = 0;
    const char *wrong = tokens ? figure_draw(&f, s->options.out, &data, &bytes) : "out of memory";
    if (!wrong) warn_of_glyphs(s, &f);
    free(tokens);
    return finish(s, h, wrong, data, bytes, what);
}

static int draw_grid(cli_session *s, const text_maps *h)
{
    const long long n = (long long)mha_heads_tokens(h->heads)->count;
    char title[160];
    snprintf(title, sizeof title, "%.90s: all heads on %lld tokens", cli_shown(h->folder), n);
    unsigned char *data = NULL;
    size_t bytes = 0;
    const char *wrong = figure_grid_draw(&(figure_grid){title, h->model, h->heads, n}, s->options.out, &data, &bytes);
    return finish(s, h, wrong, data, bytes, "all heads");
}

static int check_head(const cli_session *s, const text_maps *h, mha_model_head at)
{
    if (at.layer >= mha_heads_layers(h->heads))
        return cli_usage(s, "--head must name one of the %lld layers (got \"%s\")",
                         (long long)mha_heads_layers(h->heads), cli_shown(given.head));
    if (mha_head_place(h->model, at.layer, at.head) >= 0) return CLI_DONE;
    const mha_model_info *info = mha_model_describe(h->model);
    return cli_usage(s, "--head must name one of the %lld heads of layer %lld (got \"%s\"%s)",
                     (long long)info->heads_per_layer[at.layer], (long long)at.layer, cli_shown(given.head),
                     at.head < info->original_heads ? ", which was removed" : "");
}

static int check_options(const cli_session *s, mha_model_head *at)
{
    if (!s->options.out) return cli_usage(s, "missing -o FILE");
    if (!figure_knows(s->options.out))
        return cli_usage(s, "-o must end in .png, .svg or .pdf (got \"%s\")", cli_shown(s->options.out));
    if (!given.head && !given.grid) return cli_usage(s, "missing --head L.H or --grid");
    if (given.head && given.grid) return cli_usage(s, "--head and --grid are mutually exclusive");
    const char *end = given.head ? cli_head(given.head, at) : "";
    if (!end || *end)
        return cli_usage(s, "--head must be LAYER.HEAD, for example 0.2 (got \"%s\")", cli_shown(given.head));
    return CLI_DONE;
}

/* Checks --scale, --colors and --font, and sets the style of figures. */
static int choose_style(const cli_session *s)
{
    figure_style style = {.scale = cli_out_ends(s, ".png") ? 2 : 1, .font = given.font ? given.font : "sans-serif"};
    int code = cli_number(s, "--scale", given.scale, 0.5, 16, &style.scale);
    if (code == CLI_DONE) code = cli_color_scale(s, given.colors, &style.colors);
    if (code != CLI_DONE) return code;
    if (!*style.font) return cli_usage(s, "--font must name a font family (got \"\")");
    figure_set_style(style);
    return CLI_DONE;
}

static int run(cli_session *s)
{
    mha_model_head at = {0};
    text_maps h;
    int code = check_options(s, &at);
    if (code == CLI_DONE) code = choose_style(s);
    if (code != CLI_DONE) return code;
    code = text_maps_measure(s, &h);
    if (code == CLI_DONE && given.head) code = check_head(s, &h, at);
    if (code == CLI_DONE) code = given.head ? draw_head(s, &h, at) : draw_grid(s, &h);
    text_maps_free(&h);
    return code;
}

const cli_command cli_draw = {
    .name = "draw",
    .summary = "draw the attention map of one or all heads as PNG, SVG or PDF",
    .usage = "TEXT",
    .details =
        "Each row of the map is a query token, each column a key token that it attends to. The color scale \"root\" "
        "is the square root of the weight and distinguishes small weights; \"linear\" is proportional to the weight. "
        "A PNG of scale 1 has one pixel per point. Characters that the font lacks are drawn as boxes, with a warning.",
    .shared = CLI_MODEL | CLI_FILE | CLI_IDS | CLI_OUT,
    .options = options,
    .examples = "mha draw --head 1.1 -o head.png \"Clara has a kite. Clara has a kite.\"\n"
                "mha draw --grid -o heads.pdf \"Clara has a kite. Clara has a kite.\"\n",
    .run = run,
};
