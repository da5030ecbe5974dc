/* test_model_gguf_hostile.c - tests that GGUF files with contradictory keys, tensors that the model would ignore, or
 * missing or misshapen tensors are refused, with a message that contains the names of the file. */
#include "model/model_struct.h"
#include "support/check.h"
#include "support/files.h"
#include "support/gguf/gguf_case.h"
#include "support/gguf/gguf_edit.h"
#include <stdio.h>
#include <string.h>

enum { EDITS = 4, EXPERTS = 1024, LAYERS = 257 };

#define U32(name, value)                                    \
    {                                                       \
        .key = name, .type = MHA__GGUF_U32, .number = value \
    }
#define F32(name, value)                                    \
    {                                                       \
        .key = name, .type = MHA__GGUF_F32, .number = value \
    }
#define TEXT(name, value)                                    \
    {                                                        \
        .key = name, .type = MHA__GGUF_STRING, .text = value \
    }
#define VECTOR(name, n)                           \
    {                                             \
        .tensor = name, .rank = 1, .shape = { n } \
    }
#define NONE(name)     \
    {                  \
        .tensor = name \
    }

typedef struct edited_file {
    const char *from;
    gguf_edit edits[EDITS]; /* up to the first without names */
    const char *says;       /* NULL = the file opens */
} edited_file;

static void open_edited(const char *from, const gguf_edit *edits, int count, const char *says)
{
    char path[300];
    mha_model *model = NULL;
    mha_error err = {0};
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1};
    const char *work = files_folder(), *file = files_path(work, "edited.gguf");
    snprintf(path, sizeof path, "%s/gguf/%s.gguf", MHA_TEST_DATA, from);
    gguf_edited(path, edits, count, file);
    const mha_status status = mha_model_open(NULL, file, &o, &model, &err);
    if (!says && status != MHA_OK) fail_msg("%s: must open (got \"%s\")", from, err.message);
    if (says && (status == MHA_OK || !strstr(err.message, says) || !strstr(err.message, "edited.gguf")))
        fail_msg("%s: message must contain \"%s\" (got \"%s\")", from, says, err.message);
    mha_model_free(model);
    files_remove(work);
}

static void open_all(const edited_file *files, size_t count)
{
    for (size_t n = 0; n < count; n++) {
        int edits = 0;
        while (edits < EDITS && (files[n].edits[edits].key || files[n].edits[edits].tensor))
            edits++;
        open_edited(files[n].from, files[n].edits, edits, files[n].says);
    }
}

static void rotation_that_would_be_ignored(void **state)
{
    (void)state;
    static const edited_file files[] = {
        {"llama", {VECTOR("rope_factors_long.weight", 4)}, "\"rope_factors_long.weight\" must be absent in a llama of"},
        {"llama", {VECTOR("rope_factors_short.weight", 4)}, "\"rope_factors_short.weight\" must be absent in a llama"},
        {"granite",
         {VECTOR("rope_factors_long.weight", 4)},
         "\"rope_factors_long.weight\" must be absent in a granite"},
        {"olmo2", {VECTOR("rope_factors_short.weight", 1)}, "\"rope_factors_short.weight\" must be absent in a olmo2"},
        {"nomic-bert", {VECTOR("rope_freqs.weight", 1)}, "\"rope_freqs.weight\" must be absent in a nomic_bert of"},
        {"gpt2", {VECTOR("rope_freqs.weight", 1)}, "\"rope_freqs.weight\" must be absent in a gpt2 of"},
        {"phi3", {VECTOR("rope_freqs.weight", 3)}, "\"rope_freqs.weight\" must be absent in a phi3 of"},
        {"llama", {VECTOR("rope_freqs.weight", 1)}, "\"rope_freqs.weight\" must have 4 elements (got 1)"},
        {"llama", {VECTOR("rope_freqs.weight", 4)}, NULL},
    };
    open_all(files, sizeof files / sizeof *files);
}

static void contradictory_scaling(void **state)
{
    (void)state;
#define NO_FACTORS NONE("rope_factors_short.weight"), NONE("rope_factors_long.weight")
    static const edited_file files[] = {
        {"phi3",
         {NO_FACTORS, F32("phi3.rope.scaling.attn_factor", 2)},
         "phi3.rope.scaling.attn_factor must be 1 without rope_factors_long.weight (got f32 2)"},
        {"phi3",
         {NO_FACTORS, F32("phi3.rope.scaling.attn_factor", 2), F32("phi3.rope.scaling.factor", 2)},
         "phi3.rope.scaling.attn_factor must be 1 without rope_factors_long.weight (got f32 2)"},
        {"phi3", {NO_FACTORS, F32("phi3.rope.scaling.attn_factor", 1)}, NULL},
        {"phi3", {NONE("rope_factors_long.weight")}, "\"rope_factors_long.weight\" must have 3 elements (got 0)"},
        {"phi3", {NONE("rope_factors_short.weight")}, "\"rope_factors_short.weight\" must have 3 elements (got 0)"},
        {"phi3",
         {TEXT("phi3.rope.scaling.type", "yarn"), F32("phi3.rope.scaling.factor", 2)},
         "rope.scaling.type must be none or longrope with the tensors rope_factors_*.weight (got yarn)"},
        {"phi3",
         {TEXT("phi3.rope.scaling.type", "longrope"), F32("phi3.rope.scaling.factor", 2)},
         "rope.scaling.factor must be 0 or 1 with the tensors rope_factors_*.weight (got f32 2)"},
        {"phi3", {TEXT("phi3.rope.scaling.type", "longrope"), F32("phi3.rope.scaling.factor", 1)}, NULL},
        {"phi3", {F32("phi3.rope.scaling.factor", 1)}, NULL},
        {"llama",
         {TEXT("llama.rope.scaling.type", "yarn"), U32("llama.rope.scaling.original_context_length", 16)},
         "llama.rope.scaling.factor must be a number with rope.scaling.type yarn (got nothing)"},
        {"llama", {TEXT("llama.rope.scaling.type", "yarn"), F32("llama.rope.scaling.factor", 0)}, "factor must be"},
        {"llama", {TEXT("llama.rope.scaling.type", "yarn"), F32("llama.rope.scaling.factor", 2)}, NULL},
    };
    open_all(files, sizeof files / sizeof *files);
}

static void names_and_shapes_of_the_file(void **state)
{
    (void)state;
    static const char up[] = "blk.0.ffn_up_exps.weight";
    static const edited_file files[] = {
        {"mixtral", {NONE(up)}, "tensor \"blk.0.ffn_up_exps.weight\" is missing"},
        {"llama", {NONE("blk.1.attn_v.weight")}, "tensor \"blk.1.attn_v.weight\" is missing"},
        {"mixtral",
         {{.tensor = up, .rank = 3, .shape = {3, 3, 5}}},
         "shape of each matrix of tensor \"blk.0.ffn_up_exps.weight\" must be ["},
        {"mixtral", {{.tensor = up, .rank = 3, .shape = {3, 3, 5}}}, "as config.json requires (got [3, 5])"},
        {"mixtral",
         {{.tensor = up, .rank = 2, .shape = {20, 240}}},
         "\"blk.0.ffn_up_exps.weight\" must have rank 3 and 3 experts (got [20, 240])"},
        {"gpt2",
         {{.tensor = "blk.0.ffn_up.weight", .rank = 2, .shape = {3, 5}}},
         "transposed shape of tensor \"blk.0.ffn_up.weight\" must be ["},
        {"llama",
         {{.tensor = "blk.0.ffn_up.weight", .rank = 2, .shape = {3, 5}}},
         ": shape of tensor \"blk.0.ffn_up.weight\" must be ["},
        {"mixtral", {U32("llama.expert_count", 2000)}, "expert_count must be an integer from 0 to 1024 (got u32 2000)"},
    };
    open_all(files, sizeof files / sizeof *files);
}

/* A tensor of 1,024 experts becomes 1,024 tensors: layers that the model lacks must not, nor more than 2^18. */
static void many_experts(void **state)
{
    (void)state;
    static const edited_file layer = {
        "mixtral",
        {{.tensor = "blk.2.ffn_up_exps.weight", .rank = 3, .shape = {3, 1, 1}}},
        "tensor \"blk.2.ffn_up_exps.weight\" must be absent in a mixtral of 2 layers (got one)"};
    static gguf_edit edits[LAYERS + 2] = {U32("llama.expert_count", EXPERTS), U32("llama.block_count", LAYERS)};
    static char names[LAYERS][40];
    open_all(&layer, 1);
    for (int n = 0; n < LAYERS; n++) {
        snprintf(names[n], sizeof names[n], "blk.%d.ffn_up_exps.weight", n);
        edits[n + 2] = (gguf_edit){.tensor = names[n], .rank = 3, .shape = {EXPERTS, 1, 1}};
    }
    open_edited("mixtral", edits, LAYERS + 2, "tensors, with one per expert, must be at most 262144 (got 263189)");
}

/* Experts with equal element counts but other shapes must not be joined. */
static void experts_of_other_shapes(void **state)
{
    (void)state;
    static const char name[] = "model.layers.1.block_sparse_moe.experts.2.w1.weight";
    char path[300];
    mha_error err = {0};
    snprintf(path, sizeof path, "%s/gguf/mixtral.gguf", MHA_TEST_DATA);
    const char *work = files_folder();
    mha_model *model = gguf_open(path, 1);
    mha_tensor *t = (mha_tensor *)(uintptr_t)mha_file_find(model->shards.file, name);
    assert_non_null(t);
    const int64_t transposed[] = {t->shape[1], t->shape[0]};
    t->shape = transposed;
    assert_int_equal(mha_model_save_gguf(model, files_path(work, "x.gguf"), NULL, &err), MHA_ERR_FORMAT);
    if (!strstr(err.message, "experts.0.w1.weight\" must have the same shape in every expert"))
        fail_msg("message must name the tensor (got \"%s\")", err.message);
    assert_int_equal(files_count(work), 0);
    mha_model_free(model);
    files_remove(work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotation_that_would_be_ignored), cmocka_unit_test(contradictory_scaling),
        cmocka_unit_test(names_and_shapes_of_the_file),   cmocka_unit_test(many_experts),
        cmocka_unit_test(experts_of_other_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
