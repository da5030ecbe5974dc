/* tour_files.c - see tour_files.h. */
#include "tour/output/tour_files.h"

#include "draw/figure_paint.h"
#include "memory.h"
#include "output.h"
#include "output_is_input.h"
#include "tour/output/tour_figure.h"
#include "tour/output/tour_print.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- tables ---- */

static int64_t columns_of(const tour_tensor *t)
{
    return t->rank > 0 ? t->shape[t->rank - 1] : 1;
}

static void put_label(FILE *out, const tour_tensor *t, int64_t n, int64_t size)
{
    if (t->words && t->word_count == size)
        cli_put_csv(out, t->words[n]);
    else
        fprintf(out, "%lld", (long long)n);
}

static void put_header(FILE *out, const tour_tensor *t)
{
    static const char *const curve[] = {"x", "y"};
    const int64_t columns = columns_of(t);
    for (int axis = 0; axis < t->rank - 1; axis++)
        fprintf(out, axis == t->rank - 2 ? "row," : "axis %d,", axis);
    for (int64_t n = 0; n < columns; n++) {
        if (n > 0) fputc(',', out);
        if (t->look == TOUR_CURVE)
            fputs(curve[n], out);
        else if (t->rank == 0)
            fputs("value", out);
        else
            put_label(out, t, n, columns);
    }
    fputc('\n', out);
}

/* Writes the indices of a row along all axes except the last. */
static void put_indices(FILE *out, const tour_tensor *t, int64_t row)
{
    int64_t index[4] = {0};
    for (int axis = t->rank - 2; axis >= 0; axis--) {
        index[axis] = row % t->shape[axis];
        row /= t->shape[axis];
    }
    for (int axis = 0; axis < t->rank - 1; axis++) {
        if (axis == t->rank - 2)
            put_label(out, t, index[axis], t->shape[axis]);
        else
            fprintf(out, "%lld", (long long)index[axis]);
        fputc(',', out);
    }
}

/* Writes rows first to first + count - 1 of all rows of the tensor. */
static void put_table(FILE *out, const tour_tensor *t, int64_t first, int64_t count)
{
    const int64_t columns = columns_of(t);
    put_header(out, t);
    for (int64_t row = first; row < first + count; row++) {
        put_indices(out, t, row);
        for (int64_t n = 0; n < columns; n++)
            fprintf(out, n ? ",%.9g" : "%.9g", (double)t->values[row * columns + n]);
        fputc('\n', out);
    }
}

int tour_csv_put(cli_session *s, const tour *t, const char *name)
{
    int64_t matrix = 0;
    const tour_tensor *tensor = tour_tensor_find(t, name, &matrix);
    if (!tensor)
        return cli_usage(s, "--tensor must be a tensor of the tour %s, with an index if needed (got \"%s\")", t->name,
                         cli_shown(name));
    const int64_t rows = tensor->count / columns_of(tensor),
                  each = tensor->rank > 1 ? tensor->shape[tensor->rank - 2] : 1;
    if (name && strchr(name, '['))
        put_table(s->out, tensor, matrix * each, each);
    else
        put_table(s->out, tensor, 0, rows);
    return CLI_DONE;
}

/* ---- files ---- */

enum { PATH = 512, NAME = 128 };

/* The files of a tour. All names are checked before the first file is written, so that an existing file stops all.
 * After a failure, new files are removed. */
typedef enum pass { CHECK, WRITE, REMOVE } pass;

typedef struct saving {
    cli_session *s;
    const tour *t;
    const char *folder;
    pass pass;
} saving;

/* Checks that the output `path` can be written and is not an input, or removes it. */
static int check_or_remove(const saving *to, const char *path)
{
    if (to->pass == CHECK) {
        const int code = cli_inputs_check(to->s, "--files", path);
        return code == CLI_DONE ? cli_check_out(to->s) : code;
    }
    unlink(path); /* a file that was not written does not exist */
    return CLI_DONE;
}

static int save_table(const saving *to, const tour_tensor *tensor)
{
    char path[PATH], *text;
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s.csv", to->folder, tensor->name);
    to->s->options.out = path;
    if (to->pass != WRITE) return check_or_remove(to, path);
    FILE *memory = cli_memory_open(&text, &bytes);
    put_table(memory, tensor, 0, tensor->count / columns_of(tensor));
    fclose(memory);
    const int code = cli_write_file(to->s, text, bytes);
    free(text);
    return code;
}

/* Writes an index such as "[0, 1]" as "-0-1", for a file name. */
static void dash(char *index)
{
    char *to = index;
    for (const char *at = index; *at; at++)
        if (*at != ' ' && *at != ']') *to++ = *at == '[' || *at == ',' ? '-' : *at;
    *to = '\0';
}

static int save_figures(const saving *to, const tour_tensor *tensor)
{
    static const struct {
        const char *extension;
        double scale;
    } formats[] = {{"png", 2}, {"svg", 1}};
    const int64_t n = columns_of(tensor), maps = tensor->look == TOUR_CURVE ? 1 : tensor->count / (n * n);
    const color_scale colors = figure_colors();
    char path[PATH], name[2 * NAME], index[NAME];
    int code = CLI_DONE;
    for (int64_t f = 0; f < 2 * maps && code == CLI_DONE; f++) {
        tour_index_text(tensor, f / 2, index);
        snprintf(name, sizeof name, "%.100s%s", tensor->name, index);
        dash(index);
        snprintf(path, sizeof path, "%s/%s%s.%s", to->folder, tensor->name, index, formats[f % 2].extension);
        to->s->options.out = path;
        figure_set_style((figure_style){.scale = formats[f % 2].scale, .colors = colors, .font = "sans-serif"});
        code = to->pass == WRITE ? tour_figure_save(to->s, to->t, name) : check_or_remove(to, path);
    }
    return code;
}

static int save_all(const saving *to)
{
    int code = CLI_DONE;
    for (int i = 0; i < to->t->step_count; i++)
        for (int n = 0; n < to->t->steps[i].tensors_used && code == CLI_DONE; n++) {
            const tour_tensor *tensor = &to->t->steps[i].tensors[n];
            code = save_table(to, tensor);
            if (code == CLI_DONE && tour_can_draw(tensor)) code = save_figures(to, tensor);
        }
    to->s->options.out = NULL;
    return code;
}

int tour_files_save(cli_session *s, const tour *t, const char *folder)
{
    struct stat info;
    saving to = {s, t, folder, CHECK};
    if (!*folder || strlen(folder) > PATH - NAME)
        return cli_usage(s, "--files must have 1 to %d bytes (got %zu)", PATH - NAME, strlen(folder));
    const bool created = mkdir(folder, 0777) == 0;
    if (!created && errno != EEXIST)
        return cli_error(s, CLI_FAILED, "%s: cannot create the folder: %s", cli_shown(folder), strerror(errno));
    if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode))
        return cli_usage(s, "--files must be a folder (got the file \"%s\")", cli_shown(folder));
    int code = save_all(&to);
    if (code == CLI_DONE) {
        to.pass = WRITE;
        code = save_all(&to);
        to.pass = REMOVE; /* with --force, files in an existing folder may be older, so all remain */
        if (code != CLI_DONE && (created || !s->options.force)) save_all(&to);
    }
    if (code != CLI_DONE && created) rmdir(folder);
    return code;
}
