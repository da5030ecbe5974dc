/* verify_log.c - counts the results of `mha verify` and prints them. */
#include "output.h"
#include "verify/verify.h"
#include "word_wrap.h"
#include <math.h>
#include <string.h>

void verify_log_open(verify_log *log)
{
    *log = (verify_log){.groups = json_object(),
                        .failures = json_array(),
                        .refusals = json_array(),
                        .worst_case = json_null(),
                        .skipped = json_object(),
                        .kind = "self"};
    log->no_memory = !log->groups || !log->failures || !log->refusals || !log->skipped;
}

void verify_log_close(verify_log *log)
{
    json_decref(log->groups);
    json_decref(log->failures);
    json_decref(log->refusals);
    json_decref(log->worst_case);
    json_decref(log->skipped);
    json_decref(log->table);
}

void verify_begin(verify_case *c, const char *group, const char *name)
{
    *c = (verify_case){.group = group, .name = name};
}

void verify_measured(verify_case *c, const char *tensor, double error, double limit)
{
    double ratio = error == 0 ? 0 : error / limit; /* infinite if the tolerance is 0 and the error is not */
    if (isnan(ratio)) ratio = INFINITY;
    if (c->tensor[0] && ratio <= c->ratio) return;
    snprintf(c->tensor, sizeof c->tensor, "%s", tensor);
    c->error = error;
    c->limit = limit;
    c->ratio = ratio;
}

static double distance(double got, double want)
{
    if (got == want || (isnan(got) && isnan(want))) return 0;
    return isfinite(got) && isfinite(want) ? fabs(got - want) : INFINITY;
}

void verify_compare(verify_case *c, const char *tensor, const float *got, const double *want, int64_t count,
                    double limit)
{
    double error = 0;
    for (int64_t n = 0; n < count; n++)
        error = fmax(error, distance((double)got[n], want[n]));
    verify_measured(c, tensor, error, limit);
}

void verify_compare_reals(verify_case *c, const char *tensor, const double *got, const double *want, int64_t count,
                          double limit)
{
    double error = 0;
    for (int64_t n = 0; n < count; n++)
        error = fmax(error, distance(got[n], want[n]));
    verify_measured(c, tensor, error, limit);
}

void verify_stopped(verify_case *c, const mha_error *error)
{
    c->refused = error->status == MHA_ERR_UNSUPPORTED;
    c->broken = !c->refused;
    snprintf(c->reason, sizeof c->reason, "%s", error->message);
}

/* ---- counting ---- */

static void add_to(verify_log *log, json_t *object, const char *key, int64_t n)
{
    int64_t before = json_integer_value(json_object_get(object, key));
    if (json_object_set_new(object, key, json_integer(before + n)) != 0) log->no_memory = true;
}

static json_t *group_of(verify_log *log, const char *name)
{
    json_t *group = json_object_get(log->groups, name);
    if (group) return group;
    group = json_pack("{s:i, s:i, s:i}", "passed", 0, "failed", 0, "refused", 0);
    if (json_object_set_new(log->groups, name, group) != 0) log->no_memory = true;
    return json_object_get(log->groups, name);
}

/* Returns a ratio stored in JSON; null represents infinity. */
static double ratio_of(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : INFINITY;
}

static json_t *numbers_of(const verify_case *c)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:o}", "group", c->group, "name", c->name, "tensor", c->tensor, "error",
                     cli_real(c->error), "limit", cli_real(c->limit));
}

/* Updates the largest error / limit of a group. */
static void note_worst_of_group(verify_log *log, const verify_case *c)
{
    json_t *group = group_of(log, c->group);
    const json_t *before = json_object_get(group, "worst");
    if (!c->tensor[0] || (before && c->ratio <= ratio_of(before))) return;
    if (json_object_set_new(group, "worst", cli_real(c->ratio)) != 0 ||
        json_object_set_new(group, "worst_case", numbers_of(c)) != 0)
        log->no_memory = true;
}

static void note_worst(verify_log *log, const verify_case *c)
{
    if (!c->tensor[0] || (json_is_object(log->worst_case) && c->ratio <= log->worst)) return;
    log->worst = c->ratio;
    json_decref(log->worst_case);
    log->worst_case = numbers_of(c);
    if (!log->worst_case) log->no_memory = true;
}

void verify_end(verify_log *log, const verify_case *c)
{
    bool failed = c->broken || (!c->refused && !(c->ratio <= 1));
    json_t *entry = NULL;
    if (c->refused || c->broken)
        entry = json_pack("{s:s, s:s, s:s}", "group", c->group, "name", c->name, "reason", c->reason);
    else if (failed)
        entry = numbers_of(c);
    if (entry && json_array_append_new(c->refused ? log->refusals : log->failures, entry) != 0) log->no_memory = true;
    if ((c->refused || failed) && !entry) log->no_memory = true;
    *(c->refused ? &log->refused : failed ? &log->failed : &log->passed) += 1;
    add_to(log, group_of(log, c->group), c->refused ? "refused" : failed ? "failed" : "passed", 1);
    if (c->refused) return;
    note_worst(log, c);
    note_worst_of_group(log, c);
}

void verify_skip(verify_log *log, const char *tensor)
{
    add_to(log, log->skipped, tensor, 1);
}

/* ---- output ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return cli_shown(text ? text : "");
}

static double real_of(const json_t *object, const char *key)
{
    return ratio_of(json_object_get(object, key));
}

static void print_failures(const cli_session *s, const verify_log *log)
{
    size_t n;
    json_t *f;
    json_array_foreach(log->failures, n, f)
    {
        if (json_object_get(f, "reason"))
            cli_put_prose(s, 0, 6, "FAIL  %s  %s  %s", text_of(f, "group"), text_of(f, "name"), text_of(f, "reason"));
        else
            cli_put_prose(s, 0, 6, "FAIL  %s  %s  %s  error %.3g  limit %.3g", text_of(f, "group"), text_of(f, "name"),
                          text_of(f, "tensor"), real_of(f, "error"), real_of(f, "limit"));
    }
}

/* Terminal columns of the group name, the counts, and one ISA. */
enum { NAME_COLUMNS = 24, COUNT_COLUMNS = 43, ISA_COLUMNS = 11 };

static int name_columns(const cli_session *s, int rest)
{
    return s->columns - rest < NAME_COLUMNS ? s->columns - rest : NAME_COLUMNS;
}

static void print_groups(const cli_session *s, const verify_log *log)
{
    FILE *out = s->out;
    const int width = name_columns(s, COUNT_COLUMNS);
    const char *name;
    json_t *group;
    fprintf(out, "%-*s %7s %7s %11s %14s\n", width, cli_shown_start("group", width), "passed", "failed", "unsupported",
            "error / limit");
    json_object_foreach(log->groups, name, group)
    {
        fprintf(out, "%-*s %7lld %7lld %11lld", width, cli_shown_start(name, width),
                (long long)json_integer_value(json_object_get(group, "passed")),
                (long long)json_integer_value(json_object_get(group, "failed")),
                (long long)json_integer_value(json_object_get(group, "refused")));
        const json_t *worst = json_object_get(group, "worst");
        if (worst)
            fprintf(out, " %14.2f\n", ratio_of(worst));
        else
            fprintf(out, " %14s\n", "-");
    }
}

/* Logs each reason why cases are unsupported, with the number of cases. */
static void say_refusals(const cli_session *session, const verify_log *log)
{
    json_t *counts = json_object(), *refusal, *count;
    size_t n;
    const char *reason;
    json_array_foreach(log->refusals, n, refusal)
    {
        const char *text = json_string_value(json_object_get(refusal, "reason"));
        json_int_t before = json_integer_value(json_object_get(counts, text));
        json_object_set_new(counts, text, json_integer(before + 1));
    }
    json_object_foreach(counts, reason, count)
        cli_say(session, "%lld unsupported: %s", (long long)json_integer_value(count), cli_shown(reason));
    json_decref(counts);
}

/* Prints columns `first` to first + count - 1 of a row: the names of the ISAs, or their values. */
static void put_isas(FILE *out, json_t *row, int first, int count, bool names)
{
    const char *isa;
    json_t *ratio;
    int n = 0;
    json_object_foreach(row, isa, ratio)
    {
        const bool wanted = n >= first && n < first + count;
        n++;
        if (wanted && names)
            fprintf(out, " %*s", ISA_COLUMNS - 1, isa);
        else if (wanted)
            fprintf(out, " %*.2f", ISA_COLUMNS - 1, ratio_of(ratio));
    }
}

/* Prints the largest error / limit per group and ISA; ISAs that do not fit the terminal are printed in more tables. */
static void print_table(const cli_session *s, const verify_log *log)
{
    const char *group;
    json_t *row, *head = json_object_iter_value(json_object_iter(log->table));
    const int width = name_columns(s, ISA_COLUMNS), room = (s->columns - width) / ISA_COLUMNS,
              isas = (int)json_object_size(head);
    cli_put_prose(s, 0, 0, "largest difference from a double-precision reference, in units of the tolerance");
    for (int first = 0; first<isas; first += room> 0 ? room : 1) {
        fprintf(s->out, "%*s", width, "");
        put_isas(s->out, head, first, room > 0 ? room : 1, true);
        json_object_foreach(log->table, group, row)
        {
            fprintf(s->out, "\n%-*s", width, cli_shown_start(group, width));
            put_isas(s->out, row, first, room > 0 ? room : 1, false);
        }
        fputc('\n', s->out);
    }
}

static void print_skipped(const cli_session *s, const verify_log *log)
{
    const char *tensor;
    json_t *count;
    if (json_object_size(log->skipped) == 0) return;
    cli_put_prose(s, 0, 0, "recorded, but not computed by this build:");
    json_object_foreach(log->skipped, tensor, count) fprintf(
        s->out, "  %s (%lld)\n", cli_shown_start(tensor, s->columns - 14), (long long)json_integer_value(count));
}

static void print_text(cli_session *session, const verify_log *log)
{
    print_failures(session, log);
    if (log->table)
        print_table(session, log);
    else
        print_groups(session, log);
    print_skipped(session, log);
    if (log->printed) cli_put_prose(session, 0, 0, "%lld printed values compared", (long long)log->printed);
    if (json_is_object(log->worst_case))
        cli_put_prose(session, 0, 7, "worst: %s, %s: error %.3g, limit %.3g", text_of(log->worst_case, "name"),
                      text_of(log->worst_case, "tensor"), real_of(log->worst_case, "error"),
                      real_of(log->worst_case, "limit"));
    cli_put_prose(session, 0, 0, "%lld passed, %lld failed, %lld unsupported", (long long)log->passed,
                  (long long)log->failed, (long long)log->refused);
    say_refusals(session, log);
}

static int print_json(cli_session *session, const verify_log *log)
{
    json_t *all =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:o, s:O, s:O, s:O, s:O, s:O, s:s}", "kind", log->kind, "passed",
                  (json_int_t)log->passed, "failed", (json_int_t)log->failed, "refused", (json_int_t)log->refused,
                  "printed", (json_int_t)log->printed, "worst", cli_real(log->worst), "worst_case", log->worst_case,
                  "groups", log->groups, "failures", log->failures, "refusals", log->refusals, "not_computed",
                  log->skipped, "isa", mha_ctx_isa(session->ctx));
    if (all && log->table && json_object_set(all, "table", log->table) != 0) {
        json_decref(all);
        all = NULL;
    }
    return cli_put_json(session, all, true);
}

int verify_print(cli_session *session, const verify_log *log, bool strict)
{
    int code = CLI_DONE;
    if (log->no_memory)
        code = cli_error(session, CLI_FAILED, "out of memory for the log");
    else if (session->options.json)
        code = print_json(session, log);
    else
        print_text(session, log);
    if (code != CLI_DONE) return code;
    return log->failed || (strict && log->refused) ? CLI_NO : CLI_DONE;
}
