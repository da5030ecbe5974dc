/* tour_text.c - prints a tour in the terminal. */
#include "draw/figure_paint.h"
#include "memory.h"
#include "output.h"
#include "page/color_scale.h"
#include "tour/output/tour_print.h"
#include "word_wrap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INDENT = 3, PYTORCH_COLUMNS = 80, BRACKETS = 4 /* columns for brackets after the last element of a line */ };

const char *tour_shape_text(const tour_tensor *tensor, char text[96])
{
    int length = snprintf(text, 96, tensor->rank ? "[" : "");
    for (int n = 0; n < tensor->rank; n++)
        length += snprintf(text + length, 96 - (size_t)length, n ? ", %lld" : "%lld", (long long)tensor->shape[n]);
    if (tensor->rank) snprintf(text + length, 96 - (size_t)length, "]");
    return text;
}

const char *tour_index_text(const tour_tensor *tensor, int64_t matrix, char text[96])
{
    int64_t at[4] = {0};
    int length = 0;
    for (int axis = tensor->rank - 3; axis >= 0; axis--) {
        at[axis] = matrix % tensor->shape[axis];
        matrix /= tensor->shape[axis];
    }
    text[0] = '\0';
    for (int axis = 0; axis < tensor->rank - 2; axis++)
        length += snprintf(text + length, 96 - (size_t)length, axis ? ", %lld" : "[%lld", (long long)at[axis]);
    if (length > 0) snprintf(text + length, 96 - (size_t)length, "]");
    return text;
}

/* Draws a curve with characters; its y values must be in 0..1. */
static void put_curve(const cli_session *s, const tour_tensor *tensor)
{
    enum { HIGH = 11, WIDEST = 61 };
    const int64_t n = tensor->shape[0];
    const int room = s->columns - 2 * INDENT, wide = room < WIDEST ? room : WIDEST;
    char field[HIGH][WIDEST + 1];
    if (wide < 2) return;
    for (int row = 0; row < HIGH; row++)
        snprintf(field[row], sizeof field[row], "%*s", wide, "");
    for (int column = 0; column < wide; column++) {
        const float y = tensor->values[2 * ((n - 1) * column / (wide - 1)) + 1];
        field[(int)lroundf((1 - y) * (HIGH - 1))][column] = '*';
    }
    for (int row = 0; row < HIGH; row++)
        fprintf(s->out, "%s |%s\n", row == 0 ? "1" : row == HIGH - 1 ? "0" : " ", field[row]);
    fprintf(s->out, "   %-*.0f%.0f\n", wide - 1, (double)tensor->values[0], (double)tensor->values[2 * (n - 1)]);
}

/* Draws a matrix of weights with row labels; larger weights have darker characters. */
static void put_map(const cli_session *s, const tour_tensor *tensor, int64_t map)
{
    static const char shades[] = " .:-=+*#%@";
    const int64_t rows = tensor->shape[tensor->rank - 2], columns = tensor->shape[tensor->rank - 1];
    const float *values = tensor->values + map * rows * columns;
    int widest = 1;
    for (int64_t n = 0; n < tensor->word_count; n++)
        widest = (int)fmax(widest, cli_shown_columns(tensor->words[n], strlen(tensor->words[n])));
    if (INDENT + widest + 2 * columns + 3 > s->columns) return;
    for (int64_t row = 0; row < rows; row++) {
        const char *word = row < tensor->word_count ? tensor->words[row] : "";
        fprintf(s->out, "%*s%s |", INDENT + widest - cli_shown_columns(word, strlen(word)), "", cli_shown(word));
        for (int64_t column = 0; column < columns; column++) {
            const double at = color_position(figure_colors(), (double)values[row * columns + column]);
            const char shade = shades[(int)lround(at * (double)(sizeof shades - 2))];
            fprintf(s->out, "%c%c", shade, shade);
        }
        fputs("|\n", s->out);
    }
}

/* Draws the matrices of the last two axes, at most MAPS, with their indices, as in weights[0, 1]. */
static void put_slices(const cli_session *s, const tour_tensor *tensor)
{
    enum { MAPS = 8 };
    const int64_t each = tensor->shape[tensor->rank - 2] * tensor->shape[tensor->rank - 1];
    char index[96];
    for (int64_t map = 0; map < tensor->count / each && map < MAPS; map++) {
        fprintf(s->out, "%*s%s%s\n", INDENT, "", tensor->name, tour_index_text(tensor, map, index));
        put_map(s, tensor, map);
    }
}

static void put_tensor(const cli_session *s, const tour_tensor *tensor)
{
    char shape[96];
    fprintf(s->out, "\n%s%s%s%s%s\n", cli_bold(s), tensor->name, cli_plain(s), tensor->rank > 0 ? " " : "",
            tour_shape_text(tensor, shape));
    const int columns = s->columns < PYTORCH_COLUMNS ? s->columns - BRACKETS : PYTORCH_COLUMNS;
    tour_tensor_print(s->out, tensor, columns);
    if (tensor->look == TOUR_CURVE) put_curve(s, tensor);
    if (tensor->look == TOUR_WEIGHTS && tensor->rank == 2) put_map(s, tensor, 0);
    if (tensor->look == TOUR_WEIGHTS && tensor->rank > 2 && tensor->words) put_slices(s, tensor);
}

static void put_counts(const cli_session *s, const tour_step *step)
{
    enum { WIDEST = 24, NUMBERS = 26 };
    const int name = s->columns - NUMBERS < WIDEST ? s->columns - NUMBERS : WIDEST;
    const tour_count *first = &step->counts[0];
    fprintf(s->out, "\n%*s %12s %12s\n", name, "", "parameters", "flops");
    for (int n = 0; n < step->counts_used; n++) {
        const tour_count *c = &step->counts[n];
        fprintf(s->out, "%-*s %12lld %12lld", name, cli_shown_start(c->name, name), (long long)c->parameters,
                (long long)c->flops);
        if (n > 0 && s->columns >= PYTORCH_COLUMNS)
            fprintf(s->out, "   %.2f and %.2f times", (double)c->parameters / (double)first->parameters,
                    (double)c->flops / (double)first->flops);
        fputc('\n', s->out);
    }
}

/* Prints the text of a step, which may contain words of the user or of a tokenizer. */
static void put_prose(const cli_session *s, const char *text)
{
    char *escaped;
    size_t bytes;
    FILE *memory = cli_memory_open(&escaped, &bytes);
    cli_put_shown(memory, text, strlen(text));
    fclose(memory);
    cli_put_wrapped(s->out, s->columns, INDENT, INDENT, escaped);
    free(escaped);
}

void tour_put_text(const cli_session *s, const tour *t)
{
    fprintf(s->out, "%s%s%s: ", cli_bold(s), t->name, cli_plain(s));
    cli_put_prose(s, (int)strlen(t->name) + 2, 0, "%s", t->summary);
    for (int n = 0; n < t->step_count; n++) {
        const tour_step *step = &t->steps[n];
        fprintf(s->out, "\n%s%d. %s%s\n%*s", cli_bold(s), n + 1, step->title, cli_plain(s), INDENT, "");
        put_prose(s, step->text);
        if (step->call) {
            fprintf(s->out, "%*s%s-> ", INDENT, "", cli_dim(s));
            cli_put_prose(s, 2 * INDENT, 2 * INDENT, "%s", step->call);
            fputs(cli_plain(s), s->out);
        }
        for (int k = 0; k < step->tensors_used; k++)
            put_tensor(s, &step->tensors[k]);
        if (step->counts_used > 0) put_counts(s, step);
    }
    fputc('\n', s->out);
    cli_put_prose(s, 0, 0, "Equivalent program: examples/%s", t->example);
}
