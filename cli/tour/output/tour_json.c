/* tour_json.c - writes a tour as JSON. Numbers have nine digits, so that every f32 round-trips. */
#include "output.h"
#include "tour/output/tour_print.h"

static json_t *tensor_json(const tour_tensor *tensor)
{
    json_t *shape = json_array(), *values = json_array();
    for (int n = 0; n < tensor->rank; n++)
        json_array_append_new(shape, json_integer(tensor->shape[n]));
    for (int64_t n = 0; n < tensor->count; n++)
        json_array_append_new(values, tensor->look == TOUR_WHOLE ? json_integer((json_int_t)tensor->values[n])
                                                                 : cli_real((double)tensor->values[n]));
    json_t *words = tensor->words ? json_array() : NULL;
    for (int64_t n = 0; n < tensor->word_count; n++)
        json_array_append_new(words, json_string(tensor->words[n]));
    return json_pack("{s:s, s:o, s:o, s:o*}", "name", tensor->name, "shape", shape, "values", values, "words", words);
}

static json_t *step_json(const tour_step *step)
{
    json_t *tensors = json_array(), *counts = json_array();
    for (int n = 0; n < step->tensors_used; n++)
        json_array_append_new(tensors, tensor_json(&step->tensors[n]));
    for (int n = 0; n < step->counts_used; n++)
        json_array_append_new(counts, json_pack("{s:s, s:I, s:I}", "name", step->counts[n].name, "parameters",
                                                (json_int_t)step->counts[n].parameters, "flops",
                                                (json_int_t)step->counts[n].flops));
    return json_pack("{s:s, s:s, s:s?, s:o, s:o}", "title", step->title, "text", step->text, "call", step->call,
                     "tensors", tensors, "counts", counts);
}

json_t *tour_to_json(const tour *t)
{
    json_t *steps = json_array();
    for (int n = 0; n < t->step_count; n++)
        json_array_append_new(steps, step_json(&t->steps[n]));
    return json_pack("{s:s, s:s, s:s, s:o}", "name", t->name, "summary", t->summary, "example", t->example, "steps",
                     steps);
}
