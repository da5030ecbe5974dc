/* save_case.c - implements save_case.h. */
#include "support/model/save_case.h"

#include "support/check.h"
#include "support/model/model_case.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *save_path_of(save_path *r, const char *folder, const char *name)
{
    snprintf(r->text, sizeof r->text, "%s/%s", folder, name);
    return r->text;
}

void save_model(const mha_model *model, const char *folder, const mha_model_save_options *options)
{
    mha_error err = {0};
    if (mha_model_save(model, folder, options, &err) != MHA_OK) fail_msg("%s", err.message);
}

void save_refused(const mha_model *model, const char *folder, const mha_model_save_options *options, mha_status status,
                  const char *part)
{
    mha_error err = {0};
    assert_int_equal(mha_model_save(model, folder, options, &err), status);
    if (!strstr(err.message, part)) fail_msg("message must contain \"%s\" (got \"%s\")", part, err.message);
}

uint64_t save_hash(const mha_model *model)
{
    const int32_t ids[6] = {1, 2, 3, 50, 60, 70};
    const int64_t count = 6 * mha_model_describe(model)->hidden;
    float *x = calloc((size_t)count, sizeof *x);
    const mha_model_input input = {.size = sizeof input, .batch = 1, .length = 6, .ids = ids};
    const mha_model_output output = {.size = sizeof output, .last_hidden = x};
    uint64_t print = 1469598103934665603u;
    assert_int_equal(mha_model_forward(model, &input, &output, NULL), MHA_OK);
    for (size_t n = 0; n < (size_t)count * sizeof *x; n++)
        print = (print ^ ((unsigned char *)x)[n]) * 1099511628211u;
    free(x);
    return print;
}

uint64_t save_hash_in(const char *folder)
{
    mha_model *model = case_open(NULL, folder);
    const uint64_t print = save_hash(model);
    mha_model_free(model);
    return print;
}

char *save_others_in(const char *folder, const char *but)
{
    static char names[1000];
    DIR *entries = opendir(folder);
    names[0] = '\0';
    assert_non_null(entries);
    for (struct dirent *e = readdir(entries); e; e = readdir(entries))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && strcmp(e->d_name, but) != 0)
            strncat(strncat(names, e->d_name, 400), " ", 2);
    closedir(entries);
    return names[0] ? names : NULL;
}
