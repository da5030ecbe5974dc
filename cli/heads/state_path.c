/* state_path.c - see state_path.h. */
#include "heads/state_path.h"

#include "output.h"
#include <stdio.h>
#include <string.h>

char *state_path_given;

int state_path_check(const cli_session *s)
{
    const size_t longest = sizeof((state_path *)0)->path - STATE_PATH_WORD - sizeof ".2.";
    const bool usable = !state_path_given || (*state_path_given && strlen(state_path_given) <= longest);
    return usable ? CLI_DONE : cli_usage(s, "--state requires a file name");
}

const char *state_path_of(int model, const char *word, state_path *memory)
{
    if (!state_path_given) return NULL;
    snprintf(memory->path, sizeof memory->path, "%s%s.%s", state_path_given, model ? ".2" : "", word);
    return memory->path;
}
