/* cmd_logits.c - `mha logits`: prints or writes the tensors of one forward pass, for debugging. */
#include "commands.h"
#include "input/input.h"
#include "input/removed_edges.h"
#include "input/sequence.h"
#include "logits/forward_tensors.h"
#include "logits/head_effects.h"
#include "logits/head_gates.h"
#include "logits/head_steps.h"
#include "logits/top_tokens.h"
#include "options.h"
#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *top, *at, *heads, *gates, *knockout, *steps;
    int hidden, attn, stats, mean, effects;
} given;

static const struct poptOption options[] = {
    {"hidden", 0, POPT_ARG_NONE, &given.hidden, 0, "also write the hidden states (requires -o)", NULL},
    {"attn", 0, POPT_ARG_NONE, &given.attn, 0, "also write the attention maps (requires -o)", NULL},
    {"heads", 0, POPT_ARG_STRING, &given.heads, 0, "write only maps of these heads (requires -o)", "L.H,..."},
    {"stats", 0, POPT_ARG_NONE, &given.stats, 0, "also write statistics of the maps per token (requires -o)", NULL},
    {"gates", 0, POPT_ARG_STRING, &given.gates, 0, "factors for the outputs of heads; 0 switches a head off",
     "L.H=G,..."},
    {"mean", 0, POPT_ARG_NONE, &given.mean, 0,
     "replace what --gates and --effects remove by the head's mean output in the text", NULL},
    {"knockout", 0, POPT_ARG_STRING, &given.knockout, 0, "mask keys for queries, in a head, a layer or all layers",
     "L.H:Q-K,..."},
    {"effects", 0, POPT_ARG_NONE, &given.effects, 0, "also print by how much each head changes the prediction", NULL},
    {"steps", 0, POPT_ARG_STRING, &given.steps, 0,
     "also print the scores, weights and value lengths of a head; with --json, all vectors", "L.H"},
    {"at", 0, POPT_ARG_STRING, &given.at, 0,
     "token of predictions, effects and steps, counted from 0 (default: the last)", "N"},
    {"top", 0, POPT_ARG_STRING, &given.top, 0, "number of tokens to show (default: 5)", "N"},
    POPT_TABLEEND};

/* ---- selection of heads ---- */

static int by_layer(const void *a, const void *b)
{
    const mha_model_head *x = a, *y = b;
    return x->layer != y->layer ? (x->layer > y->layer) - (x->layer < y->layer)
                                : (x->head > y->head) - (x->head < y->head);
}

/* Parses --heads into an ascending list and rejects duplicates. The caller must free the list. */
static int read_heads(const cli_session *s, const mha_model *model, mha_model_head **heads, int64_t *count)
{
    *heads = NULL;
    *count = 0;
    if (!given.heads) return CLI_DONE;
    mha_model_head *list = *heads = calloc(strlen(given.heads) / 2 + 1, sizeof *list);
    if (!list) return cli_error(s, CLI_FAILED, "out of memory for the heads");
    for (const char *text = given.heads, *end; text; text = *end ? end + 1 : NULL) {
        mha_model_head *h = &list[(*count)++];
        end = cli_head(text, h);
        if (!end || (*end && *end != ','))
            return cli_usage(s, "--heads must be LAYER.HEAD,... (got \"%s\")", cli_shown_start(text, 40));
        const int64_t place = mha_head_place(model, h->layer, h->head);
        if (place < 0)
            return cli_usage(s, "--heads must name heads of the model (got %d.%d)", (int)h->layer, (int)h->head);
        h->head = (int32_t)place;
    }
    qsort(list, (size_t)*count, sizeof *list, by_layer);
    for (int64_t n = 1; n < *count; n++)
        if (by_layer(&list[n - 1], &list[n]) == 0)
            return cli_head_twice(
                s, "--heads", "",
                (mha_model_head){list[n].layer, (int32_t)mha_head_number(model, list[n].layer, list[n].head)});
    return CLI_DONE;
}

/* ---- output ---- */

/* The results of --effects and --steps. */
typedef struct head_views {
    head_effects effects;
    head_steps steps;
} head_views;

/* Prints `root` with the views. */
static int put_object(cli_session *s, const cli_sequence *q, const head_views *views, json_t *root)
{
    if (given.effects) json_object_set_new(root, "effects", head_effects_json(&views->effects));
    if (given.steps) json_object_set_new(root, "steps", head_steps_json(&views->steps, q));
    return cli_put_json(s, root, false);
}

static int put_json(cli_session *s, const cli_sequence *q, const head_views *views, int64_t at, const top_token *top,
                    int64_t count)
{
    json_t *ids = json_array(), *tokens = json_array(), *list = json_array();
    for (int64_t i = 0; i < q->count && !q->pixels; i++) {
        json_array_append_new(ids, json_integer(q->ids[i]));
        json_array_append_new(tokens, json_string(cli_sequence_token(q, q->ids[i])));
    }
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:I, s:s, s:o, s:o}", "id", (json_int_t)top[i].id, "token",
                                              cli_sequence_token(q, top[i].id), "logit", cli_real(top[i].logit),
                                              "probability", cli_real(top[i].probability)));
    return put_object(
        s, q, views,
        json_pack("{s:o, s:o, s:I, s:o}", "ids", ids, "tokens", tokens, "at", (json_int_t)at, "top", list));
}

static void print_table(const cli_session *s, const cli_sequence *q, int64_t at, const top_token *top, int64_t count)
{
    if (q->pixels)
        fprintf(s->out, "classes of the image:\n");
    else
        fprintf(s->out, "after token %lld of %lld, %s%s%s (%d):\n", (long long)at, (long long)q->count, cli_bold(s),
                cli_shown(cli_sequence_token(q, q->ids[at])), cli_plain(s), (int)q->ids[at]);
    fprintf(s->out, "%12s %12s %8s  %s\n", "logit", "probability", "id", q->pixels ? "class" : "token");
    for (int64_t i = 0; i < count; i++)
        fprintf(s->out, "%12.6f %12.6f %8lld  %s%s%s\n", top[i].logit, top[i].probability, (long long)top[i].id,
                cli_bold(s), cli_shown(cli_sequence_token(q, top[i].id)), cli_plain(s));
}

/* Prints the logit of each token, and the probability that the token was replaced, of a discriminator. */
static int put_replaced(cli_session *s, const cli_sequence *q, const head_views *views, const captured_tensors *t)
{
    json_t *list = s->options.json ? json_array() : NULL;
    if (!list) fprintf(s->out, "%12s %12s %8s  %s\n", "logit", "replaced", "id", "token");
    for (int64_t i = 0; i < t->rows; i++) {
        const double z = (double)t->logits[i], p = 1 / (1 + exp(-z));
        const char *token = cli_sequence_token(q, q->ids[i]);
        if (list)
            json_array_append_new(list, json_pack("{s:I, s:s, s:o, s:o}", "id", (json_int_t)q->ids[i], "token", token,
                                                  "logit", cli_real(z), "probability", cli_real(p)));
        else
            fprintf(s->out, "%12.6f %12.6f %8d  %s%s%s\n", z, p, (int)q->ids[i], cli_bold(s), cli_shown(token),
                    cli_plain(s));
    }
    return list ? put_object(s, q, views, json_pack("{s:o}", "replaced", list)) : CLI_DONE;
}

static int put_top(cli_session *s, const cli_sequence *q, const head_views *views, const captured_tensors *t,
                   int64_t at, int64_t max)
{
    if (t->logits && !mha_model_describe(t->model)->logits) return put_replaced(s, q, views, t);
    if (!t->logits) return s->options.json ? put_json(s, q, views, at, NULL, 0) : CLI_DONE;
    const int64_t wanted = max < t->vocab ? max : t->vocab;
    top_token *top = calloc((size_t)wanted, sizeof *top);
    if (!top) return cli_error(s, CLI_FAILED, "out of memory for %lld tokens", (long long)wanted);
    const int64_t row = t->rows == 1 ? 0 : at,
                  count = top_tokens_find(t->logits + row * t->vocab, t->vocab, wanted, top);
    int code = CLI_DONE;
    if (s->options.json)
        code = put_json(s, q, views, at, top, count);
    else
        print_table(s, q, at, top, count);
    free(top);
    return code;
}

static int put_result(cli_session *s, const cli_sequence *q, const head_views *views, const captured_tensors *t,
                      int64_t at, int64_t max)
{
    const int code = put_top(s, q, views, t, at, max);
    if (code == CLI_DONE && given.effects && !s->options.json) head_effects_print(s, &views->effects);
    if (code == CLI_DONE && given.steps && !s->options.json) head_steps_print(s, &views->steps, q);
    return code;
}

static int write_npy(const cli_session *s, const captured_tensors *t)
{
    mha_error error = {0};
    const mha_tensor logits = {.dtype = MHA_F32, .rank = 2, .shape = (int64_t[]){t->rows, t->vocab}, .data = t->logits};
    return mha_npy_write(s->options.out, &logits, s->options.force, &error) == MHA_OK ? CLI_DONE : cli_fail(s, &error);
}

static int write_tensors(const cli_session *s, const captured_tensors *t)
{
    mha_error error = {0};
    if (!s->options.out || !cli_writes(s)) return CLI_DONE;
    if (cli_out_ends(s, ".npy")) return write_npy(s, t);
    if (mha_tensors_write(s->ctx, s->options.out, t->list, t->count, s->options.force, &error) != MHA_OK)
        return cli_fail(s, &error);
    cli_say(s, "%s: %lld tensors", cli_shown(s->options.out), (long long)t->count);
    return CLI_DONE;
}

/* ---- forward pass ---- */

/* Rejects options that choose predicted tokens for a discriminator, whose logits are of the tokens of the text. */
static int check_predictions(const cli_session *s, const mha_model *model)
{
    const mha_model_info *info = mha_model_describe(model);
    if (((!given.at || given.steps) && !given.top) || info->logits || info->logit_width == 0) return CLI_DONE;
    return cli_usage(s, "--at and --top require a model with logits of tokens (got %s)", info->family);
}

static int check_views(const cli_session *s, const mha_model *model)
{
    const mha_model_info *info = mha_model_describe(model);
    if ((!given.effects && !given.steps) || (!info->encoder_decoder && !info->image_channels)) return CLI_DONE;
    return cli_usage(s, "--effects and --steps require an encoder or a decoder of texts (got %s)", info->family);
}

/* One pass: what is requested, and its results. */
typedef struct logits_pass {
    capture_request request; /* points to the heads, gates and edges below */
    mha_model_head *heads;
    head_gates gates;
    removed_edges edges;
    int64_t at; /* token of predictions, effects and steps */
    captured_tensors tensors;
    head_views views;
} logits_pass;

static int read_request(const cli_session *s, const mha_model *model, const cli_sequence *q, logits_pass *p)
{
    capture_request *r = &p->request;
    *r = (capture_request){
        .source = q->source.batch ? &q->source : NULL,
        .pixels = q->pixels,
        .views = given.effects || given.steps,
        .keep = (s->options.out || given.at ? CAPTURE_ALL_LOGITS : 0) | (given.hidden ? CAPTURE_HIDDEN : 0) |
                (given.attn || given.heads ? CAPTURE_ATTENTIONS : 0) | (given.stats ? CAPTURE_STATS : 0)};
    int code = head_gates_read(s, model, given.gates, given.mean, given.effects, q, &p->gates);
    if (code == CLI_DONE) code = removed_edges_read(s, model, given.knockout, q->count, &p->edges);
    if (code == CLI_DONE) code = read_heads(s, model, &p->heads, &r->head_count);
    if (code == CLI_DONE && given.steps) code = head_steps_find(s, model, given.steps, &p->views.steps.head);
    r->gates = p->gates.gates;
    r->fills = p->gates.fills;
    r->edges = p->edges.list;
    r->edge_count = p->edges.count;
    r->heads = p->heads;
    return code;
}

static int run_request(cli_session *s, const mha_model *model, const cli_sequence *q, int64_t max, logits_pass *p)
{
    const capture_request *r = &p->request;
    int code = capture_tensors(s, model, q->ids, q->count, r, &p->tensors);
    if (code == CLI_DONE && given.effects)
        code = head_effects_measure(s, model, q, p->at, r, &p->gates, &p->views.effects);
    if (code == CLI_DONE && given.steps) code = head_steps_read(s, model, q, p->at, r, &p->views.steps);
    if (code == CLI_DONE) code = put_result(s, q, &p->views, &p->tensors, p->at, max);
    return code == CLI_DONE ? write_tensors(s, &p->tensors) : code;
}

static int capture_sequence(cli_session *s, const mha_model *model, const cli_sequence *q, long long at, long long max)
{
    if (at >= q->count)
        return cli_usage(s, "--at must be a token from 0 to %lld (got %lld)", (long long)q->count - 1, at);
    logits_pass p = {.at = given.at ? at : q->count - 1};
    int code = read_request(s, model, q, &p);
    if (code == CLI_DONE) code = run_request(s, model, q, max, &p);
    captured_tensors_free(&p.tensors);
    head_effects_free(&p.views.effects);
    head_steps_free(&p.views.steps);
    head_gates_free(&p.gates);
    removed_edges_free(&p.edges);
    free(p.heads);
    return code;
}

static int check_options(const cli_session *s, long long *at, long long *max)
{
    if (s->options.out && strcmp(s->options.out, "-") == 0)
        return cli_usage(s, "-o must name a file for the tensors (got \"-\")");
    if ((given.hidden || given.attn || given.heads || given.stats) && !s->options.out)
        return cli_usage(s, "--%s requires -o OUT, a safetensors file",
                         given.hidden  ? "hidden"
                         : given.attn  ? "attn"
                         : given.heads ? "heads"
                                       : "stats");
    if ((given.hidden || given.attn || given.heads || given.stats) && cli_out_ends(s, ".npy"))
        return cli_usage(s, "for tensors other than logits, -o must end in .safetensors (got \"%s\")",
                         cli_shown(s->options.out));
    if (given.mean && !given.gates && !given.effects) return cli_usage(s, "--mean requires --gates or --effects");
    if (given.attn && given.heads) return cli_usage(s, "--attn and --heads are mutually exclusive");
    int code = cli_whole(s, "--at", given.at, 0, INT32_MAX, at);
    if (code == CLI_DONE) code = cli_whole(s, "--top", given.top, 1, 1000, max);
    return code == CLI_DONE ? cli_check_out(s) : code;
}

static int run(cli_session *s)
{
    long long at = 0, max = 5;
    cli_sequence q = {0};
    mha_model *model = NULL;
    const mha_model_options bare = {.size = sizeof bare, .no_tokenizer = 1};
    int code = check_options(s, &at, &max);
    if (code == CLI_DONE) code = cli_model_open(s, &bare, &model);
    if (code == CLI_DONE) code = check_predictions(s, model);
    if (code == CLI_DONE) code = check_views(s, model);
    if (code == CLI_DONE) code = cli_sequence_read(s, model, &q);
    if (code == CLI_DONE) code = capture_sequence(s, model, &q, at, max);
    cli_sequence_free(&q);
    mha_model_free(model);
    return code;
}

/* Passes that ranks divide return only logits, no other tensors. */
static const char *unshared(const cli_session *s)
{
    return given.hidden     ? "--hidden"
           : given.attn     ? "--attn"
           : given.heads    ? "--heads"
           : given.stats    ? "--stats"
           : given.gates    ? "--gates"
           : given.knockout ? "--knockout"
           : given.effects  ? "--effects"
           : given.steps    ? "--steps"
                            : cli_unshared_stdin(s);
}

const cli_command cli_logits = {
    .name = "logits",
    .summary = "write logits, hidden states and attention maps of one sequence",
    .usage = "TEXT | -f FILE",
    .details =
        "Prints the most likely next tokens; --json prints {ids, tokens, at, top: [{id, token, logit, "
        "probability}]}. The discriminator of ELECTRA has one logit per token, the log-odds that the token was "
        "replaced; --json then prints {replaced: [{id, token, logit, probability}]}. -o OUT writes float32 tensors as "
        "safetensors: logits [tokens, vocab]; with "
        "--hidden, hidden.N [tokens, width], where hidden.0 contains the embeddings and the last state follows "
        "the final norm; with --attn, attn.N [heads, tokens, tokens] of layer N; with --heads 0.2,3.11, "
        "attn.0.2 and attn.3.11 [tokens, tokens]; with --stats, row_entropy.N (bits), row_max.N, row_argmax.N "
        "(int64), row_distance.N (tokens) and received.N, each [heads, tokens], in memory proportional to the "
        "number of tokens. For an encoder-decoder, the text is a source, or a source and a target separated by a "
        "tab; the tensors are those of the decoder, whose first token precedes the target. For a ViT, the text is the "
        "name of a PNG or JPEG file; the command prints its most likely classes, and logits are [1, classes]. -o "
        "OUT.npy writes only the logits, as .npy. --gates 0.2=0,1.3=0.5 multiplies the output of head 2 of layer 0 by "
        "0, and that of head 3 of layer 1 by 0.5, as on the page of mha live. --knockout 1.0:8-3,0:8-2,all:8-1 masks "
        "key 3 for query 8 in head 0 of layer 1, key 2 in all heads of layer 0, and key 1 in all layers, before the "
        "softmax. --effects prints for each head the divergence KL(with || without) in bits if the head is switched "
        "off, or on if its gate is 0; for a model without logits, 1 - the cosine of the mean hidden states. --steps "
        "1.1 prints for each key the score before masks, the weight and the length of the value of head 1 of layer 1, "
        "for the token of --at. With --json, effects: [{head, effect}] and steps: {head, at, q, keys: [{token, score, "
        "weight, k, v}], output} are added.",
    .shared = CLI_MODEL | CLI_FILE | CLI_IDS | CLI_OUT | CLI_JSON | CLI_DTYPE,
    .options = options,
    .examples = "mha logits \"Count from 2 to 6: 2 3\"\n"
                "mha logits --gates 0.2=0,1.3=0 \"Count from 2 to 6: 2 3\"\n"
                "mha logits --knockout 1:8-3 \" red cat key boat hat drum red cat key\"\n"
                "mha logits --effects --steps 1.1 \"Count from 2 to 6: 2 3\"\n"
                "mha logits --hidden --attn -o numbers.safetensors \"One day Clara\"\n",
    .unshared = unshared,
    .run = run,
};
