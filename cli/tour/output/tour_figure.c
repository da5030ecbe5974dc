/* tour_figure.c - draws a tensor of a tour as a map or a curve. */
#include "tour/output/tour_figure.h"

#include "draw/chart.h"
#include "draw/figure.h"
#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 24 };

static bool is_map(const tour_tensor *t)
{
    return t->look == TOUR_WEIGHTS && t->rank >= 2 && t->shape[t->rank - 1] == t->shape[t->rank - 2];
}

bool tour_can_draw(const tour_tensor *t)
{
    return t->look == TOUR_CURVE || is_map(t);
}

/* Returns the tensor named by the first `length` bytes of `name`, or for NULL the first tensor that can be drawn. */
static const tour_tensor *find(const tour *t, const char *name, size_t length)
{
    for (int s = 0; s < t->step_count; s++)
        for (int n = 0; n < t->steps[s].tensors_used; n++) {
            const tour_tensor *tensor = &t->steps[s].tensors[n];
            if (!name ? tour_can_draw(tensor)
                      : strlen(tensor->name) == length && strncmp(tensor->name, name, length) == 0)
                return tensor;
        }
    return NULL;
}

/* Returns the number of the matrix at an index such as "[1, 0]"; 0 for ""; -1 if the index is invalid. */
static int64_t matrix_of(const tour_tensor *t, const char *index)
{
    int64_t matrix = 0;
    if (!*index) return 0;
    for (int axis = 0; axis < t->rank - 2; axis++) {
        char *end;
        const long long at = strtoll(index + 1, &end, 10);
        if (end == index + 1 || at < 0 || at >= t->shape[axis] || *end != (axis == t->rank - 3 ? ']' : ',')) return -1;
        matrix = matrix * t->shape[axis] + at;
        index = end;
    }
    return strcmp(index, "]") == 0 ? matrix : -1;
}

static const char *draw_curve(const cli_session *s, const tour_tensor *t, const char *title, unsigned char **data,
                              size_t *bytes)
{
    const int64_t n = t->shape[0];
    double *x = calloc(2 * (size_t)n, sizeof *x);
    if (!x) return "out of memory";
    for (int64_t i = 0; i < 2 * n; i++)
        x[i % 2 * n + i / 2] = (double)t->values[i];
    const chart c = {.title = title,
                     .x_title = "x",
                     .count = (int)n,
                     .x = x,
                     .mark = NAN,
                     .plain = true,
                     .panels = 1,
                     .panel = {{.title = t->name, .y = x + n, .limit = NAN}}};
    const char *wrong = chart_draw(&c, s->options.out, data, bytes);
    free(x);
    return wrong;
}

/* Draws a matrix as a map; rows and columns are labeled with words or numbers. */
static const char *draw_map(const cli_session *s, const tour_tensor *t, int64_t matrix, const char *title,
                            unsigned char **data, size_t *bytes)
{
    const int64_t n = t->shape[t->rank - 1];
    const char **names = malloc((size_t)n * (sizeof *names + DIGITS));
    if (!names) return "out of memory";
    char *digits = (char *)(names + n);
    for (int64_t i = 0; i < n; i++, digits += DIGITS) {
        snprintf(digits, DIGITS, "%lld", (long long)i);
        names[i] = t->words ? t->words[i] : digits;
    }
    const figure f = {.title = title, .n = n, .tokens = names, .map = t->values + matrix * n * n};
    const char *wrong = figure_draw(&f, s->options.out, data, bytes);
    free(names);
    return wrong;
}

static int refuse(const cli_session *s, const tour *t, const char *name)
{
    char names[512] = "";
    size_t used = 0;
    for (int i = 0; i < t->step_count; i++)
        for (int n = 0; n < t->steps[i].tensors_used && used < sizeof names; n++)
            if (tour_can_draw(&t->steps[i].tensors[n]))
                used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                         t->steps[i].tensors[n].name);
    if (!*names) return cli_usage(s, "--figure requires a tour with a map of weights or a curve (got %s)", t->name);
    return cli_usage(s, "--tensor must be one of %s, with an index if it has several maps (got \"%s\")", names,
                     cli_shown(name));
}

const tour_tensor *tour_tensor_find(const tour *t, const char *name, int64_t *matrix)
{
    const tour_tensor *tensor = find(t, name, name ? strcspn(name, "[") : 0);
    if (!tensor && !name && t->step_count > 0 && t->steps[0].tensors_used > 0) tensor = &t->steps[0].tensors[0];
    *matrix = tensor ? matrix_of(tensor, name ? name + strcspn(name, "[") : "") : -1;
    return *matrix >= 0 ? tensor : NULL;
}

int tour_figure_save(cli_session *s, const tour *t, const char *name)
{
    int64_t matrix = 0;
    const tour_tensor *tensor = tour_tensor_find(t, name, &matrix);
    if (!tensor || !tour_can_draw(tensor)) return refuse(s, t, name ? name : "");
    char title[160];
    unsigned char *data = NULL;
    size_t bytes = 0;
    snprintf(title, sizeof title, "%s: %s", t->name, name ? name : tensor->name);
    const char *wrong = tensor->look == TOUR_CURVE ? draw_curve(s, tensor, title, &data, &bytes)
                                                   : draw_map(s, tensor, matrix, title, &data, &bytes);
    int code =
        wrong ? cli_error(s, CLI_FAILED, "%s: %s", cli_shown(s->options.out), wrong) : cli_write_file(s, data, bytes);
    if (code == CLI_DONE) cli_say(s, "%s: %.1f KB; %s", cli_shown(s->options.out), (double)bytes / 1e3, tensor->name);
    free(data);
    return code;
}
