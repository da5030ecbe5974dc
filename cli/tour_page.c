/* tour_page.c - tours as one HTML page: no script, no link to anything outside. */
#include "tour_page.h"

#include <string.h>

#include "tour_print.h"

enum { COLUMNS = 80 };

/* A shape such as [5, 4] stays on one line. */
static void put_escaped(FILE *out, const char *text)
{
    const char *shape_end = text;
    for (; *text; text++) {
        if (*text == '[') shape_end = text + 1 + strspn(text + 1, "0123456789, ");
        if (*text == ' ' && text < shape_end)
            fputs("&nbsp;", out);
        else if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '&')
            fputs("&amp;", out);
        else
            fputc(*text, out);
    }
}

static void put_element(FILE *out, const char *open, const char *text, const char *close)
{
    fputs(open, out);
    put_escaped(out, text);
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
    fprintf(out, "<article id=\"%s-%d\">\n<h3>%d. ", t->name, number, number);
    put_element(out, "", step->title, "</h3>\n");
    put_element(out, "<p>", step->text, "</p>\n");
    if (step->call) put_element(out, "<p class=\"call\"><code>", step->call, "</code></p>\n");
    for (int n = 0; n < step->tensors_used; n++)
        put_tensor(out, &step->tensors[n]);
    if (step->counts_used > 0) put_counts(out, step);
    fputs("</article>\n", out);
}

/* What the colours mean. */
static void put_legend(FILE *out)
{
    static const float shares[] = {0, 0.02f, 0.1f, 0.25f, 0.5f, 0.75f, 1};
    static const float numbers[] = {-1, -0.5f, 0, 0.5f, 1};
    tour_tensor weights = {.name = "the scale of weights", .look = TOUR_WEIGHTS, .rank = 1, .shape = {7}, .count = 7};
    tour_tensor others = {.name = "the scale of other numbers", .rank = 1, .shape = {5}, .count = 5};
    float copy[12];
    weights.values = copy;
    others.values = copy + 7;
    for (int n = 0; n < 7; n++)
        copy[n] = shares[n];
    for (int n = 0; n < 5; n++)
        copy[7 + n] = numbers[n];
    fputs("<div class=\"legend\"><div>", out);
    tour_put_svg(out, &weights);
    fputs("weights: 0, .02, .1, .25, .5, .75, 1</div><div>", out);
    tour_put_svg(out, &others);
    fputs("other numbers: from minus to plus the greatest magnitude of the tensor</div>"
          "<div><i></i> -inf or nan</div></div>\n",
          out);
}

void tour_put_page(FILE *out, tour *const *tours, int count)
{
    fputs((const char *)tour_page_before, out);
    put_legend(out);
    if (count > 1) fputs("<nav><ul>\n", out);
    for (int n = 0; count > 1 && n < count; n++) {
        fprintf(out, "<li><a href=\"#%s\">%s</a> ", tours[n]->name, tours[n]->name);
        put_element(out, "", tours[n]->summary, "</li>\n");
    }
    if (count > 1) fputs("</ul></nav>\n", out);
    for (int n = 0; n < count; n++) {
        fprintf(out, "<section id=\"%s\">\n<h2>%s</h2>\n", tours[n]->name, tours[n]->name);
        put_element(out, "<p class=\"summary\">", tours[n]->summary, "</p>\n");
        put_element(out, "<p>As a program: <code>examples/", tours[n]->example, "</code></p>\n");
        for (int step = 1; step <= tours[n]->step_count; step++)
            put_step(out, tours[n], step);
        fputs("</section>\n", out);
    }
    fputs((const char *)tour_page_after, out);
}
