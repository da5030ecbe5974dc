/* golden_seq2seq.c - compares one forward pass of an encoder-decoder with its golden results: hidden states and maps of
 * both sides, cross-attention maps, and logits. */
#include "conformance/models/golden_model.h"
#include "mha/seq2seq.h"
#include <string.h>

static const double HIDDEN_LIMIT = 1e-4, MAP_LIMIT = 2e-5; /* tolerances of tensors without an entry in "atol" */

/* A recorded sequence of tensors, one per layer or hidden state, and how many of them the pass has returned. */
typedef struct series {
    const char *name;
    const double *want; /* NULL = not recorded */
    int64_t entries, heads, elements;
    int64_t seen;
    double limit;
} series;

typedef struct seq_case {
    const verify_entry *entry;
    const mha_file *file;
    verify_case *outcome;
    verify_memory memory;
    const mha_model_info *encoder, *decoder;
    mha_model_input source, input;
    series encoder_hidden, encoder_maps, decoder_hidden, decoder_maps, cross_maps;
} seq_case;

/* ---- inputs ---- */

int32_t *verify_ids_of(verify_memory *memory, const verify_entry *e, const mha_file *file, const char *name,
                       int64_t *batch, int64_t *length)
{
    const mha_tensor *found = mha_file_find(file, name);
    const int rank = found && found->rank == 2 ? 2 : 1;
    int64_t shape[2] = {-1, -1};
    const mha_tensor *tensor = verify_tensor(e, file, name, rank, shape);
    const int64_t *wide = verify_integers(memory, e, tensor);
    *batch = rank == 2 ? shape[0] : 1;
    *length = shape[rank - 1];
    int32_t *ids = wide ? verify_alloc(memory, tensor->elements, sizeof *ids, e) : NULL;
    for (int64_t n = 0; ids && n < tensor->elements; n++) {
        if (wide[n] != (int32_t)wide[n])
            verify_fault(e, "token id must be a 32-bit integer (got %lld)", (long long)wide[n]);
        ids[n] = (int32_t)wide[n];
    }
    return ids;
}

/* Reads ids and, if `mask` is in the file, a mask of the same shape. */
static void read_tokens(seq_case *c, const char *ids, const char *mask, mha_model_input *input)
{
    int64_t batch = 0, length = 0;
    *input = (mha_model_input){.size = sizeof *input};
    input->ids = verify_ids_of(&c->memory, c->entry, c->file, ids, &input->batch, &input->length);
    if (!mask || !mha_file_find(c->file, mask)) return;
    const int32_t *ones = verify_ids_of(&c->memory, c->entry, c->file, mask, &batch, &length);
    uint8_t *bytes = ones ? verify_alloc(&c->memory, batch * length, 1, c->entry) : NULL;
    if (batch != input->batch || length != input->length)
        verify_fault(c->entry, "tensor \"%s\" must have the shape of \"%s\"", mask, ids);
    for (int64_t n = 0; bytes && c->entry->error->status == MHA_OK && n < batch * length; n++)
        bytes[n] = ones[n] != 0;
    input->mask = bytes;
}

void verify_features_of(verify_memory *memory, const verify_entry *e, const mha_file *file, const char *name,
                        const mha_model *model, mha_model_input *input)
{
    const mha_model_info *encoder = mha_model_describe(mha_model_encoder(model) ? mha_model_encoder(model) : model);
    const mha_tensor *found = mha_file_find(file, name);
    const int rank = found && found->rank == 3 ? 3 : 2;
    int64_t shape[3] = {-1, encoder->feature_bins, 2 * encoder->max_positions};
    const mha_tensor *tensor = verify_tensor(e, file, name, rank, shape + 3 - rank);
    const double *wide = verify_reals(memory, e, tensor);
    float *features = wide ? verify_alloc(memory, tensor->elements, sizeof *features, e) : NULL;
    *input =
        (mha_model_input){.size = sizeof *input, .batch = rank == 3 ? shape[0] : 1, .length = encoder->max_positions};
    for (int64_t n = 0; features && n < tensor->elements; n++)
        features[n] = (float)wide[n];
    input->features = features;
}

/* Reads the input of the encoder: audio features if the file has them, else ids and a mask. */
static void read_source(seq_case *c, const mha_model *model, const char *features, const char *ids, const char *mask)
{
    if (mha_file_find(c->file, features))
        verify_features_of(&c->memory, c->entry, c->file, features, model, &c->source);
    else
        read_tokens(c, ids, mask, &c->source);
}

/* ---- recorded series ---- */

static series read_hidden(seq_case *c, const char *name, const mha_model_info *side, int64_t length)
{
    int64_t shape[3] = {side->layers + 1, length, side->hidden};
    series s = {.name = name, .entries = shape[0], .elements = length * side->hidden};
    s.want = verify_reals(&c->memory, c->entry, verify_tensor(c->entry, c->file, name, 3, shape));
    s.limit = verify_limit(c->entry, name, HIDDEN_LIMIT);
    return s;
}

static series read_maps(seq_case *c, const char *name, const mha_model_info *side, int64_t rows, int64_t keys)
{
    int64_t shape[4] = {side->layers, side->heads, rows, keys};
    series s = {.name = name, .entries = shape[0], .heads = side->heads, .elements = side->heads * rows * keys};
    s.want = verify_reals(&c->memory, c->entry, verify_tensor(c->entry, c->file, name, 4, shape));
    s.limit = verify_limit(c->entry, name, MAP_LIMIT);
    return s;
}

static int compare(seq_case *c, series *s, int64_t entry, int64_t heads, const float *x)
{
    if (entry < 0 || entry >= s->entries || heads != s->heads) return 1;
    s->seen++;
    verify_compare(c->outcome, s->name, x, s->want + entry * s->elements, s->elements, s->limit);
    return 0;
}

static int on_encoder_hidden(void *user, int64_t entry, const float *x)
{
    return compare(user, &((seq_case *)user)->encoder_hidden, entry, 0, x);
}
static int on_encoder_maps(void *user, int64_t layer, int64_t heads, const float *probs)
{
    return compare(user, &((seq_case *)user)->encoder_maps, layer, heads, probs);
}
static int on_decoder_hidden(void *user, int64_t entry, const float *x)
{
    return compare(user, &((seq_case *)user)->decoder_hidden, entry, 0, x);
}
static int on_decoder_maps(void *user, int64_t layer, int64_t heads, const float *probs)
{
    return compare(user, &((seq_case *)user)->decoder_maps, layer, heads, probs);
}
static int on_cross_maps(void *user, int64_t layer, int64_t heads, const float *probs)
{
    return compare(user, &((seq_case *)user)->cross_maps, layer, heads, probs);
}

static void read_series(seq_case *c)
{
    const int64_t S = c->source.length, T = c->input.length;
    c->encoder_hidden = read_hidden(c, "seq2seq/encoder_hidden", c->encoder, S);
    c->encoder_maps = read_maps(c, "seq2seq/encoder_attn", c->encoder, S, S);
    c->decoder_hidden = read_hidden(c, "seq2seq/decoder_hidden", c->decoder, T);
    c->decoder_maps = read_maps(c, "seq2seq/decoder_attn", c->decoder, T, T);
    c->cross_maps = read_maps(c, "seq2seq/cross_attn", c->decoder, T, S);
}

/* ---- the pass ---- */

static void compare_logits(seq_case *c, const char *name, const char *limit_of, const float *got)
{
    int64_t shape[3] = {c->input.batch, c->input.length, c->decoder->vocab};
    const int rank = mha_file_find(c->file, name) && mha_file_find(c->file, name)->rank == 3 ? 3 : 2;
    const double *want =
        verify_reals(&c->memory, c->entry, verify_tensor(c->entry, c->file, name, rank, shape + 3 - rank));
    const int64_t count = shape[0] * shape[1] * shape[2];
    if (want) verify_compare(c->outcome, name, got, want, count, verify_limit(c->entry, limit_of, HIDDEN_LIMIT));
}

static void compare_last(seq_case *c, const float *got)
{
    static const char *const name = "seq2seq/encoder_last";
    int64_t shape[2] = {c->source.length, c->encoder->hidden};
    const double *want = verify_reals(&c->memory, c->entry, verify_tensor(c->entry, c->file, name, 2, shape));
    if (want)
        verify_compare(c->outcome, name, got, want, shape[0] * shape[1], verify_limit(c->entry, name, HIDDEN_LIMIT));
}

/* Runs the pass into `logits` and, if `last` is not NULL, compares everything that was recorded of one sequence. */
static bool run(seq_case *c, const mha_model *model, float *last, float *logits)
{
    mha_model_output encoder = {.size = sizeof encoder, .last_hidden = last, .user = c};
    mha_model_output output = {.size = sizeof output, .logits = logits, .user = c, .encoder = &encoder};
    mha_error error = {0};
    if (last) {
        encoder.on_hidden = on_encoder_hidden;
        encoder.on_attention = on_encoder_maps;
        output.on_hidden = on_decoder_hidden;
        output.on_attention = on_decoder_maps;
        output.on_cross_attention = on_cross_maps;
    }
    if (mha_model_forward(model, &c->input, &output, &error) == MHA_OK) return true;
    verify_stopped(c->outcome, &error);
    return false;
}

static void check_single(seq_case *c, const mha_model *model)
{
    read_source(c, model, "seq2seq/input_features", "seq2seq/input_ids", NULL);
    read_tokens(c, "seq2seq/decoder_input_ids", NULL, &c->input);
    c->input.source = &c->source;
    if (c->entry->error->status != MHA_OK) return;
    read_series(c);
    float *last = verify_alloc(&c->memory, c->source.length * c->encoder->hidden, sizeof *last, c->entry);
    float *logits = verify_alloc(&c->memory, c->input.length * c->decoder->vocab, sizeof *logits, c->entry);
    if (c->entry->error->status != MHA_OK || !run(c, model, last, logits)) return;
    compare_last(c, last);
    compare_logits(c, "seq2seq/logits_f64", "seq2seq/logits", logits);
    const series *all[] = {&c->encoder_hidden, &c->encoder_maps, &c->decoder_hidden, &c->decoder_maps, &c->cross_maps};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) /* the pass must return all that was recorded */
        verify_measured(c->outcome, all[n]->name, (double)(all[n]->entries - all[n]->seen), 0);
}

static void check_padded(seq_case *c, const mha_model *model)
{
    read_source(c, model, "pad/input_features", "pad/input_ids", "pad/attention_mask");
    read_tokens(c, "pad/decoder_input_ids", NULL, &c->input);
    c->input.source = &c->source;
    const int64_t count = c->input.batch * c->input.length * c->decoder->vocab;
    if (c->entry->error->status != MHA_OK) return;
    float *logits = verify_alloc(&c->memory, count, sizeof *logits, c->entry);
    if (c->entry->error->status == MHA_OK && run(c, model, NULL, logits))
        compare_logits(c, "pad/logits", "pad/logits", logits);
}

static void check(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome,
                  void (*of)(seq_case *, const mha_model *))
{
    const mha_model *encoder = mha_model_encoder(model);
    seq_case c = {.entry = e, .file = file, .outcome = outcome, .decoder = mha_model_describe(model)};
    if (!encoder) {
        verify_fault(e, "results of an encoder-decoder require an encoder-decoder (got %s)", c.decoder->family);
        return;
    }
    c.encoder = mha_model_describe(encoder);
    of(&c, model);
    verify_release(&c.memory);
}

void verify_seq2seq(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome)
{
    check(e, file, model, outcome, check_single);
}

void verify_seq2seq_padded(const verify_entry *e, const mha_file *file, const mha_model *model, verify_case *outcome)
{
    check(e, file, model, outcome, check_padded);
}
