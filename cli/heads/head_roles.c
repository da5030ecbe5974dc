/* head_roles.c - runs a model on a tagged text and counts how often each head attends along each role. */
#include "heads/head_roles.h"

#include "heads/heads_json.h"
#include "heads/roles_text.h"
#include "output.h"
#include "word_wrap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums over the relations of one role, per head [layers, heads]. */
typedef struct role_sums {
    double *correct, *mass;
    int64_t relations, distance[HEAD_ROLES_WORDS]; /* number of relations, in all and per distance in words */
    double uniform;
} role_sums;

struct head_roles {
    char *file;
    int64_t sentences, layers, heads;
    bool causal;
    const int64_t *heads_per_layer;
    role_sums role[HEAD_ROLES];
};

/* ---- measurement ---- */

/* The sentence of a pass, and the word of each of its tokens, -1 for special tokens and punctuation. */
typedef struct pass {
    head_roles *roles;
    const roles_sentence *sentence;
    int64_t tokens;
    int *word;
} pass;

static int64_t last_token(const pass *p, int word)
{
    int64_t token = p->tokens - 1;
    while (token >= 0 && p->word[token] != word)
        token--;
    return token;
}

/* Adds one relation for the head whose sums are at index `at`. `row` [tokens] contains the weights of the query. */
static void add_relation(const pass *p, const roles_relation *r, const float *row, int64_t keys, int64_t at)
{
    role_sums *sums = &p->roles->role[r->role];
    int64_t best = -1;
    for (int64_t k = 0; k < keys; k++) {
        const int word = p->word[k];
        if (word == r->earlier) sums->mass[at] += (double)row[k];
        if (word >= 0 && word != r->later && (best < 0 || row[k] > row[best])) best = k;
    }
    sums->correct[at] += best >= 0 && p->word[best] == r->earlier;
}

static int add_maps(void *user, int64_t layer, int64_t heads, const float *probs)
{
    const pass *p = user;
    for (int r = 0; r < p->sentence->relations; r++) {
        const roles_relation *relation = &p->sentence->relation[r];
        const int64_t query = last_token(p, relation->later), keys = p->roles->causal ? query + 1 : p->tokens;
        for (int64_t h = 0; query >= 0 && h < heads; h++)
            add_relation(p, relation, probs + (h * p->tokens + query) * p->tokens, keys, layer * p->roles->heads + h);
    }
    return 0;
}

/* Counts the relations and their chance level. Relations of a word without tokens are not measured. */
static void count_relations(const pass *p)
{
    for (int r = 0; r < p->sentence->relations; r++) {
        const roles_relation *relation = &p->sentence->relation[r];
        role_sums *sums = &p->roles->role[relation->role];
        const int64_t query = last_token(p, relation->later), keys = p->roles->causal ? query + 1 : p->tokens;
        int64_t targets = 0;
        if (query < 0) continue;
        for (int64_t k = 0; k < keys; k++)
            targets += p->word[k] == relation->earlier;
        sums->relations++;
        sums->distance[relation->later - relation->earlier]++;
        sums->uniform += (double)targets / (double)keys;
    }
}

static void find_words(const roles_sentence *s, const mha_encoding *e, int *word)
{
    for (int64_t t = 0; t < e->count; t++) {
        word[t] = -1;
        for (int w = 0; w < s->words && e->sequence[t] >= 0; w++)
            if (e->begin[t] < (int64_t)s->end[w] && e->end[t] > (int64_t)s->begin[w]) word[t] = w;
    }
}

static int measure_sentence(cli_session *s, const mha_model *model, const roles_sentence *sentence, head_roles *roles)
{
    mha_encoding *e = NULL;
    mha_error err = {0};
    mha_status status =
        mha_tokenizer_encode(mha_model_tokenizer(model), sentence->text, sentence->bytes, NULL, 0, NULL, &e, &err);
    pass p = {.roles = roles, .sentence = sentence, .tokens = e ? e->count : 0};
    p.word = calloc((size_t)p.tokens + 1, sizeof *p.word);
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = p.tokens, .ids = e ? e->ids : NULL};
    const mha_model_output out = {.size = sizeof out, .on_attention = add_maps, .user = &p};
    int code = p.word ? CLI_DONE : cli_error(s, CLI_FAILED, "out of memory for the tokens of a sentence");
    if (code == CLI_DONE && status == MHA_OK) {
        find_words(sentence, e, p.word);
        count_relations(&p);
        status = mha_model_forward(model, &in, &out, &err);
    }
    if (code == CLI_DONE && status != MHA_OK) code = cli_fail(s, &err);
    mha_encoding_free(e);
    free(p.word);
    return code;
}

static int measure_texts(cli_session *s, const mha_model *model, const cli_texts *texts, head_roles *roles)
{
    roles_sentence sentence;
    int64_t relations = 0;
    int code = CLI_DONE;
    for (int64_t i = 0; i < texts->count && code == CLI_DONE; i++) {
        code = roles_sentence_read(s, texts, i, &sentence);
        if (code == CLI_DONE) code = measure_sentence(s, model, &sentence, roles);
    }
    roles->sentences = texts->count;
    for (int r = 0; r < HEAD_ROLES; r++)
        relations += roles->role[r].relations;
    if (code == CLI_DONE && relations == 0)
        code = cli_error(s, CLI_REFUSED, "%s: the text must have at least one relation (got none)",
                         cli_shown(roles->file));
    return code;
}

static head_roles *create(const mha_model *model, const char *path)
{
    const mha_model_info *info = mha_model_describe(model);
    head_roles *roles = calloc(1, sizeof *roles);
    if (!roles) return NULL;
    roles->file = strdup(path);
    roles->layers = info->layers, roles->heads = info->heads, roles->causal = info->causal;
    roles->heads_per_layer = info->heads_per_layer;
    bool whole = roles->file != NULL;
    for (int r = 0; r < HEAD_ROLES; r++) {
        roles->role[r].correct = calloc((size_t)(info->layers * info->heads), sizeof(double));
        roles->role[r].mass = calloc((size_t)(info->layers * info->heads), sizeof(double));
        whole = whole && roles->role[r].correct && roles->role[r].mass;
    }
    if (whole) return roles;
    head_roles_free(roles);
    return NULL;
}

/* Reads the lines of the tagged text: --documents applies only to the texts of -f. */
static int read_lines(const cli_session *s, const char *path, cli_texts *texts)
{
    cli_session lines = *s;
    lines.options.documents = NULL;
    return cli_texts_read_file(&lines, path, texts);
}

int head_roles_measure(cli_session *s, const mha_model *model, const char *path, head_roles **out)
{
    cli_texts texts = {0};
    const mha_model_info *info = mha_model_describe(model);
    *out = NULL;
    if (!mha_model_tokenizer(model) || info->image_channels > 0 || info->encoder_decoder)
        return cli_usage(s, "--roles requires a model that reads one text, with a tokenizer (got %s)", info->family);
    int code = read_lines(s, path, &texts);
    if (code != CLI_DONE) return code;
    *out = create(model, path);
    code = *out ? measure_texts(s, model, &texts, *out) : cli_error(s, CLI_FAILED, "out of memory for the roles");
    cli_texts_free(&texts);
    return code;
}

void head_roles_free(head_roles *roles)
{
    if (!roles) return;
    for (int r = 0; r < HEAD_ROLES; r++) {
        free(roles->role[r].correct);
        free(roles->role[r].mass);
    }
    free(roles->file);
    free(roles);
}

/* ---- values ---- */

static double accuracy(const head_roles *roles, int role, int64_t layer, int64_t head)
{
    const role_sums *sums = &roles->role[role];
    return sums->correct[layer * roles->heads + head] / (double)sums->relations;
}

/* Returns the largest fraction of relations with the same distance; NAN without relations. */
static double offset_level(const head_roles *roles, int role)
{
    int64_t max = 0;
    for (int d = 0; d < HEAD_ROLES_WORDS; d++)
        max = roles->role[role].distance[d] > max ? roles->role[role].distance[d] : max;
    return (double)max / (double)roles->role[role].relations;
}

/* Returns the role of a head; -1 if it has none. */
static int role_of(const head_roles *roles, int64_t layer, int64_t head)
{
    int best = -1;
    double max = HEAD_ROLES_MARGIN;
    for (int r = 0; r < HEAD_ROLES; r++) {
        const double excess = accuracy(roles, r, layer, head) - offset_level(roles, r);
        if (excess >= max) best = r, max = excess;
    }
    return best;
}

/* ---- JSON ---- */

typedef struct json_item {
    const head_roles *roles;
    const double *sums; /* [layers, heads] */
    double count;
} json_item;

static json_t *mean_item(const mha_heads *heads, int64_t layer, int64_t head, const void *arg)
{
    const json_item *item = arg;
    (void)heads;
    return cli_real(item->sums[layer * item->roles->heads + head] / item->count);
}

static json_t *label_item(const mha_heads *heads, int64_t layer, int64_t head, const void *arg)
{
    const int role = role_of(arg, layer, head);
    (void)heads;
    return role < 0 ? json_null() : json_string(roles_names[role]);
}

json_t *head_roles_json(const head_roles *roles, const mha_heads *heads)
{
    json_t *all =
        json_pack("{s:s, s:I, s:f, s:{}, s:{}, s:{}, s:{}, s:{}, s:o}", "file", cli_shown(roles->file), "sentences",
                  (json_int_t)roles->sentences, "margin", HEAD_ROLES_MARGIN, "relations", "offset", "uniform",
                  "accuracy", "mass", "labels", heads_json_each(heads, label_item, roles));
    for (int r = 0; all && r < HEAD_ROLES; r++) {
        const role_sums *sums = &roles->role[r];
        const double count = (double)sums->relations;
        const json_item correct = {roles, sums->correct, count}, mass = {roles, sums->mass, count};
        json_object_set_new(json_object_get(all, "relations"), roles_names[r], json_integer(sums->relations));
        json_object_set_new(json_object_get(all, "offset"), roles_names[r], cli_real(offset_level(roles, r)));
        json_object_set_new(json_object_get(all, "uniform"), roles_names[r], cli_real(sums->uniform / count));
        json_object_set_new(json_object_get(all, "accuracy"), roles_names[r],
                            heads_json_each(heads, mean_item, &correct));
        json_object_set_new(json_object_get(all, "mass"), roles_names[r], heads_json_each(heads, mean_item, &mass));
    }
    return all;
}

/* ---- text ---- */

/* Prints the heads of the largest accuracy for a role, best first, such as "1.3 0.62*". */
static void print_best(const cli_session *s, const mha_model *model, const head_roles *roles, int role)
{
    enum { SHOWN = 3 };
    double before = (double)INFINITY;
    int shown = 0;
    while (shown < SHOWN) {
        double max = -1;
        for (int64_t l = 0; l < roles->layers; l++)
            for (int64_t h = 0; h < roles->heads_per_layer[l]; h++) {
                const double a = accuracy(roles, role, l, h);
                if (a < before && a > max) max = a;
            }
        if (max < 0) break;
        for (int64_t l = 0; l < roles->layers; l++)
            for (int64_t h = 0; h < roles->heads_per_layer[l]; h++)
                if (accuracy(roles, role, l, h) == max && shown++ < SHOWN)
                    fprintf(s->out, "  %lld.%lld %.2f%s", (long long)l, (long long)mha_head_number(model, l, h), max,
                            role_of(roles, l, h) == role ? "*" : " ");
        before = max;
    }
}

void head_roles_print(const cli_session *s, const mha_model *model, const head_roles *roles)
{
    enum { NAME = 11 };
    fprintf(s->out, "%s%-*s %9s %7s  best heads%s\n", cli_bold(s), NAME, "role", "relations", "chance", cli_plain(s));
    for (int r = 0; r < HEAD_ROLES; r++) {
        if (roles->role[r].relations == 0) continue;
        fprintf(s->out, "%-*s %9lld %7.2f", NAME, roles_names[r], (long long)roles->role[r].relations,
                offset_level(roles, r));
        print_best(s, model, roles, r);
        fputc('\n', s->out);
    }
    cli_put_prose(s, 0, 0,
                  "Accuracy: fraction of relations in which the largest weight on another word is on the related word. "
                  "Chance: accuracy of the best fixed distance. * = the head has the role: at least %.2f above chance.",
                  HEAD_ROLES_MARGIN);
}
