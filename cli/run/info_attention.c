/* info_attention.c - see info_attention.h. */
#include "run/info_attention.h"

#include "memory.h"
#include "word_wrap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Keys in "mha.attention" for each kind of head selection. */
static const char *const choices[] = {[MHA_CHOICE_NONE] = NULL,
                                      [MHA_CHOICE_EXPERTS] = "moe_heads",
                                      [MHA_CHOICE_HEADS] = "head_pruning",
                                      [MHA_CHOICE_OPTIONS] = "adaptive_heads"};

static const char *const selections[] = {[MHA_SELECTION_HARD] = "hard",
                                         [MHA_SELECTION_SOFT] = "soft",
                                         [MHA_SELECTION_STRAIGHT_THROUGH] = "straight_through"};

static bool chooses_by_gates(const mha_model_attention *a)
{
    return a->choice == MHA_CHOICE_HEADS || a->choice == MHA_CHOICE_OPTIONS;
}

static json_t *number_or_null(int64_t x)
{
    return x ? json_integer(x) : json_null();
}

static json_t *real_or_null(double x)
{
    return x > 0 ? json_real(x) : json_null();
}

static json_t *options_json(const mha_model_attention *a)
{
    json_t *array = a->head_option_count ? json_array() : json_null();
    for (int64_t n = 0; n < a->head_option_count; n++)
        json_array_append_new(array, json_integer(a->head_options[n]));
    return array;
}

json_t *info_attention_json(const mha_model_info *info)
{
    json_t *array = json_array();
    for (int64_t l = 0; l < info->layers; l++) {
        const mha_model_attention *a = &info->attention_per_layer[l];
        json_array_append_new(array, json_pack("{s:o, s:b, s:b, s:b, s:o, s:o, s:s?, s:s?, s:o, s:I}", "window",
                                               number_or_null(a->window), "rotary", a->rotary, "qk_norm", a->qk_norm,
                                               "alibi", a->alibi, "scale", real_or_null(a->scale), "softcap",
                                               real_or_null(a->softcap), "choice", choices[a->choice], "selection",
                                               chooses_by_gates(a) ? selections[a->selection] : NULL, "head_options",
                                               options_json(a), "heads_per_text", (json_int_t)a->heads_per_text));
    }
    return array;
}

static bool are_alike(const mha_model_attention *a, const mha_model_attention *b)
{
    return a->window == b->window && a->rotary == b->rotary && a->qk_norm == b->qk_norm && a->alibi == b->alibi &&
           a->scale == b->scale && a->softcap == b->softcap && a->choice == b->choice && a->selection == b->selection &&
           (!a->choice || a->heads_per_text == b->heads_per_text) && a->head_option_count == b->head_option_count &&
           memcmp(a->head_options, b->head_options, (size_t)a->head_option_count * sizeof *a->head_options) == 0;
}

/* Prints how heads are selected, for example "2 experts for each text" or "1, 2 or 4 heads for each text (hard)". */
static void describe_choice(FILE *out, bool separate, const mha_model_attention *a)
{
    const int64_t last = a->head_option_count - 1;
    if (!a->choice) return;
    if (separate) fputs(", ", out);
    for (int64_t n = 0; n < last; n++)
        fprintf(out, "%lld%s", (long long)a->head_options[n], n + 1 < last ? ", " : " or ");
    fprintf(out, "%lld %s for each text", (long long)(last < 0 ? a->heads_per_text : a->head_options[last]),
            a->choice == MHA_CHOICE_EXPERTS ? "experts" : "heads");
    if (chooses_by_gates(a)) fprintf(out, " (%s)", selections[a->selection]);
}

/* Prints the kind of attention, for example "rotary, window 64"; "plain" means only softmax of scores /
 * sqrt(head_dim). */
static void describe(FILE *out, const mha_model_info *info, const mha_model_attention *a)
{
    const bool scaled = a->scale > 0 && fabs(a->scale * sqrt((double)info->head_dim) - 1) > 1e-6;
    const struct {
        bool is;
        const char *name;
        int digits; /* field of the value; 0 if the kind has no value */
        double value;
    } parts[] = {{a->rotary, "rotary", 0, 0},
                 {a->qk_norm, "norms of q and k", 0, 0},
                 {a->alibi, "ALiBi", 0, 0},
                 {a->window > 0, "window", 10, (double)a->window},
                 {a->softcap > 0, "softcap", 4, a->softcap},
                 {scaled, "scale", 4, a->scale}};
    bool any = false;
    for (size_t n = 0; n < sizeof parts / sizeof *parts; n++) {
        if (!parts[n].is) continue;
        fprintf(out, "%s%s", any ? ", " : "", parts[n].name);
        if (parts[n].digits) fprintf(out, " %.*g", parts[n].digits, parts[n].value);
        any = true;
    }
    if (!any && !a->choice) fputs("plain", out);
    describe_choice(out, any, a);
}

/* Prints the layers with the same attention as layer `first`, for example " in layers 1, 3"; prints nothing if all
 * layers have the same attention. */
static void list_layers(FILE *out, const mha_model_info *info, int64_t first)
{
    const mha_model_attention *a = info->attention_per_layer;
    int64_t count = 0;
    for (int64_t l = first; l < info->layers; l++)
        count += are_alike(&a[l], &a[first]);
    if (count == info->layers) return;
    fprintf(out, " in layer%s", count > 1 ? "s" : "");
    const char *comma = " ";
    for (int64_t l = first; l < info->layers; l++) {
        if (!are_alike(&a[l], &a[first])) continue;
        fprintf(out, "%s%lld", comma, (long long)l);
        comma = ", ";
    }
}

static bool is_first_of_its_kind(const mha_model_info *info, int64_t layer)
{
    int64_t l = 0;
    while (!are_alike(&info->attention_per_layer[l], &info->attention_per_layer[layer]))
        l++;
    return l == layer;
}

void info_put_attention(const cli_session *s, int indent, const mha_model_info *info)
{
    for (int64_t l = 0; l < info->layers; l++) {
        char *text;
        size_t bytes;
        if (!is_first_of_its_kind(info, l)) continue;
        FILE *out = cli_memory_open(&text, &bytes);
        describe(out, info, &info->attention_per_layer[l]);
        list_layers(out, info, l);
        fclose(out);
        if (l > 0) fprintf(s->out, "%*s", indent, "");
        cli_put_prose(s, indent, indent, "%s", text);
        free(text);
    }
}
