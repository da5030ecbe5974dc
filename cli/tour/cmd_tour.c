/* cmd_tour.c - `mha tour`: computes and prints the walk-throughs of attention, step by step. */
#include "commands.h"
#include "draw/figure.h"
#include "draw/figure_paint.h"
#include "input/input.h"
#include "memory.h"
#include "output.h"
#include "page/color_option.h"
#include "session.h"
#include "tour/output/tour_figure.h"
#include "tour/output/tour_files.h"
#include "tour/output/tour_print.h"
#include "tour/tour_page.h"
#include "tour/tour_request.h"
#include "tour/tours.h"
#include "word_wrap.h"
#include <stdlib.h>
#include <string.h>

static struct {
    const char *html, *figure, *tensor, *files, *colors;
    int force;
} given;

static const struct poptOption options[] = {
    {"html", 0, POPT_ARG_STRING, &given.html, CLI_OUTPUT, "write the steps to FILE as an HTML page", "FILE"},
    {"figure", 0, POPT_ARG_STRING, &given.figure, CLI_OUTPUT, "draw a tensor of the tour to FILE (.png, .svg or .pdf)",
     "FILE"},
    {"files", 0, POPT_ARG_STRING, &given.files, CLI_OUTPUT_BASE,
     "write all tensors (.csv), maps and curves (.png and .svg) to files in FOLDER", "FOLDER"},
    {"tensor", 0, POPT_ARG_STRING, &given.tensor, 0,
     "tensor of --figure or --csv: NAME or NAME[i,j] (default: the first suitable tensor)", "NAME"},
    COLOR_OPTION(&given.colors, "weights"),
    {"force", 0, POPT_ARG_NONE, &given.force, 0, "replace files that exist", NULL},
    POPT_TABLEEND};

#define TOUR__X(name, walk, example, accepts, summary) name,
static const char *const words[] = {TOUR_MAP(TOUR__X) "all", NULL};
#undef TOUR__X
enum { TOURS = sizeof words / sizeof *words - 2 };

/* ---- output ---- */

static int put_json(cli_session *s, tour *const *tours, int count)
{
    json_t *all = json_array();
    for (int n = 0; n < count; n++)
        if (json_array_append_new(all, tour_to_json(tours[n])) != 0) {
            json_decref(all);
            return cli_error(s, CLI_FAILED, "out of memory for the JSON result");
        }
    return cli_put_json(s, json_pack("{s:o}", "tours", all), false);
}

static int write_page(cli_session *s, tour *const *tours, int count)
{
    char *page;
    size_t bytes;
    FILE *memory = cli_memory_open(&page, &bytes);
    tour_put_page(memory, tours, count);
    fclose(memory);
    const int code = cli_write_file(s, page, bytes);
    if (code == CLI_DONE) cli_say(s, "%s: %.1f KB; open it in a browser", cli_out_name(s), (double)bytes / 1e3);
    free(page);
    return code;
}

static void put_text(cli_session *s, tour *const *tours, int count)
{
    for (int n = 0; n < count; n++) {
        if (n > 0) fputs("\n\n", s->out);
        tour_put_text(s, tours[n]);
    }
}

/* Writes the files that are requested; prints JSON if requested, and the text if nothing else is. */
static int show(cli_session *s, tour *const *tours, int count)
{
    if (s->options.csv) return tour_csv_put(s, tours[0], given.tensor);
    const int code = given.files    ? tour_files_save(s, tours[0], given.files)
                     : given.figure ? tour_figure_save(s, tours[0], given.tensor)
                     : given.html   ? write_page(s, tours, count)
                                    : CLI_DONE;
    if (code == CLI_DONE && s->options.json) return put_json(s, tours, count);
    if (!given.files && !given.figure && !given.html) put_text(s, tours, count);
    return code;
}

/* ---- selection of tours ---- */

static int list(cli_session *s)
{
    enum { SUMMARY = 20 };
    if (s->options.json) {
        json_t *all = json_array();
        for (const tour_entry *e = tour_entries; e->name; e++)
            json_array_append_new(
                all, json_pack("{s:s, s:s, s:s}", "name", e->name, "summary", e->summary, "example", e->example));
        return cli_put_json(s, json_pack("{s:o}", "tours", all), true);
    }
    for (const tour_entry *e = tour_entries; e->name; e++) {
        fprintf(s->out, "%s%-*s%s", cli_bold(s), SUMMARY, e->name, cli_plain(s));
        cli_put_prose(s, SUMMARY, SUMMARY, "%s", e->summary);
    }
    fputc('\n', s->out);
    cli_put_prose(s, 0, 0, "mha tour NAME shows one tour, mha tour all shows all tours; --html FILE writes a page.");
    return CLI_DONE;
}

static int unknown(const cli_session *s, const char *name)
{
    char names[512] = "";
    size_t used = 0;
    for (int n = 0; n < TOURS && used < sizeof names; n++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s, ", words[n]);
    return cli_usage(s, "tour must be %sor all (got \"%s\")", names, cli_shown(name));
}

/* Reports the error of a tour: of the command line, or of a file that it cannot show. */
static int failed(const cli_session *s, const mha_error *error)
{
    return error->status == MHA_ERR_ARG || error->status == MHA_ERR_MEMORY ? cli_fail(s, error) : cli_refuse(s, error);
}

/* Runs the requested tours, in the order of the table. */
static int make(cli_session *s, const char *name, const tour_choice *choice, tour *tours[TOURS], int *count)
{
    const bool all = strcmp(name, "all") == 0;
    for (const tour_entry *e = tour_entries; e->name; e++) {
        if (!all && strcmp(name, e->name) != 0) continue;
        if (cli_signal()) return 128 + cli_signal();
        tour *t = tours[*count] = tour_make(s->ctx, e, s->model, choice);
        if (!t) return cli_error(s, CLI_FAILED, "out of memory for a tour");
        *count += 1;
        if (t->error.status != MHA_OK) return failed(s, &t->error);
    }
    return CLI_DONE;
}

/* Finds the entry of a tour; NULL for "all". */
static int find(const cli_session *s, const char *name, const tour_entry **entry)
{
    *entry = NULL;
    if (strcmp(name, "all") == 0) return CLI_DONE;
    for (const tour_entry *e = tour_entries; e->name; e++)
        if (strcmp(name, e->name) == 0) *entry = e;
    return *entry ? CLI_DONE : unknown(s, name);
}

/* Checks that at most one of the options that choose the output is given, and that it has one tour. */
static int check_output(const cli_session *s)
{
    const struct {
        const char *name;
        bool given, one_tour;
    } kinds[] = {{"--html", given.html, false},
                 {"--figure", given.figure, true},
                 {"--files", given.files, true},
                 {"--csv", s->options.csv, true}};
    const char *first = NULL;
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        if (!kinds[n].given) continue;
        if (first) return cli_usage(s, "%s and %s are mutually exclusive", first, kinds[n].name);
        first = kinds[n].name;
        if (kinds[n].one_tour && (s->arg_count != 1 || strcmp(s->args[0], "all") == 0))
            return cli_usage(s, "%s requires the name of one tour", first);
    }
    return CLI_DONE;
}

/* Sets the style of figures, and of maps in the terminal and on the page. */
static int choose_style(const cli_session *s)
{
    figure_style style = {.scale = given.figure && cli_ends(given.figure, ".png") ? 2 : 1, .font = "sans-serif"};
    const int code = cli_color_scale(s, given.colors, &style.colors);
    if (code == CLI_DONE) figure_set_style(style);
    return code;
}

static int check_options(cli_session *s)
{
    s->options.out = given.html ? given.html : given.figure;
    s->options.force = given.force;
    if (s->arg_count > 1)
        return cli_usage(s, "unexpected argument \"%s\": give one tour, or all", cli_shown(s->args[1]));
    if (s->arg_count == 0 && given.html) return cli_usage(s, "--html requires the name of a tour, or all");
    if (given.force && !s->options.out && !given.files)
        return cli_usage(s, "--force requires --html, --figure or --files");
    if (given.tensor && !given.figure && !s->options.csv) return cli_usage(s, "--tensor requires --figure or --csv");
    if (given.figure && !figure_knows(given.figure))
        return cli_usage(s, "--figure must end in .png, .svg or .pdf (got \"%s\")", cli_shown(given.figure));
    const int code = check_output(s);
    return code == CLI_DONE ? choose_style(s) : code;
}

static int run(cli_session *s)
{
    tour *tours[TOURS] = {NULL};
    const tour_entry *entry = NULL;
    tour_choice choice = {0};
    int count = 0;
    int code = check_options(s);
    if (code != CLI_DONE) return code;
    if (s->arg_count > 0) code = find(s, s->args[0], &entry);
    if (code == CLI_DONE) code = tour_request_read(s, entry, &choice);
    if (code != CLI_DONE) return code;
    if (s->arg_count == 0) return list(s);
    if (s->options.out) code = cli_check_out(s);
    if (code == CLI_DONE) code = make(s, s->args[0], &choice, tours, &count);
    if (code == CLI_DONE) code = show(s, tours, count);
    for (int n = 0; n < count; n++)
        tour_free(tours[n]);
    return code;
}

static void print_tours(FILE *out, int columns)
{
    enum { MARGIN = 20 };
    fputs("\nNames:\n", out);
    for (const tour_entry *e = tour_entries; e->name; e++) {
        fprintf(out, "  %-*s", MARGIN - 2, e->name);
        cli_put_wrapped(out, columns, MARGIN, MARGIN, e->summary);
    }
}

static const cli_option_group groups[] = {{"Values:", tour_request_options}, {NULL, NULL}};

const cli_command cli_tour = {
    .name = "tour",
    .summary = "show attention step by step, with all shapes and values",
    .usage = "[NAME|all]",
    .details =
        "Without a name, the command lists the tours. Each step explains what happens, names the C function "
        "that computes it (after ->), and prints its tensors in the format of PyTorch. All tensors are sampled "
        "with PyTorch's generator from fixed seeds, so the digits match the published walk-throughs. (The tour "
        "induction uses the built-in model.) The last line names an equivalent program in examples/.\n"
        "--text, --seed, --width, --heads and --weights replace the values of the walk-through; a tour that "
        "cannot change a value rejects the option and states why. With -m MODEL, a tour shows the attention of a "
        "layer of a checkpoint in the same steps, with its weights and hidden states: self-attention and "
        "causal-attention one head, standard-mha, weight-split, grouped-query and llama-attention all heads.\n"
        "--html writes a self-contained page with the same steps and maps of the tensors; - is stdout. "
        "--figure draws one map of weights or the softmax curve, --csv prints a tensor as a table, and "
        "--files writes every table, map and curve to a folder. --colors linear makes maps proportional to the "
        "weights; root, the square root, distinguishes small weights.\n"
        "--json prints {tours: [{name, summary, example, steps: [{title, text, call, tensors: [{name, "
        "shape, values, words}], counts: [{name, parameters, flops}]}]}]}. values are in row-major "
        "order, null if infinite or not a number; words label rows and columns, if present; flops are "
        "for one forward call. Without a name, steps are omitted.",
    .lists = print_tours,
    .words = words,
    .shared = CLI_JSON | CLI_CSV,
    .options = options,
    .groups = groups,
    .examples = "mha tour\n"
                "mha tour weight-split\n"
                "mha tour weight-split --text \"my cat saw my dog\" --heads 4 --seed 7 --width 32\n"
                "mha tour llama-attention -m builtin --layer 1 --text \"red cat red cat\"\n"
                "mha tour all --html tour.html\n",
    .run = run,
};
