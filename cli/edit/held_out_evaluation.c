/* held_out_evaluation.c - see held_out_evaluation.h. */
#include "edit/held_out_evaluation.h"

#include "output.h"
#include "session.h"
#include "word_wrap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Minimum seconds of a timed pass. The time of shorter passes varied by 50 % between runs, even the minimum of several
 * passes. */
static const double SHORTEST_PASS = 0.02;

int held_out_evaluate(cli_session *s, const mha_model_edit *edit, const held_texts *texts, held_out_evaluation *e)
{
    mha_error error = {0};
    *e = (held_out_evaluation){.held_out = texts->held ? texts->split : NULL};
    return mha_model_edit_evaluate(edit, texts->held, &e->of, &error) == MHA_OK ? CLI_DONE : cli_refuse(s, &error);
}

void held_out_log_transformers(const cli_session *s, const held_out_evaluation *e)
{
    if (e->of.broken_rule)
        cli_say(s, "%s: transformers cannot load this folder, because %s; use --compatible", cli_out_name(s),
                e->of.broken_rule);
}

/* ---- JSON ---- */

json_t *held_out_pair_json(int64_t before, int64_t after)
{
    return json_pack("[I, I]", (json_int_t)before, (json_int_t)after);
}

static json_t *quality_json(const held_out_evaluation *e)
{
    json_t *quality =
        json_pack("{s:s, s:I, s:I, s:o, s:o}", "held_out", e->held_out, "texts", (json_int_t)e->of.comparison.texts,
                  "tokens", (json_int_t)e->of.comparison.tokens, "mean_cosine", cli_real(e->of.comparison.mean_cosine),
                  "min_cosine", cli_real(e->of.comparison.min_cosine));
    if (quality && e->of.comparison.predicted)
        json_object_set_new(
            quality, "loss",
            json_pack("[o, o]", cli_real(e->of.comparison.loss[0]), cli_real(e->of.comparison.loss[1])));
    return quality;
}

void held_out_add_json(json_t *all, const held_out_evaluation *e)
{
    json_object_set_new(all, "parameters", held_out_pair_json(e->of.parameters[0], e->of.parameters[1]));
    json_object_set_new(all, "bytes", held_out_pair_json(e->of.bytes[0], e->of.bytes[1]));
    json_object_set_new(all, "kv_bytes_per_token",
                        held_out_pair_json(e->of.kv_bytes_per_token[0], e->of.kv_bytes_per_token[1]));
    if (!e->held_out) return;
    json_object_set_new(all, "quality", quality_json(e));
    json_object_set_new(
        all, "tokens_per_second",
        json_pack("[o, o]", cli_real(e->of.tokens_per_second[0]), cli_real(e->of.tokens_per_second[1])));
}

int held_out_save(cli_session *s, mha_model_edit *edit, const held_out_evaluation *e)
{
    mha_error error = {0};
    mha_status status = MHA_OK;
    if (!cli_writes(s)) return CLI_DONE;
    if (e->held_out) {
        json_t *quality = quality_json(e);
        char *text = quality ? json_dumps(quality, JSON_REAL_PRECISION(9)) : NULL;
        if (text) status = mha_model_edit_note(edit, text, &error);
        json_decref(quality);
        free(text);
        if (!text) return cli_error(s, CLI_FAILED, "out of memory for the record");
    }
    if (status == MHA_OK) status = mha_model_edit_save(edit, s->options.out, s->options.force, &error);
    return status == MHA_OK ? CLI_DONE : cli_fail(s, &error);
}

/* ---- text ---- */

static void print_row(FILE *out, const char *name, double before, double after, int digits)
{
    fprintf(out, "%-22s %14.*f %14.*f", name, digits, before, digits, after);
    if (before > 0) fprintf(out, " %+8.1f %%", (after / before - 1) * 100);
    fputc('\n', out);
}

void held_out_print_title(const cli_session *s)
{
    fprintf(s->out, "%s%-22s %14s %14s %10s%s\n", cli_bold(s), "", "before", "after", "change", cli_plain(s));
}

void held_out_print_row(const cli_session *s, const char *name, int64_t before, int64_t after)
{
    print_row(s->out, name, (double)before, (double)after, 0);
}

/* Returns the seconds of one pass of the faster model, before or after the edit. */
static double pass_seconds(const held_out_evaluation *e)
{
    return (double)e->of.comparison.tokens / fmax(e->of.tokens_per_second[0], e->of.tokens_per_second[1]);
}

void held_out_print_rest(const cli_session *s, const held_out_evaluation *e, const char *learned, const char *unknown)
{
    held_out_print_row(s, "parameters", e->of.parameters[0], e->of.parameters[1]);
    held_out_print_row(s, "bytes of weights", e->of.bytes[0], e->of.bytes[1]);
    if (e->of.kv_bytes_per_token[0])
        held_out_print_row(s, "KV bytes per token", e->of.kv_bytes_per_token[0], e->of.kv_bytes_per_token[1]);
    if (!e->held_out) {
        fputs("\nQuality and speed were not measured: give texts with -f or --test.\n", s->out);
        return;
    }
    const bool timed = pass_seconds(e) >= SHORTEST_PASS;
    if (timed) print_row(s->out, "tokens per second", e->of.tokens_per_second[0], e->of.tokens_per_second[1], 0);
    if (e->of.comparison.predicted) print_row(s->out, "loss", e->of.comparison.loss[0], e->of.comparison.loss[1], 4);
    fputc('\n', s->out);
    cli_put_prose(s, 0, 0, "Embeddings before and after: cosine %.4f (smallest %.4f), on %lld texts%s%s (%s).%s%s",
                  e->of.comparison.mean_cosine, e->of.comparison.min_cosine, (long long)e->of.comparison.texts,
                  learned ? " not used for " : "", learned ? learned : "", e->held_out, unknown ? " " : "",
                  unknown ? unknown : "");
    if (!timed)
        cli_put_prose(
            s, 0, 0,
            "Speed is omitted: a pass over these texts takes less than %.0f ms, too short for a stable measurement.",
            SHORTEST_PASS * 1e3);
}
