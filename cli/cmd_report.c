/* cmd_report.c - `mha report`: one text, every head of a model or of two, one HTML file. */
#include <stdlib.h>

#include "commands.h"
#include "heads_json.h"
#include "heads_of_text.h"
#include "output.h"
#include "report_page.h"

static char *compared;

static const struct poptOption options[] = {
    {"compare", '\0', POPT_ARG_STRING, &compared, 0, "show the heads of MODEL2 beside those of MODEL", "MODEL2"},
    POPT_TABLEEND,
};

/* One model of the report, with all that was measured of it. */
typedef struct part {
    heads_of_text text;
} part;

static report_model page_part(const part *p)
{
    return (report_model){.name = p->text.name, .model = p->text.model, .heads = p->text.heads};
}

static int write_page(cli_session *s, const part parts[2], int count)
{
    char *page = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&page, &bytes);
    report r = {.text = parts[0].text.text, .count = count};
    for (int i = 0; i < count; i++)
        r.models[i] = page_part(&parts[i]);
    int whole = memory && report_page_write(&r, memory);
    if (memory && fclose(memory) != 0) whole = 0;
    int code = whole ? cli_write_file(s, page, bytes)
                     : cli_fail(s, &(mha_error){.status = MHA_ERR_MEMORY, .message = "no memory for the page"});
    if (code == CLI_DONE) cli_say(s, "%s: %.1f KB; open it in a browser", cli_out_name(s), (double)bytes / 1e3);
    free(page);
    return code;
}

static json_t *part_json(const part *p)
{
    const heads_of_text *h = &p->text;
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "model", h->name, "text", h->text, "tokens",
                     heads_json_tokens(h->model, h->heads), "heads", heads_json_numbers(h->model, h->heads), "metrics",
                     heads_json_metrics(h->heads), "labels", heads_json_labels(h->heads), "attention",
                     heads_json_attention(h->heads));
}

static int put_json(cli_session *s, const part parts[2], int count)
{
    json_t *all = part_json(&parts[0]);
    if (all) json_object_set_new(all, "output", json_string(s->options.out));
    if (all && count > 1 && json_object_set_new(all, "compare", part_json(&parts[1])) != 0) {
        json_decref(all);
        all = NULL;
    }
    return cli_put_json(s, all, false);
}

static int run(cli_session *s)
{
    if (!s->options.out) return cli_usage(s, "-o FILE.html is missing");
    part parts[2] = {0};
    const int count = compared ? 2 : 1;
    int code = cli_check_out(s);
    if (code != CLI_DONE) return code;
    code = heads_of_text_measure(s, &parts[0].text);
    if (code == CLI_DONE && compared) code = heads_of_text_again(s, compared, &parts[0].text, &parts[1].text);
    if (code == CLI_DONE) code = write_page(s, parts, count);
    if (code == CLI_DONE && s->options.json) code = put_json(s, parts, count);
    for (int i = 0; i < count; i++)
        heads_of_text_free(&parts[i].text);
    return code;
}

const cli_command cli_report = {
    .name = "report",
    .summary = "draw every head of a model on a text as one HTML page",
    .usage = "TEXT",
    .details = "The page needs nothing but itself: no network, no other file; -o - writes it to stdout. With --json "
               "the numbers it shows are also written to stdout: {output, model, text, tokens, heads, metrics, labels, "
               "attention [layers][heads][n][n]}, and with --compare the same of MODEL2 as compare.",
    .shared = CLI_MODEL | CLI_FILE | CLI_OUT | CLI_JSON | CLI_SEED,
    .options = options,
    .run = run,
};
