/* prune_parts.c - the kinds of heads that `mha prune` can remove from a model, and the lists of removed heads. */
#include "edit/prune_job.h"
#include "input/source_target.h"
#include "options.h"
#include "output.h"
#include <stdlib.h>
#include <string.h>

/* ---- parts ---- */

static bool keeps(const head_part *part, const uint8_t *keep, int64_t layer, int64_t head)
{
    return keep[layer * mha_model_describe(part->model)->heads + head] != 0;
}

/* Sets job->model to the part of the opened model that --part names; without --part, to the opened model. */
static int find_model(prune_job *job)
{
    const char *part = job->given.part;
    const mha_model *encoder = mha_model_encoder(job->opened), *vision = mha_model_vision(job->opened);
    job->model = job->opened;
    if (part && strcmp(part, "encoder") == 0 && encoder)
        job->model = encoder;
    else if (part && strcmp(part, "image") == 0 && vision && vision != job->opened)
        job->model = vision;
    else if (part)
        return cli_usage(
            job->session,
            "--part must be encoder for an encoder-decoder, or image for a CLIP model (got \"%s\", for %s)",
            cli_shown(part), mha_model_describe(job->opened)->family);
    job->info = mha_model_describe(job->model);
    return CLI_DONE;
}

int prune_parts_find(prune_job *job)
{
    const int code = find_model(job);
    if (code != CLI_DONE) return code;
    job->parts = head_parts_of(job->model, job->part);
    if (job->model == mha_model_encoder(job->opened)) job->part[0].name = "encoder";
    for (int n = 0; n < job->parts; n++) {
        const size_t cells = head_part_cells(&job->part[n]);
        job->keep[n] = malloc(cells);
        if (!job->keep[n]) return cli_error(job->session, CLI_FAILED, "out of memory for the list of heads");
        memset(job->keep[n], 1, cells);
    }
    return CLI_DONE;
}

void prune_parts_free(prune_job *job)
{
    for (int n = 0; n < job->parts; n++)
        free(job->keep[n]);
}

int64_t prune_parts_heads(const prune_job *job, int64_t *layers)
{
    int64_t count = 0;
    *layers = 0;
    for (int n = 0; n < job->parts; n++) {
        const int64_t own = mha_model_describe(job->part[n].model)->layers;
        *layers += own;
        for (int64_t l = 0; l < own; l++)
            count += head_part_heads(&job->part[n], l);
    }
    return count;
}

int64_t prune_parts_removed(const prune_job *job)
{
    int64_t count = 0;
    for (int n = 0; n < job->parts; n++) {
        const head_part *part = &job->part[n];
        for (int64_t l = 0; l < mha_model_describe(part->model)->layers; l++)
            for (int64_t h = 0; h < head_part_heads(part, l); h++)
                count += !keeps(part, job->keep[n], l, h);
    }
    return count;
}

/* ---- heads by their numbers ---- */

void prune_part_fill(prune_job *job, int part, uint8_t value)
{
    memset(job->keep[part], value, head_part_cells(&job->part[part]));
}

void prune_parts_fill(prune_job *job, uint8_t value)
{
    for (int n = 0; n < job->parts; n++)
        prune_part_fill(job, n, value);
}

int prune_part_set(prune_job *job, int part, const char *option, mha_model_head at, uint8_t value)
{
    const head_part *of = &job->part[part];
    const mha_model_info *info = mha_model_describe(of->model);
    const int64_t place = head_part_place(of, at.layer, at.head);
    if (place >= 0) {
        uint8_t *const keep = &job->keep[part][at.layer * info->heads + place];
        if (*keep == value) return cli_head_twice(job->session, option, part == 0 ? "" : of->name, at);
        *keep = value;
        return CLI_DONE;
    }
    const bool had = at.layer < info->layers && at.head < info->original_heads;
    return cli_usage(job->session, "%s must name heads of %s (got %s%s%d.%d%s)", option,
                     cli_shown(job->session->model_name), part == 0 ? "" : of->name, part == 0 ? "" : ".", at.layer,
                     at.head, had ? ", already removed" : "");
}

int prune_part_named(const prune_job *job, const char **at)
{
    for (int n = 0; n < job->parts; n++) {
        const size_t length = strlen(job->part[n].name);
        if (length == 0 || strncmp(*at, job->part[n].name, length) != 0 || (*at)[length] != '.') continue;
        *at += length + 1;
        return n;
    }
    return 0;
}

/* ---- removed heads ---- */

const uint8_t *prune_part_point(const prune_job *job, int part, const mha_prune_point *point)
{
    const uint8_t *const keep[MHA_HEAD_KINDS] = {point->keep, point->cross_keep, point->encoder_keep};
    return part < job->parts ? keep[part] : NULL;
}

void prune_parts_print_option(const prune_job *job, const mha_prune_point *point)
{
    const char *comma = "--heads ";
    for (int n = 0; n < job->parts; n++) {
        const head_part *part = &job->part[n];
        const uint8_t *keep = prune_part_point(job, n, point);
        const bool named = job->parts > 1 && n > 0;
        for (int64_t l = 0; l < mha_model_describe(part->model)->layers; l++)
            for (int64_t h = 0; h < head_part_heads(part, l); h++) {
                if (keeps(part, keep, l, h)) continue;
                fprintf(job->session->out, "%s%s%s%lld.%lld", comma, named ? part->name : "", named ? "." : "",
                        (long long)l, (long long)head_part_number(part, l, h));
                comma = ",";
            }
    }
}

void prune_parts_print(const prune_job *job)
{
    FILE *out = job->session->out;
    for (int n = 0; n < job->parts; n++) {
        const head_part *part = &job->part[n];
        for (int64_t l = 0; l < mha_model_describe(part->model)->layers; l++) {
            bool any = false;
            fprintf(out, "%s%slayer %-3lld removed", part->name, *part->name ? " " : "", (long long)l);
            for (int64_t h = 0; h < head_part_heads(part, l); h++) {
                if (keeps(part, job->keep[n], l, h)) continue;
                fprintf(out, " %lld", (long long)head_part_number(part, l, h));
                any = true;
            }
            fputs(any ? "\n" : " none\n", out);
        }
    }
    fputc('\n', out);
}

/* Returns, per layer, the numbers of the heads that are not in `keep`. */
static json_t *removed_json(const head_part *part, const uint8_t *keep)
{
    json_t *lists = json_array();
    for (int64_t l = 0; l < mha_model_describe(part->model)->layers; l++) {
        json_t *list = json_array();
        for (int64_t h = 0; h < head_part_heads(part, l); h++)
            if (!keeps(part, keep, l, h)) json_array_append_new(list, json_integer(head_part_number(part, l, h)));
        json_array_append_new(lists, list);
    }
    return lists;
}

json_t *prune_parts_json(const prune_job *job, const mha_prune_point *point)
{
    json_t *all = json_object();
    for (int n = 0; n < job->parts; n++) {
        const head_part *part = &job->part[n];
        json_t *lists = removed_json(part, point ? prune_part_point(job, n, point) : job->keep[n]);
        if (job->parts > 1) {
            json_object_set_new(all, part->name, lists);
            continue;
        }
        json_decref(all);
        return lists;
    }
    return all;
}
