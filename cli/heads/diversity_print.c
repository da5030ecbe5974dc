/* diversity_print.c - prints how similar heads are: a table of layers, and the most similar pairs. */
#include "heads/head_diversity.h"
#include "output.h"
#include "word_wrap.h"
#include <math.h>
#include <stdlib.h>

enum { SHOWN = 5, WIDTH = 11 };

/* Two heads and the divergence of their maps. */
typedef struct pair {
    int64_t layer[2], head[2];
    double js;
} pair;

static int by_divergence(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    return (x->js > y->js) - (x->js < y->js);
}

/* Returns all pairs of different heads, the most similar first; NULL if memory is exhausted. */
static pair *rank_pairs(const mha_heads *heads, const mha_diversity *d, size_t *count)
{
    const size_t N = (size_t)mha_diversity_heads(d);
    const int64_t layers = mha_heads_layers(heads);
    pair *all = calloc(N * N / 2 + 1, sizeof *all);
    *count = 0;
    for (int64_t a = 0; all && a < layers; a++)
        for (int64_t h = 0; h < mha_heads_count(heads, a); h++)
            for (int64_t b = a; b < layers; b++)
                for (int64_t g = b == a ? h + 1 : 0; g < mha_heads_count(heads, b); g++) {
                    const double js = mha_diversity_value(d, MHA_DIVERSITY_JS, a, h, b, g);
                    if (isfinite(js)) all[(*count)++] = (pair){{a, b}, {h, g}, js};
                }
    if (all) qsort(all, *count, sizeof *all, by_divergence);
    return all;
}

static void print_layers(const cli_session *s, const mha_heads *heads, const mha_diversity *d)
{
    static const struct {
        mha_diversity_kind what;
        const char *title;
    } columns[] = {{MHA_DIVERSITY_JS, "js"},
                   {MHA_DIVERSITY_COSINE, "1 - cosine"},
                   {MHA_DIVERSITY_CKA, "1 - cka"},
                   {MHA_DIVERSITY_SUBSPACE, "1 - overlap"},
                   {MHA_DIVERSITY_UNIQUE, "unique"}};
    enum { COLUMNS = sizeof columns / sizeof *columns };
    fprintf(s->out, "%s%-6s", cli_bold(s), "layer");
    for (int c = 0; c < COLUMNS; c++)
        fprintf(s->out, " %*s", WIDTH, columns[c].title);
    fprintf(s->out, "%s\n", cli_plain(s));
    for (int64_t l = 0; l < mha_heads_layers(heads); l++) {
        fprintf(s->out, "%-6lld", (long long)l);
        for (int c = 0; c < COLUMNS; c++) {
            const double value = mha_diversity_layer(d, columns[c].what, l);
            if (isnan(value))
                fprintf(s->out, " %*s", WIDTH, "-");
            else
                fprintf(s->out, " %*.3f", WIDTH, value);
        }
        fputc('\n', s->out);
    }
}

int head_diversity_print(const cli_session *s, const mha_model *model, const mha_heads *heads, const mha_diversity *d)
{
    size_t count;
    pair *all = rank_pairs(heads, d, &count);
    if (!all) return cli_error(s, CLI_FAILED, "out of memory for the pairs of heads");
    cli_put_prose(s, 0, 0, "Diversity of the heads of each layer (0 = all heads are the same), from %lld rows of maps:",
                  (long long)mha_diversity_rows(d));
    print_layers(s, heads, d);
    fputs("\nMost similar maps (Jensen-Shannon divergence in bits):", s->out);
    for (size_t n = 0; n < count && n < SHOWN; n++) {
        const pair *p = &all[n];
        fprintf(s->out, "\n  %lld.%lld  %lld.%lld  %.4f", (long long)p->layer[0],
                (long long)mha_head_number(model, p->layer[0], p->head[0]), (long long)p->layer[1],
                (long long)mha_head_number(model, p->layer[1], p->head[1]), p->js);
    }
    fputc('\n', s->out);
    free(all);
    return CLI_DONE;
}
