/* prune_parts.c - the kinds of heads that `mha prune` can remove from a model, and the lists of removed heads. */
#include <stdlib.h>
#include <string.h>

#include "edit/prune_job.h"
#include "input/source_target.h"
#include "output.h"

/* ---- parts ---- */

static int64_t part_heads(const prune_part *part, int64_t layer)
{
    const mha_model_info *info = mha_model_describe(part->model);
    return (part->cross ? info->cross_heads_per_layer : info->heads_per_layer)[layer];
}

static int64_t number_of(const prune_part *part, int64_t layer, int64_t head)
{
    return (part->cross ? mha_cross_head_number : mha_head_number)(part->model, layer, head);
}

size_t prune_part_cells(const prune_part *part)
{
    const mha_model_info *info = mha_model_describe(part->model);
    return (size_t)(info->layers * info->heads);
}

static bool keeps(const prune_part *part, const uint8_t *keep, int64_t layer, int64_t head)
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
        return cli_usage(job->session,
                         "--part must be encoder for an encoder-decoder, or image for a CLIP (got \"%s\", for %s)",
                         cli_shown(part), mha_model_describe(job->opened)->family);
    job->info = mha_model_describe(job->model);
    return CLI_DONE;
}

int prune_parts_find(prune_job *job)
{
    const int code = find_model(job);
    if (code != CLI_DONE) return code;
    const mha_model *encoder = mha_model_encoder(job->model);
    const char *own = encoder ? "decoder" : job->model == mha_model_encoder(job->opened) ? "encoder" : "";
    job->part[job->parts++] = (prune_part){own, job->model, false, NULL};
    if (encoder) job->part[job->parts++] = (prune_part){"cross", job->model, true, NULL};
    if (encoder) job->part[job->parts++] = (prune_part){"encoder", encoder, false, NULL};
    for (int n = 0; n < job->parts; n++) {
        prune_part *part = &job->part[n];
        part->keep = malloc(prune_part_cells(part));
        if (!part->keep) return cli_error(job->session, CLI_FAILED, "out of memory for the list of heads");
        memset(part->keep, 1, prune_part_cells(part));
    }
    job->keep = job->part[0].keep;
    return CLI_DONE;
}

void prune_parts_free(prune_job *job)
{
    for (int n = 0; n < job->parts; n++)
        free(job->part[n].keep);
}

int64_t prune_parts_heads(const prune_job *job, int64_t *layers)
{
    int64_t count = 0;
    *layers = 0;
    for (int n = 0; n < job->parts; n++) {
        const int64_t own = mha_model_describe(job->part[n].model)->layers;
        *layers += own;
        for (int64_t l = 0; l < own; l++)
            count += part_heads(&job->part[n], l);
    }
    return count;
}

int64_t prune_parts_removed(const prune_job *job)
{
    int64_t count = 0;
    for (int n = 0; n < job->parts; n++) {
        const prune_part *part = &job->part[n];
        for (int64_t l = 0; l < mha_model_describe(part->model)->layers; l++)
            for (int64_t h = 0; h < part_heads(part, l); h++)
                count += !keeps(part, part->keep, l, h);
    }
    return count;
}

/* ---- heads by their numbers ---- */

void prune_part_fill(prune_part *part, uint8_t value)
{
    memset(part->keep, value, prune_part_cells(part));
}

void prune_parts_fill(prune_job *job, uint8_t value)
{
    for (int n = 0; n < job->parts; n++)
        prune_part_fill(&job->part[n], value);
}

int prune_part_set(const prune_job *job, const prune_part *part, const char *option, mha_model_head at, uint8_t value)
{
    const mha_model_info *info = mha_model_describe(part->model);
    const int64_t place = (part->cross ? mha_cross_head_place : mha_head_place)(part->model, at.layer, at.head);
    if (place >= 0) {
        part->keep[at.layer * info->heads + place] = value;
        return CLI_DONE;
    }
    const bool had = at.layer < info->layers && at.head < info->original_heads;
    return cli_usage(job->session, "%s must name heads of %s (got %s%s%d.%d%s)", option,
                     cli_shown(job->session->model_name), part == job->part ? "" : part->name,
                     part == job->part ? "" : ".", at.layer, at.head, had ? ", already removed" : "");
}

const prune_part *prune_part_named(const prune_job *job, const char **at)
{
    for (int n = 0; n < job->parts; n++) {
        const size_t length = strlen(job->part[n].name);
        if (length == 0 || strncmp(*at, job->part[n].name, length) != 0 || (*at)[length] != '.') continue;
        *at += length + 1;
        return &job->part[n];
    }
    return job->part;
}

/* ---- removed heads ---- */

const uint8_t *prune_part_point(const prune_job *job, int part, const mha_prune_point *point)
{
    const uint8_t *const keep[PRUNE_PARTS] = {point->keep, point->cross_keep, point->encoder_keep};
    return part < job->parts ? keep[part] : NULL;
}

void prune_parts_print_option(const prune_job *job, const mha_prune_point *point)
{
    const char *comma = "--heads ";
    for (int n = 0; n < job->parts; n++) {
        const prune_part *part = &job->part[n];
        const uint8_t *keep = prune_part_point(job, n, point);
        const bool named = job->parts > 1 && n > 0;
        for (int64_t l = 0; l < mha_model_describe(part->model)->layers; l++)
            for (int64_t h = 0; h < part_heads(part, l); h++) {
                if (keeps(part, keep, l, h)) continue;
                fprintf(job->session->out, "%s%s%s%lld.%lld", comma, named ? part->name : "", named ? "." : "",
                        (long long)l, (long long)number_of(part, l, h));
                comma = ",";
            }
    }
}

void prune_parts_print(const prune_job *job)
{
    FILE *out = job->session->out;
    for (int n = 0; n < job->parts; n++) {
        const prune_part *part = &job->part[n];
        for (int64_t l = 0; l < mha_model_describe(part->model)->layers; l++) {
            bool any = false;
            fprintf(out, "%s%slayer %-3lld removed", part->name, *part->name ? " " : "", (long long)l);
            for (int64_t h = 0; h < part_heads(part, l); h++) {
                if (keeps(part, part->keep, l, h)) continue;
                fprintf(out, " %lld", (long long)number_of(part, l, h));
                any = true;
            }
            fputs(any ? "\n" : " none\n", out);
        }
    }
    fputc('\n', out);
}

/* Returns, per layer, the numbers of the heads that are not in `keep`. */
static json_t *removed_json(const prune_part *part, const uint8_t *keep)
{
    json_t *lists = json_array();
    for (int64_t l = 0; l < mha_model_describe(part->model)->layers; l++) {
        json_t *list = json_array();
        for (int64_t h = 0; h < part_heads(part, l); h++)
            if (!keeps(part, keep, l, h)) json_array_append_new(list, json_integer(number_of(part, l, h)));
        json_array_append_new(lists, list);
    }
    return lists;
}

json_t *prune_parts_json(const prune_job *job, const mha_prune_point *point)
{
    json_t *all = json_object();
    for (int n = 0; n < job->parts; n++) {
        const prune_part *part = &job->part[n];
        json_t *lists = removed_json(part, point ? prune_part_point(job, n, point) : part->keep);
        if (job->parts > 1) {
            json_object_set_new(all, part->name, lists);
            continue;
        }
        json_decref(all);
        return lists;
    }
    return all;
}
