/* family.c - the list of model families. Each family_*.c contains the tables of similar families.
 *
 * To add a family, add its keys, its parts and an entry in the list of one of these files. */
#include "model/config/family_tables.h"
#include <stdio.h>
#include <string.h>

static const mha__family_list *const lists[] = {
    &mha__families_bert,    &mha__families_deberta, &mha__families_modernbert, &mha__families_gpt2,
    &mha__families_neox,    &mha__families_llama,   &mha__families_experts,    &mha__families_seq2seq,
    &mha__families_whisper, &mha__families_vision};

const mha__family *mha__family_find(const char *model_type)
{
    for (int n = 0; n < COUNT(lists); n++)
        for (int i = 0; i < lists[n]->count; i++)
            if (strcmp(lists[n]->families[i].name, model_type) == 0) return &lists[n]->families[i];
    return NULL;
}

void mha__family_names(char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = '\0';
    for (int n = 0; n < COUNT(lists); n++)
        for (int i = 0; i < lists[n]->count && used < capacity; i++)
            used +=
                (size_t)snprintf(text + used, capacity - used, "%s%s", used ? ", " : "", lists[n]->families[i].name);
}
