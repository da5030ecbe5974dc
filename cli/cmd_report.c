/* cmd_report.c - `mha report`: one text, every head, one HTML file. */
#include <stdlib.h>

#include "commands.h"
#include "heads_json.h"
#include "heads_of_text.h"
#include "output.h"
#include "report_page.h"

static int write_page(cli_session *s, const heads_of_text *h)
{
    char *page = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&page, &bytes);
    report r = {.model_name = s->model_name, .text = h->text, .model = h->model, .heads = h->heads};
    int whole = memory && report_page_write(&r, memory);
    if (memory && fclose(memory) != 0) whole = 0;
    int code = whole ? cli_write_file(s, page, bytes)
                     : cli_fail(s, &(mha_error){.status = MHA_ERR_MEMORY, .message = "no memory for the page"});
    if (code == CLI_DONE) cli_say(s, "%s: %.1f KB; open it in a browser", cli_out_name(s), (double)bytes / 1e3);
    free(page);
    return code;
}

static int put_json(cli_session *s, const heads_of_text *h)
{
    return cli_put_json(s,
                        json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "output", s->options.out, "model",
                                  s->model_name, "text", h->text, "tokens", heads_json_tokens(h->model, h->heads),
                                  "metrics", heads_json_metrics(h->heads), "labels", heads_json_labels(h->heads),
                                  "attention", heads_json_attention(h->heads)),
                        false);
}

static int run(cli_session *s)
{
    if (!s->options.out) return cli_usage(s, "-o FILE.html is missing");
    heads_of_text h;
    int code = cli_check_out(s);
    if (code != CLI_DONE) return code;
    code = heads_of_text_measure(s, &h);
    if (code == CLI_DONE) code = write_page(s, &h);
    if (code == CLI_DONE && s->options.json) code = put_json(s, &h);
    heads_of_text_free(&h);
    return code;
}

const cli_command cli_report = {
    .name = "report",
    .summary = "draw every head of a model on a text as one HTML page",
    .usage = "TEXT",
    .details = "The page needs nothing but itself: no network, no other file; -o - writes it to stdout. With --json "
               "the numbers it shows are also "
               "written to stdout: {output, model, text, tokens, metrics, labels, attention [layers][heads][n][n]}.",
    .shared = CLI_MODEL | CLI_FILE | CLI_OUT | CLI_JSON,
    .run = run,
};
