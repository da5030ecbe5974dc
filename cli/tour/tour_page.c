/* tour_page.c - writes tours as one self-contained HTML page. Without JavaScript it shows all steps. */
#include "tour/tour_page.h"

#include "tour/output/tour_print.h"
#include <string.h>

enum { COLUMNS = 80 };

static void put_element(FILE *out, const char *open, const char *text, const char *close)
{
    fputs(open, out);
    tour_put_escaped(out, text);
    fputs(close, out);
}

static void put_tensor(FILE *out, const tour_tensor *tensor)
{
    char shape[96];
    put_element(out, "<figure>\n<figcaption><b>", tensor->name, "</b> ");
    put_element(out, "", tour_shape_text(tensor, shape), "</figcaption>\n");
    fputs("<div class=\"tensor\">\n", out);
    tour_put_svg(out, tensor);
    fputs("<pre>", out);
    tour_tensor_print(out, tensor, COLUMNS);
    fputs("</pre>\n</div>\n</figure>\n", out);
}

static void put_counts(FILE *out, const tour_step *step)
{
    const tour_count *first = &step->counts[0];
    fputs("<table>\n<tr><th></th><th>parameters</th><th></th><th>flops</th><th></th></tr>\n", out);
    for (int n = 0; n < step->counts_used; n++) {
        const tour_count *c = &step->counts[n];
        const double parameters = (double)c->parameters / (double)first->parameters;
        put_element(out, "<tr><th scope=\"row\">", c->name, "</th>");
        fprintf(out, "<td>%lld</td><td>&times; %.2f</td><td>%lld</td><td>&times; %.2f</td></tr>\n",
                (long long)c->parameters, parameters, (long long)c->flops, (double)c->flops / (double)first->flops);
    }
    fputs("</table>\n", out);
}

static void put_step(FILE *out, const tour *t, int number)
{
    const tour_step *step = &t->steps[number - 1];
    fprintf(out, "<article id=\"%s-%d\">\n<h3 tabindex=\"-1\">%d. ", t->name, number, number);
    put_element(out, "", step->title, "</h3>\n");
    put_element(out, "<p>", step->text, "</p>\n");
    if (step->call) put_element(out, "<p class=\"call\"><code>", step->call, "</code></p>\n");
    for (int n = 0; n < step->tensors_used; n++)
        put_tensor(out, &step->tensors[n]);
    if (step->counts_used > 0) put_counts(out, step);
    fputs("</article>\n", out);
}

/* Writes a tour: links to its steps, then the steps. walk.js shows one step at a time. */
static void put_tour(FILE *out, const tour *t)
{
    fprintf(out, "<section id=\"%s\">\n<h2>%s</h2>\n", t->name, t->name);
    put_element(out, "<p class=\"summary\">", t->summary, ". ");
    put_element(out, "As a program: <code>examples/", t->example, "</code></p>\n");
    fprintf(out, "<nav class=\"steps\" aria-label=\"Steps of %s\"><ol>\n", t->name);
    for (int n = 1; n <= t->step_count; n++) {
        fprintf(out, "<li><a href=\"#%s-%d\">", t->name, n);
        put_element(out, "", t->steps[n - 1].title, "</a></li>\n");
    }
    fputs("</ol></nav>\n", out);
    for (int step = 1; step <= t->step_count; step++)
        put_step(out, t, step);
    fputs("</section>\n", out);
}

/* Writes the color legend. */
static void put_legend(FILE *out)
{
    static const float shares[] = {0, 0.02f, 0.1f, 0.25f, 0.5f, 0.75f, 1};
    static const float numbers[] = {-1, -0.5f, 0, 0.5f, 1};
    tour_tensor weights = {.name = "color scale of weights", .look = TOUR_WEIGHTS, .rank = 1, .shape = {7}, .count = 7};
    tour_tensor others = {.name = "color scale of other tensors", .rank = 1, .shape = {5}, .count = 5};
    float copy[12];
    weights.values = copy;
    others.values = copy + 7;
    for (int n = 0; n < 7; n++)
        copy[n] = shares[n];
    for (int n = 0; n < 5; n++)
        copy[7 + n] = numbers[n];
    fputs("<div class=\"legend\"><div>", out);
    tour_put_svg(out, &weights);
    fputs("weights: 0, 0.02, 0.1, 0.25, 0.5, 0.75, 1</div><div>", out);
    tour_put_svg(out, &others);
    fputs("other tensors: from minus to plus the largest absolute value</div>"
          "<div><i></i> -inf or nan</div></div>\n",
          out);
}

void tour_put_page(FILE *out, tour *const *tours, int count)
{
    fputs((const char *)tour_page_before, out);
    fputs("<nav class=\"tours\" aria-label=\"Tours\"><ul>\n", out);
    for (int n = 0; n < count; n++) {
        fprintf(out, "<li><a href=\"#%s\">%s</a> <span>", tours[n]->name, tours[n]->name);
        put_element(out, "", tours[n]->summary, "</span></li>\n");
    }
    fputs("</ul></nav>\n<div id=\"tours\">\n", out);
    put_legend(out);
    for (int n = 0; n < count; n++)
        put_tour(out, tours[n]);
    fputs("</div>\n", out);
    fputs((const char *)tour_page_after, out);
}
