/* patch_plan.c - parses the options of `mha patch`. */
#include "circuits/patch_plan.h"

#include "circuits/prompt_report.h"
#include "draw/figure.h"
#include "heads/state_path.h"
#include "options.h"
#include "output.h"
#include <string.h>

enum { EDGES_SHOWN = 12 };

prompt_request patch_request;
static struct {
    const char *site, *by, *direction, *metric, *estimate, *verify, *path, *to, *top;
    int raw, edges;
} given;

const struct poptOption patch_options[] = {
    {"corrupted", 0, POPT_ARG_STRING, &patch_request.corrupted, 0, "corrupted prompt, with as many tokens", "TEXT"},
    {"noise", 0, POPT_ARG_STRING, &patch_request.noise, 0, "instead: noise on the embeddings of these tokens",
     "TOKEN,..."},
    {"draws", 0, POPT_ARG_STRING, &patch_request.draws, 0, "draws of the noise (default: 10)", "N"},
    {"noise-scale", 0, POPT_ARG_STRING, &patch_request.times_std, 0, "standard deviations of the noise (default: 3)",
     "S"},
    {"answer", 0, POPT_ARG_STRING, &patch_request.answer, 0, "right answer, one token with its leading space", "TEXT"},
    {"wrong", 0, POPT_ARG_STRING, &patch_request.wrong, 0, "answer to compare with, one token", "TEXT"},
    {"position", 0, POPT_ARG_STRING, &patch_request.position, 0, "token that predicts the answer (default: the last)",
     "TOKEN"},
    {"pairs", 0, POPT_ARG_STRING, &patch_request.pairs, 0, "pairs of prompts, a JSON object per line", "FILE"},
    {"site", 0, POPT_ARG_STRING, &given.site, 0, "what is patched, or all (default: z)", "SITE"},
    {"by", 0, POPT_ARG_STRING, &given.by, 0, "position, head or head-position (default: by site)", "PART"},
    {"direction", 0, POPT_ARG_STRING, &given.direction, 0, "denoise, noise or both (default: denoise)", "RUN"},
    {"metric", 0, POPT_ARG_STRING, &given.metric, 0,
     "logit-diff (default with --wrong), logprob (default without) or kl", "METRIC"},
    {"raw-metric", 0, POPT_ARG_NONE, &given.raw, 0, "show nats instead of normalized values", NULL},
    {"estimate", 0, POPT_ARG_STRING, &given.estimate, 0, "exact, attr, ig or qkfix (default: exact)", "METHOD"},
    {"verify", 0, POPT_ARG_STRING, &given.verify, 0, "with --estimate: also patch the N largest parts", "N"},
    {"path", 0, POPT_ARG_STRING, &given.path, 0, "path patching from this head, or from all", "L.H"},
    {"to", 0, POPT_ARG_STRING, &given.to, 0, "end of the path: q, k, v or logits (default: k)", "INPUT"},
    STATE_PATH_OPTION("save exact patching in FILE; resume from it"),
    {"edges", 0, POPT_ARG_NONE, &given.edges, 0, "path patching of every edge of the model", NULL},
    {"top", 0, POPT_ARG_STRING, &given.top, 0, "number of largest parts to list (default: 5; with --edges 12)", "N"},
    POPT_TABLEEND};

/* ---- options ---- */

const char *const patch_by_names[3] = {"position", "head", "head-position"};
const char *const patch_direction_names[2] = {"denoise", "noise"};
const char *const patch_estimate_names[3] = {"attr", "ig", "qkfix"};
const char *const patch_receiver_names[4] = {"q", "k", "v", "logits"};

/* Returns the index of a name, or -1. */
static int index_of(const char *name, const char *const *names, int count)
{
    for (int n = 0; n < count; n++)
        if (strcmp(name, names[n]) == 0) return n;
    return -1;
}

static int read_sites(const cli_session *s, patch_plan *p)
{
    const char *name = given.site ? given.site : "z";
    bool found = false;
    p->all_sites = strcmp(name, "all") == 0;
    for (int site = 0; site < MHA_SITES; site++) {
        p->site[site] = p->all_sites || strcmp(name, mha_site_name((mha_site)site)) == 0;
        found = found || p->site[site];
    }
    return found ? CLI_DONE
                 : cli_usage(s,
                             "--site must be resid_pre, resid_mid, resid_post, attn_out, mlp_out, q, k, v, z, pattern "
                             "or all (got \"%s\")",
                             cli_shown(name));
}

static int read_choices(const cli_session *s, patch_plan *p)
{
    const char *direction = given.direction ? given.direction : "denoise";
    const int which = index_of(direction, patch_direction_names, 2),
              by = given.by ? index_of(given.by, patch_by_names, 3) : 0;
    const int estimate = given.estimate ? index_of(given.estimate, patch_estimate_names, 3) : -1;
    p->direction[0] = which == 0 || strcmp(direction, "both") == 0;
    p->direction[1] = which == 1 || strcmp(direction, "both") == 0;
    p->by_given = given.by != NULL;
    p->by = (mha_patch_by)by;
    p->exact = estimate < 0;
    p->estimate = (mha_estimate)estimate;
    if (!p->direction[0] && !p->direction[1])
        return cli_usage(s, "--direction must be denoise, noise or both (got \"%s\")", cli_shown(direction));
    if (by < 0) return cli_usage(s, "--by must be position, head or head-position (got \"%s\")", cli_shown(given.by));
    if (given.estimate && estimate < 0 && strcmp(given.estimate, "exact") != 0)
        return cli_usage(s, "--estimate must be exact, attr, ig or qkfix (got \"%s\")", cli_shown(given.estimate));
    return CLI_DONE;
}

/* Checks --state, which stores exact grids alone: estimates take a few passes. */
static int check_state(const cli_session *s, const patch_plan *p)
{
    const char *other = p->edges ? "--edges" : p->path ? "--path" : p->exact ? NULL : "--estimate";
    if (state_path_given && other) return cli_usage(s, "--state must not be given with %s", other);
    return state_path_check(s);
}

/* Checks options that exclude each other. */
static int check_together(const cli_session *s, const patch_plan *p)
{
    if (p->path && (given.site || given.by || given.estimate))
        return cli_usage(s, "%s must not be given with --site, --by or --estimate", p->edges ? "--edges" : "--path");
    if (p->edges && p->direction[0] && p->direction[1] && s->options.out && figure_knows(s->options.out))
        return cli_usage(s, "a figure of --edges (-o %s) requires one --direction (got \"both\")",
                         cli_shown(s->options.out));
    if (given.verify && p->exact) return cli_usage(s, "--verify requires --estimate attr, ig or qkfix");
    if (given.verify && (s->options.json || s->options.csv))
        return cli_usage(s, "--verify must not be given with --json or --csv");
    if (given.verify && (patch_request.pairs || patch_request.noise))
        return cli_usage(s, "--verify must not be given with --pairs or --noise");
    if (!p->exact && p->estimate == MHA_ESTIMATE_QKFIX && p->site[MHA_SITE_Q] + p->site[MHA_SITE_K] != 1)
        return cli_usage(s, "--estimate qkfix requires --site q or k (got \"%s\")",
                         given.site ? cli_shown(given.site) : "z");
    if (!p->exact && p->metric == MHA_KL && p->direction[MHA_NOISE])
        return cli_usage(
            s, "--metric kl must not be estimated with --direction noise: its gradient is 0 in the clean run");
    return CLI_DONE;
}

static int read_path(const cli_session *s, const mha_model *model, patch_plan *p)
{
    const int to = given.to ? index_of(given.to, patch_receiver_names, 4) : MHA_PATH_K;
    p->edges = p->path = p->path_all = given.edges;
    if (given.edges && given.path) return cli_usage(s, "--edges must not be given with --path");
    if (given.edges && !given.top) p->top = EDGES_SHOWN;
    if (given.to && !given.path) return cli_usage(s, "--to requires --path");
    if (to < 0) return cli_usage(s, "--to must be q, k, v or logits (got \"%s\")", cli_shown(given.to));
    p->to = (mha_path_receiver)to;
    if (!given.path) return CLI_DONE;
    p->path = true;
    p->path_all = strcmp(given.path, "all") == 0;
    if (p->path_all) return CLI_DONE;
    const char *end = cli_head(given.path, &p->sender);
    const int64_t place = end && !*end ? mha_head_place(model, p->sender.layer, p->sender.head) : -1;
    if (place < 0) return cli_usage(s, "--path must be all or a head of the model (got \"%s\")", cli_shown(given.path));
    p->sender.head = (int32_t)place;
    p->sender_name = given.path;
    return CLI_DONE;
}

int patch_plan_read(const cli_session *s, const mha_model *model, patch_plan *p)
{
    *p = (patch_plan){.model = model, .top = 5, .raw = given.raw};
    int code = read_sites(s, p);
    if (code == CLI_DONE) code = read_choices(s, p);
    if (code == CLI_DONE) code = prompt_metric(s, given.metric, &patch_request, &p->metric);
    if (code == CLI_DONE) code = cli_whole(s, "--verify", given.verify, 1, 1000, &p->verify);
    if (code == CLI_DONE) code = cli_whole(s, "--top", given.top, 0, 1000, &p->top);
    if (code == CLI_DONE) code = read_path(s, model, p);
    if (code == CLI_DONE) code = check_state(s, p);
    return code == CLI_DONE ? check_together(s, p) : code;
}
