/* check.c - implements the checks of messages of check.h. */
#include "support/check.h"

#include <string.h>

bool check_has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    if (length == 0) return true;
    for (const char *at = text; (at = strstr(at, word)); at++) {
        bool before = at > text && (at[-1] == '-' || at[-1] == '.' || (at[-1] >= '0' && at[-1] <= '9'));
        bool after = at[length] >= '0' && at[length] <= '9';
        if (!before && !after) return true;
    }
    return false;
}
