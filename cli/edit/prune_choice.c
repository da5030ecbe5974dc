/* prune_choice.c - determines the heads to remove: jointly, by a score, or by a list of head numbers. */
#include "edit/prune_job.h"
#include "input/input.h"
#include "options.h"
#include "output.h"
#include <stdlib.h>
#include <string.h>

static const char joint[] = "joint";

static bool is_joint(const prune_job *job)
{
    return !job->given.heads && !job->given.keep && !importance_scores_given_any(&job->by);
}

bool prune_choice_learns(const prune_job *job)
{
    return is_joint(job) || importance_scores_need_texts(&job->by);
}

/* ---- options ---- */

static int check_amount(prune_job *job)
{
    const prune_options *o = &job->given;
    const bool named = o->heads || o->keep;
    long long count = 0, floor = 0;
    int code = cli_number(job->session, "--ratio", o->ratio, 0, 1, &job->rule.ratio);
    if (code == CLI_DONE) code = cli_whole(job->session, "--count", o->count, 1, INT32_MAX, &count);
    if (code == CLI_DONE) code = cli_whole(job->session, "--floor", o->floor, 1, INT32_MAX, &floor);
    if (code != CLI_DONE) return code;
    job->rule.count = count;
    job->rule.floor = floor;
    job->rule.per_layer = o->per_layer;
    if (o->ratio && o->count) return cli_usage(job->session, "--ratio and --count are mutually exclusive");
    if (named && (importance_scores_given.by || job->by.file || o->ratio || o->count || o->floor || o->per_layer))
        return cli_usage(job->session,
                         "--by, --scores, --ratio, --count, --floor and --per-layer must not be combined with %s",
                         o->heads ? "--heads" : "--keep");
    if (o->search && (named || o->ratio || o->count))
        return cli_usage(job->session,
                         "--%s must not be given with --search, since --search selects the number of heads",
                         o->heads   ? "heads"
                         : o->keep  ? "keep"
                         : o->ratio ? "ratio"
                                    : "count");
    if (!named && !o->ratio && !o->count && !o->search)
        return cli_usage(job->session, "missing number of heads: give --ratio R, --count N or --heads L.H,...");
    return CLI_DONE;
}

/* Parses --by. Its default value, "joint", is not a score. */
static int read_scores(prune_job *job)
{
    char *by = importance_scores_given.by;
    if (by && strcmp(by, joint) == 0) importance_scores_given.by = NULL;
    int code = importance_scores_read(job->session, &job->by);
    if (code == CLI_DONE) code = importance_scores_check_state(job->session);
    importance_scores_given.by = by;
    return code;
}

int prune_choice_check(prune_job *job)
{
    const prune_options *o = &job->given;
    if (o->heads && o->keep) return cli_usage(job->session, "--heads and --keep are mutually exclusive");
    const int code = read_scores(job);
    return code == CLI_DONE ? check_amount(job) : code;
}

/* ---- heads named by --heads or --keep ---- */

static int remove_named(prune_job *job)
{
    int code = CLI_DONE;
    prune_parts_fill(job, 1);
    for (const char *at = job->given.heads; code == CLI_DONE;) {
        mha_model_head head;
        const int part = prune_part_named(job, &at);
        const char *end = cli_head(at, &head);
        if (!end || (*end && *end != ','))
            return cli_usage(job->session, "--heads must be LAYER.HEAD,..., for example 0.2,3.11 (got \"%s\")",
                             cli_shown(job->given.heads));
        code = prune_part_set(job, part, "--heads", head, 0);
        if (!*end) break;
        at = end + 1;
    }
    return code;
}

/* Refuses the value of a list; `of` names the part, the empty string for the only part, and `layer` is -1 for the list
 * of all layers. */
static int refuse_list(const prune_job *job, const char *of, int64_t layer, const char *want, const json_t *got)
{
    char at[40] = "", kind[40];
    if (layer >= 0) snprintf(at, sizeof at, " of layer %lld", (long long)layer);
    if (json_is_array(got))
        snprintf(kind, sizeof kind, "%zu elements", json_array_size(got));
    else if (json_is_integer(got))
        snprintf(kind, sizeof kind, "%lld", (long long)json_integer_value(got));
    else
        snprintf(kind, sizeof kind, "%s", json_is_object(got) ? "an object" : "another value");
    return cli_error(job->session, CLI_REFUSED, "%s: %s%sheads%s must be %s (got %s)", cli_shown(job->given.keep), of,
                     *of ? " " : "", at, want, kind);
}

static int keep_layer(prune_job *job, int part, int64_t layer, const json_t *list)
{
    size_t i;
    json_t *number;
    int code = CLI_DONE;
    if (!json_is_array(list)) return refuse_list(job, job->part[part].name, layer, "a list of head numbers", list);
    json_array_foreach(list, i, number)
    {
        const json_int_t n = json_integer_value(number);
        if (!json_is_integer(number) || n < 0 || n > INT32_MAX)
            return refuse_list(job, job->part[part].name, layer, "head numbers", number);
        code = prune_part_set(job, part, "--keep", (mha_model_head){(int32_t)layer, (int32_t)n}, 1);
        if (code != CLI_DONE) return code;
    }
    return code;
}

static int keep_listed(prune_job *job, int part, const json_t *lists)
{
    char want[64];
    size_t layer;
    json_t *list;
    int code = CLI_DONE;
    const int64_t layers = mha_model_describe(job->part[part].model)->layers;
    snprintf(want, sizeof want, "%lld lists, one per layer", (long long)layers);
    if (!json_is_array(lists) || (int64_t)json_array_size(lists) != layers)
        return refuse_list(job, job->part[part].name, -1, want, lists);
    json_array_foreach(lists, layer, list)
    {
        code = keep_layer(job, part, (int64_t)layer, list);
        if (code != CLI_DONE) return code;
    }
    return code;
}

/* Keeps the heads in the lists of the parts of an encoder-decoder. Without its list, a part keeps all heads
 * (model.h). */
static int keep_sides(prune_job *job, json_t *lists)
{
    const char *key;
    json_t *value;
    int code = CLI_DONE;
    json_object_foreach(lists, key, value)
    {
        if (strcmp(key, "decoder") != 0 && strcmp(key, "cross") != 0 && strcmp(key, "encoder") != 0)
            return cli_error(job->session, CLI_REFUSED,
                             "%s: \"mha.heads\" must have the members cross, decoder and encoder only (got \"%s\")",
                             cli_shown(job->given.keep), cli_shown(key));
    }
    for (int n = 0; n < job->parts && code == CLI_DONE; n++) {
        value = json_object_get(lists, job->part[n].name);
        if (value)
            code = keep_listed(job, n, value);
        else
            prune_part_fill(job, n, 1);
    }
    return code;
}

/* Returns the object of a config.json that has the keys of the pruned model: in a CLIP model, that of its tower. */
static json_t *own_config(const prune_job *job, json_t *root)
{
    static const char *const keys[2][2] = {{"text_config_dict", "text_config"},
                                           {"vision_config_dict", "vision_config"}};
    const mha_model *vision = mha_model_vision(job->opened);
    if (!vision || vision == job->opened) return root;
    json_t *old = json_object_get(root, keys[job->model == vision][0]),
           *own = json_object_get(root, keys[job->model == vision][1]);
    return old ? old : own ? own : root;
}

/* Reads the file of --keep: a JSON array of one list per layer, or a config.json with mha.heads. For an
 * encoder-decoder, the lists of its parts are in an object. */
static int keep_named(prune_job *job)
{
    json_t *root;
    int code = cli_json_read(job->session, job->given.keep, &root);
    if (code != CLI_DONE) return code;
    json_t *own = json_object_get(own_config(job, root), "mha.heads"), *lists = own ? own : root;
    prune_parts_fill(job, 0);
    code = *job->part->name && json_is_object(lists) ? keep_sides(job, lists) : keep_listed(job, 0, lists);
    json_decref(root);
    return code;
}

/* ---- heads chosen jointly or by scores ---- */

static int choose_jointly(prune_job *job)
{
    mha_error error = {0};
    const mha_prune_joint_options how = {.size = sizeof how, .fill = job->given.fill};
    if (mha_prune_choose_joint(job->model, job->texts.learn, &job->rule, &how, job->keep[0], &error) == MHA_OK)
        return CLI_DONE;
    return cli_reject(job->session, &error);
}

static void say_how(prune_job *job)
{
    const prune_options *o = &job->given;
    char amount[60] = "";
    if (o->ratio)
        snprintf(amount, sizeof amount, ", ratio %g%s", job->rule.ratio, o->per_layer ? " of each layer" : "");
    if (o->count)
        snprintf(amount, sizeof amount, ", count %lld%s", (long long)job->rule.count,
                 o->per_layer ? " of each layer" : "");
    if (o->search && o->per_layer) snprintf(amount, sizeof amount, ", the same number in each layer");
    snprintf(job->chosen_by, sizeof job->chosen_by, "%s%s",
             o->heads        ? "named"
             : o->keep       ? "list of kept heads"
             : is_joint(job) ? joint
                             : importance_scores_source(&job->by),
             amount);
}

void prune_choice_log(const prune_job *job)
{
    int64_t layers;
    const int64_t before = prune_parts_heads(job, &layers), removed = prune_parts_removed(job),
                  max = (job->rule.per_layer ? layers : 1) * mha_prune_most(job->model, &job->rule);
    const double asked = job->rule.ratio * (double)before;
    const bool groups = job->info->heads > job->info->kv_heads;
    char why[96];
    if (!job->given.ratio || (double)removed == asked) return;
    if ((double)removed < asked && removed >= max)
        snprintf(why, sizeof why, "--floor keeps at least %lld per layer",
                 job->rule.floor > 0 ? (long long)job->rule.floor : 1);
    else
        snprintf(why, sizeof why, "%s to whole %s", job->rule.per_layer ? "rounded up in each layer" : "rounded",
                 groups ? "groups of heads that share keys" : "heads");
    cli_say(job->session, "--ratio %s is %.4g of %lld heads; removing %lld: %s", cli_shown(job->given.ratio), asked,
            (long long)before, (long long)removed, why);
}

int prune_choice_measure(prune_job *job)
{
    const bool scored = importance_scores_given_any(&job->by);
    size_t cells = 0;
    for (int n = 0; n < job->parts; n++)
        cells += head_part_cells(&job->part[n]);
    say_how(job);
    job->rule.cross_keep = job->keep[MHA_HEADS_CROSS];
    job->rule.encoder_keep = job->keep[MHA_HEADS_ENCODER];
    if (scored) job->scores = calloc(cells, sizeof *job->scores);
    if (scored && !job->scores) return cli_error(job->session, CLI_FAILED, "out of memory for the list of heads");
    if (!scored) return CLI_DONE;
    if (job->parts > 1) job->rule.cross_scores = job->scores + head_part_cells(&job->part[0]);
    if (job->parts > 1) job->rule.encoder_scores = job->rule.cross_scores + head_part_cells(&job->part[1]);
    return importance_scores_values(job->session, &job->by, job->part, job->parts, job->texts.learn, job->scores);
}

int prune_choice_make(prune_job *job)
{
    mha_error error = {0};
    if (job->given.heads) return remove_named(job);
    if (job->given.keep) return keep_named(job);
    if (!job->scores) return choose_jointly(job);
    if (mha_prune_choose(job->model, job->scores, &job->rule, job->keep[0], &error) != MHA_OK)
        return cli_fail(job->session, &error);
    return CLI_DONE;
}

mha_prune_options prune_choice_options(const prune_job *job)
{
    return (mha_prune_options){.size = sizeof(mha_prune_options),
                               .fill = job->given.fill ? job->texts.learn : NULL,
                               .refit = job->given.refit ? job->texts.learn : NULL,
                               .ridge = job->ridge,
                               .compatible = job->given.compatible,
                               .chosen_by = job->chosen_by,
                               .cross_keep = job->keep[MHA_HEADS_CROSS],
                               .encoder_keep = job->keep[MHA_HEADS_ENCODER]};
}
