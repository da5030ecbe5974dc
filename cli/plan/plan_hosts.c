/* plan_hosts.c - options and computation of `mha plan --hosts`. */
#include "plan/plan_hosts.h"

#include "input/input.h"
#include "input/model_folder.h"
#include "options.h"
#include "output.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    const char *hosts, *model, *memory, *network, *speed, *job, *workers, *weights, *moments, *kv_heads;
} given;

const struct poptOption plan_hosts_options[] = {
    {"hosts", 0, POPT_ARG_STRING, &given.hosts, 0, "list layouts of a job over 1 to N hosts, instead of head layouts",
     "N"},
    {"model", 'm', POPT_ARG_STRING, &given.model, 0, "read the shape from config.json, instead of --d-model", "MODEL"},
    {"kv-heads", 0, POPT_ARG_STRING, &given.kv_heads, 0, "key/value heads, with --d-model (default: heads)", "N"},
    {"job", 0, POPT_ARG_STRING, &given.job, 0, "heads, score (default), generate or train", "JOB"},
    {"memory", 0, POPT_ARG_STRING, &given.memory, 0, "memory per host, such as 64G (default: that of this machine)",
     "SIZE"},
    {"network", 0, POPT_ARG_STRING, &given.network, 0, "network between the hosts, required for 2 or more", "NAME"},
    {"speed", 0, POPT_ARG_STRING, &given.speed, 0, "operations and bytes read per second (default: measured)", "N:N"},
    {"weights", 0, POPT_ARG_STRING, &given.weights, 0, "weights in memory: f32 (default), bf16, f16, int8", "TYPE"},
    {"moments", 0, POPT_ARG_STRING, &given.moments, 0, "moments of train: f32 (default) or bf16", "TYPE"},
    {"workers", 0, POPT_ARG_STRING, &given.workers, 0, "virtual workers of train (default: up to N, a power of two)",
     "N"},
    POPT_TABLEEND};

bool plan_hosts_given(void)
{
    return given.hosts != NULL;
}

bool plan_hosts_of_model(void)
{
    return given.model != NULL;
}

int plan_hosts_absent(const cli_session *s)
{
    const char *const values[] = {given.model, given.kv_heads, given.job,     given.memory, given.network,
                                  given.speed, given.weights,  given.moments, given.workers};
    static const char *const names[] = {"-m",      "--kv-heads", "--job",     "--memory", "--network",
                                        "--speed", "--weights",  "--moments", "--workers"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (values[i]) return cli_usage(s, "%s \"%s\" requires --hosts", names[i], cli_shown(values[i]));
    return CLI_DONE;
}

/* ---- options ---- */

static int read_job(const cli_session *s, mha_host_options *o)
{
    o->job = MHA_HOSTS_SCORE;
    for (int n = 0; given.job && n < MHA_HOST_JOBS; n++)
        if (strcmp(given.job, mha_host_job_key((mha_host_job)n)) == 0) {
            o->job = (mha_host_job)n;
            return CLI_DONE;
        }
    if (!given.job) return CLI_DONE;
    return cli_usage(s, "--job must be one of heads, score, generate, train (got \"%s\")", cli_shown(given.job));
}

int64_t plan_machine_memory(void)
{
    return (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
}

/* Parses --memory: a number of bytes, with K, M, G or T for powers of 1024. The default is this machine's memory. */
static int read_memory(const cli_session *s, mha_host_options *o)
{
    static const char units[] = "KMGT";
    if (!given.memory) {
        o->memory = plan_machine_memory();
        return CLI_DONE;
    }
    char *end;
    double bytes = cli_decimal(given.memory, &end);
    const char *const unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        bytes *= (double)(INT64_C(1024) << 10 * (unit - units));
        end++;
    }
    if (end == given.memory || *end != '\0' || !(bytes >= 1 && bytes <= 9e18))
        return cli_usage(s, "--memory must be a number of bytes from 1 to 9e18, also with K, M, G or T (got \"%s\")",
                         cli_shown(given.memory));
    o->memory = (int64_t)bytes;
    return CLI_DONE;
}

static int read_speed(cli_session *s, mha_host_options *o)
{
    mha_error error = {0};
    if (!given.speed)
        return mha_host_speed_measure(s->ctx, &o->speed, &error) == MHA_OK ? CLI_DONE : cli_fail(s, &error);
    char *colon, *end = "";
    o->speed.flops = cli_decimal(given.speed, &colon);
    if (colon != given.speed && *colon == ':') o->speed.bandwidth = cli_decimal(colon + 1, &end);
    if (end != colon + 1 && *end == '\0' && o->speed.flops >= 1 && o->speed.flops <= 1e18 && o->speed.bandwidth >= 1 &&
        o->speed.bandwidth <= 1e15)
        return CLI_DONE;
    return cli_usage(s, "--speed must be OPERATIONS:BYTES per second, from 1:1 to 1e18:1e15 (got \"%s\")",
                     cli_shown(given.speed));
}

static int read_network(const cli_session *s, mha_host_options *o)
{
    mha_error error = {0};
    if (!given.network && o->hosts > 1) return cli_usage(s, "missing --network NAME");
    if (!given.network || mha_host_network_find(given.network, &o->network, &error) == MHA_OK) return CLI_DONE;
    return cli_usage(s, "--%s", error.message);
}

static int read_options(cli_session *s, mha_host_options *o)
{
    long long hosts = 0, workers = 0;
    o->dtype = cli_dtype(given.weights);
    if (o->dtype == MHA_DTYPE_OTHER)
        return cli_usage(s, "--weights must be one of f32, bf16, f16, int8 (got \"%s\")", cli_shown(given.weights));
    o->moments = cli_dtype(given.moments);
    if (o->moments != MHA_F32 && o->moments != MHA_BF16)
        return cli_usage(s, "--moments must be one of f32, bf16 (got \"%s\")", cli_shown(given.moments));
    int code = cli_whole(s, "--hosts", given.hosts, 1, 65536, &hosts);
    if (code == CLI_DONE) code = cli_whole(s, "--workers", given.workers, 1, 65536, &workers);
    o->hosts = hosts;
    o->workers = workers;
    if (code == CLI_DONE) code = read_job(s, o);
    if (code == CLI_DONE && given.workers && o->job != MHA_HOSTS_TRAIN)
        code = cli_usage(s, "--workers \"%s\" requires --job train", cli_shown(given.workers));
    if (code == CLI_DONE && given.moments && o->job != MHA_HOSTS_TRAIN)
        code = cli_usage(s, "--moments \"%s\" requires --job train", cli_shown(given.moments));
    if (code == CLI_DONE) code = read_memory(s, o);
    if (code == CLI_DONE) code = read_network(s, o);
    return code == CLI_DONE ? read_speed(s, o) : code;
}

/* ---- model ---- */

static int take_config(const cli_session *s, const char *config, mha_host_model *shape)
{
    mha_error error = {0};
    return mha_host_model_of_config(s->ctx, config, shape, &error) == MHA_OK ? CLI_DONE : cli_refuse(s, &error);
}

/* Reads the shape of a folder, of which only config.json is required. */
static int read_folder(const cli_session *s, mha_host_model *shape)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes;
    int code = model_folder_check_files(s, s->model, false);
    if (code != CLI_DONE) return code;
    if (snprintf(path, sizeof path, "%s/config.json", s->model) >= PATH_MAX)
        return cli_error(s, CLI_REFUSED, "-m must be a path of at most %d bytes (got %zu)", PATH_MAX - 13,
                         strlen(s->model));
    code = cli_file_check(s, path);
    if (code == CLI_DONE) code = cli_file_read(s, path, &text, &bytes);
    if (code == CLI_DONE) code = take_config(s, text, shape);
    free(text);
    return code;
}

static int read_gguf(cli_session *s, mha_host_model *shape)
{
    mha_model *model = NULL;
    const mha_model_options how = {.size = sizeof how, .no_weights = 1, .no_tokenizer = 1};
    int code = cli_model_open_named(s, given.model, &how, &model);
    if (code == CLI_DONE) code = take_config(s, mha_model_config_json(model), shape);
    mha_model_free(model);
    return code;
}

static int read_config(cli_session *s, mha_host_model *shape)
{
    struct stat st;
    const int code = cli_model_find(s, given.model);
    if (code != CLI_DONE) return code;
    return stat(s->model, &st) == 0 && S_ISREG(st.st_mode) ? read_gguf(s, shape) : read_folder(s, shape);
}

static int read_model(cli_session *s, const mha_head_layout_options *planned, mha_host_model *model)
{
    long long kv_heads = 0;
    mha_error error = {0};
    if (given.model && given.kv_heads)
        return cli_usage(s, "--kv-heads \"%s\" requires --d-model", cli_shown(given.kv_heads));
    if (given.model) return read_config(s, model);
    const int code = cli_whole(s, "--kv-heads", given.kv_heads, 1, 1LL << 20, &kv_heads);
    if (code != CLI_DONE) return code;
    return mha_host_model_of_layout(planned, kv_heads, model, &error) == MHA_OK ? CLI_DONE : cli_fail(s, &error);
}

static int predict(cli_session *s, const mha_head_layout_options *planned, plan_hosts_result *r)
{
    mha_error error = {0};
    mha_host_options *o = &r->options;
    r->model.size = sizeof r->model;
    *o = (mha_host_options){.size = sizeof *o,
                            .seq = planned->seq ? planned->seq : 2048,
                            .batch = planned->batch ? planned->batch : 1,
                            .kv_dtype = planned->dtype};
    int code = read_model(s, planned, &r->model);
    if (code == CLI_DONE) code = read_options(s, o);
    if (code != CLI_DONE) return code;
    r->network = given.network;
    r->measured = !given.speed;
    return mha_host_layouts(&r->model, o, r->rows, &r->choice, &error) == MHA_OK ? CLI_DONE : cli_fail(s, &error);
}

int plan_hosts(cli_session *s, const mha_head_layout_options *planned)
{
    plan_hosts_result *result = calloc(1, sizeof *result);
    if (!result) return cli_error(s, CLI_FAILED, "out of memory");
    int code = predict(s, planned, result);
    if (code == CLI_DONE) code = plan_hosts_print(s, result);
    free(result);
    return code;
}
