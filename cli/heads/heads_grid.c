/* heads_grid.c - prints the grid of heads and its legend. One table contains each label's code, colors and metric. */
#include "heads/heads_grid.h"

#include "output.h"
#include "page/color_scale.h"
#include "word_wrap.h"
#include <math.h>
#include <string.h>

static const struct style {
    const char *code;
    int background, text; /* colors of the cell, as indices into the terminal's 256 colors */
    mha_head_metric score;
} styles[MHA_HEAD_LABELS] = {
    [MHA_LABEL_INDUCTION] = {"in", 201, 16, MHA_HEAD_INDUCTION_PROBE},
    [MHA_LABEL_DUPLICATE] = {"du", 171, 16, MHA_HEAD_DUP_PROBE},
    [MHA_LABEL_PREV] = {"pr", 39, 16, MHA_HEAD_PREV},
    [MHA_LABEL_NEXT] = {"ne", 45, 16, MHA_HEAD_NEXT},
    [MHA_LABEL_SELF] = {"se", 120, 16, MHA_HEAD_SELF},
    [MHA_LABEL_FIRST] = {"fi", 60, 231, MHA_HEAD_FIRST},
    [MHA_LABEL_SEP] = {"sp", 96, 231, MHA_HEAD_SEP},
    [MHA_LABEL_PUNCT] = {"pu", 209, 16, MHA_HEAD_PUNCT},
    [MHA_LABEL_LOCAL] = {"lo", 79, 16, MHA_HEAD_WINDOW2},
    [MHA_LABEL_BLOCK] = {"bl", 109, 231, MHA_HEAD_BLOCK},
    [MHA_LABEL_BROAD] = {"br", 187, 16, MHA_HEAD_BROAD},
    [MHA_LABEL_VERTICAL] = {"ve", 220, 16, MHA_HEAD_VERTICAL},
    [MHA_LABEL_MIXED] = {"..", 238, 250, MHA_HEAD_METRICS},
};

mha_head_metric cli_label_metric(mha_head_label label)
{
    return styles[label].score;
}

static void put_code(const cli_session *session, mha_head_label label)
{
    const struct style *style = &styles[label];
    if (session->show_color)
        fprintf(session->out, "\033[48;5;%d;38;5;%dm%s", style->background, style->text, style->code);
    else
        fputs(style->code, session->out);
}

/* The contents of the cells: labels with scores, or importance; `wide` if a number fits. */
typedef struct cell {
    const mha_heads *heads;
    const mha_importance *importance; /* NULL = show labels and their scores */
    double max;                       /* largest importance of all heads */
    color_scale colors;               /* of the importance */
    bool wide;
} cell;

/* Layout of the cells of a grid. */
typedef struct grid {
    const mha_model *model;
    int64_t numbers, per_line; /* number of columns (original head numbers), and columns per line */
    int width, margin;         /* width of a cell; indent of a line that continues a layer */
} grid;

/* Prints a label and its score in percent, such as "pr100", "fi 62" or "..   "; in a narrow cell only the label. */
static void put_label_cell(const cli_session *session, const cell *c, int64_t layer, int64_t head)
{
    mha_head_label label = mha_heads_label(c->heads, layer, head);
    double score =
        mha_heads_value(c->heads, layer, head, styles[label].score); /* NAN for "mixed", which has no score */
    put_code(session, label);
    if (c->wide && isfinite(score))
        fprintf(session->out, "%3.0f", fmin(score, 1) * 100);
    else if (c->wide)
        fputs("   ", session->out);
}

/* viridis in the terminal's 256 colors; the dark colors at the start have white text. */
static const int ramp[] = {53, 54, 60, 24, 30, 36, 71, 113, 148, 184, 226};
enum { RAMP = sizeof ramp / sizeof *ramp, DARK = 5 };

static void set_ramp(const cli_session *session, color_scale colors, double share)
{
    int at = (int)(color_position(colors, share) * (RAMP - 1) + 0.5);
    if (session->show_color) fprintf(session->out, "\033[48;5;%d;38;5;%dm", ramp[at], at < DARK ? 231 : 16);
}

/* Prints the label and the importance as a percentage of the largest importance, such as "pr100". The color also shows
 * the percentage. A narrow cell contains only the label if color is on, otherwise only the number. */
static void put_importance_cell(const cli_session *session, const cell *c, int64_t layer, int64_t head)
{
    double share = fmax(mha_importance_value(c->importance, layer, head), 0) / c->max;
    const char *code = styles[mha_heads_label(c->heads, layer, head)].code;
    set_ramp(session, c->colors, share);
    if (c->wide)
        fprintf(session->out, "%s%3.0f", code, share * 100);
    else if (session->show_color)
        fputs(code, session->out);
    else
        fprintf(session->out, "%2.0f", fmin(share * 100, 99));
}

/* Returns the largest original head number plus 1. */
static int64_t count_numbers(const mha_model *model, const mha_heads *heads)
{
    int64_t count = 0;
    for (int64_t l = 0; l < mha_heads_layers(heads); l++)
        for (int64_t h = 0; h < mha_heads_count(heads, l); h++)
            if (mha_head_number(model, l, h) >= count) count = mha_head_number(model, l, h) + 1;
    return count;
}

static void put_layer(const cli_session *session, const cell *c, int64_t layer, const grid *g)
{
    for (int64_t n = 0; n < g->numbers; n++) {
        if (n % g->per_line == 0 && n > 0) fprintf(session->out, "\n%*s", g->margin, "");
        const int64_t head = mha_head_place(g->model, layer, n);
        if (head < 0) {
            fprintf(session->out, "%*s", g->width, "");
            continue;
        }
        fputc(' ', session->out);
        (c->importance ? put_importance_cell : put_label_cell)(session, c, layer, head);
        fputs(cli_plain(session), session->out);
    }
    fputc('\n', session->out);
}

static void put_grid(const cli_session *session, const mha_model *model, cell c, int indent)
{
    enum { MARGIN = 6, WIDE = 6, NARROW = 3 }; /* 12 heads just fit 80 columns, with an indent of 2 */
    const int64_t numbers = count_numbers(model, c.heads), room = session->columns - indent - MARGIN;
    c.wide = numbers * WIDE <= room;
    const int width = c.wide ? WIDE : NARROW;
    const grid g = {model, numbers, room / width > 1 ? room / width : 1, width, indent + MARGIN};

    fprintf(session->out, "%*s%s%-*s", indent, "", cli_dim(session), MARGIN, "layer");
    for (int64_t n = 0; n < numbers && n < g.per_line; n++)
        fprintf(session->out, " %-*lld", width - 1, (long long)n);
    fprintf(session->out, "%s\n", cli_plain(session));
    for (int64_t l = 0; l < mha_heads_layers(c.heads); l++) {
        fprintf(session->out, "%*s%s%5lld%s ", indent, "", cli_dim(session), (long long)l, cli_plain(session));
        put_layer(session, &c, l, &g);
    }
}

void cli_put_grid(const cli_session *session, const mha_model *model, const mha_heads *heads, int indent)
{
    put_grid(session, model, (cell){.heads = heads}, indent);
}

/* Prints the color scale, if it fits the terminal, and the meaning of the percentages. */
static void put_ramp(const cli_session *session, color_scale colors, double max, int indent)
{
    enum { STEP = 4 };
    const bool fits = session->show_color && indent + RAMP * STEP <= session->columns;
    if (fits) fprintf(session->out, "%*s", indent, "");
    for (int i = 0; fits && i < RAMP; i++) {
        const double at = (double)i / (RAMP - 1), share = colors == COLOR_LINEAR ? at : at * at;
        set_ramp(session, colors, share);
        fprintf(session->out, "%*.0f ", STEP - 1, share * 100);
    }
    if (fits) fprintf(session->out, "%s\n", cli_plain(session));
    fprintf(session->out, "%*s", indent, "");
    cli_put_prose(session, indent, indent, "Numbers%s are percentages of the largest importance, %.4g.",
                  session->show_color ? " and colors" : "", max);
}

void cli_put_importance_grid(const cli_session *session, const mha_model *model, const mha_heads *heads,
                             const mha_importance *importance, color_scale colors, int indent)
{
    double max = 0;
    for (int64_t l = 0; l < mha_heads_layers(heads); l++)
        for (int64_t h = 0; h < mha_heads_count(heads, l); h++)
            max = fmax(max, mha_importance_value(importance, l, h));
    put_grid(session, model,
             (cell){.heads = heads, .importance = importance, .max = max > 0 ? max : 1, .colors = colors}, indent);
    put_ramp(session, colors, max, indent);
}

static int64_t count_label(const mha_heads *heads, mha_head_label label)
{
    int64_t count = 0;
    for (int64_t l = 0; l < mha_heads_layers(heads); l++)
        for (int64_t h = 0; h < mha_heads_count(heads, l); h++)
            count += mha_heads_label(heads, l, h) == label;
    return count;
}

void cli_put_legend(const cli_session *session, const mha_heads *heads, int indent)
{
    enum { LEGEND_MARGIN = 19 }; /* columns of an entry such as "du duplicate    2  " */
    for (int i = 0; i < MHA_HEAD_LABELS; i++) {
        mha_head_label label = (mha_head_label)i;
        int64_t count = count_label(heads, label);
        if (count == 0) continue;
        fprintf(session->out, "%*s", indent, "");
        put_code(session, label);
        fprintf(session->out, "%s %s%-9s%s %4lld  ", cli_plain(session), cli_bold(session), mha_head_label_key(label),
                cli_plain(session), (long long)count);
        cli_put_wrapped(session->out, session->columns, indent + LEGEND_MARGIN, indent + LEGEND_MARGIN,
                        mha_head_label_help(label));
    }
}
