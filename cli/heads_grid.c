/* heads_grid.c - the grid of heads and its legend. One table gives each label its code, its colour and its score. */
#include "heads_grid.h"

#include <math.h>
#include <string.h>

#include "output.h"
#include "wrap.h"

static const struct style {
    const char *code;
    int background, text; /* of the terminal's 256 colours */
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
    if (session->show_colour)
        fprintf(session->out, "\033[48;5;%d;38;5;%dm%s", style->background, style->text, style->code);
    else
        fputs(style->code, session->out);
}

/* " pr100", " fi 62", " ..   "; without the score " pr". */
static void put_cell(const cli_session *session, const mha_heads *heads, int64_t layer, int64_t head, bool with_score)
{
    mha_head_label label = mha_heads_label(heads, layer, head);
    double score = mha_heads_value(heads, layer, head, styles[label].score); /* NAN for "mixed" */
    fputc(' ', session->out);
    put_code(session, label);
    if (with_score && isfinite(score))
        fprintf(session->out, "%3.0f", fmin(score, 1) * 100);
    else if (with_score)
        fputs("   ", session->out);
    fputs(cli_plain(session), session->out);
}

static int64_t most_heads(const mha_heads *heads)
{
    int64_t most = 0;
    for (int64_t l = 0; l < mha_heads_layers(heads); l++)
        if (mha_heads_count(heads, l) > most) most = mha_heads_count(heads, l);
    return most;
}

void cli_put_grid(const cli_session *session, const mha_heads *heads, int indent)
{
    enum { MARGIN = 6, WIDE = 6, NARROW = 3 }; /* 12 heads just fit 80 columns, with an indent of 2 */
    int64_t heads_most = most_heads(heads), room = session->columns - indent - MARGIN;
    bool with_score = heads_most * WIDE <= room;
    int cell = with_score ? WIDE : NARROW;
    int64_t per_line = room / cell > 1 ? room / cell : 1;

    fprintf(session->out, "%*s%s%-*s", indent, "", cli_dim(session), MARGIN, "layer");
    for (int64_t h = 0; h < heads_most && h < per_line; h++)
        fprintf(session->out, " %-*lld", cell - 1, (long long)h);
    fprintf(session->out, "%s\n", cli_plain(session));
    for (int64_t l = 0; l < mha_heads_layers(heads); l++) {
        for (int64_t h = 0; h < mha_heads_count(heads, l); h++) {
            if (h % per_line == 0 && h > 0) fprintf(session->out, "\n%*s", indent + MARGIN, "");
            if (h == 0)
                fprintf(session->out, "%*s%s%5lld%s ", indent, "", cli_dim(session), (long long)l, cli_plain(session));
            put_cell(session, heads, l, h, with_score);
        }
        fputc('\n', session->out);
    }
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
    enum { LEGEND_MARGIN = 19 }; /* "du duplicate    2  " */
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
