/* live_state.c - checks the state of `mha live --state`: NAME=VALUE parts joined by &, percent-encoded, as in the
 * address of the page. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "live/live_page.h"
#include "output.h"

enum { MOST_STATE = 1 << 20 };

const char *live_state_fragment(const char *state)
{
    const char *hash = strrchr(state, '#');
    return hash ? hash + 1 : state;
}

/* Returns the start of the value of `text`, or NULL. */
static const char *text_of(const char *fragment)
{
    for (const char *part = fragment; part; part = strchr(part, '&') ? strchr(part, '&') + 1 : NULL)
        if (strncmp(part, "text=", 5) == 0) return part + 5;
    return NULL;
}

/* Returns the first character that an address cannot contain: a space, a control or another byte than ASCII, a quote,
 * an angle bracket, or % without two digits. NULL = none. */
static const char *invalid_in(const char *fragment)
{
    for (const char *c = fragment; *c; c++)
        if (*c <= ' ' || *c >= 127 || strchr("\"<>`", *c) ||
            (*c == '%' && !(isxdigit((unsigned char)c[1]) && isxdigit((unsigned char)c[2]))))
            return c;
    return NULL;
}

/* Returns true if a percent-encoded value, up to & or the end, is UTF-8. */
static bool decodes(const char *value)
{
    const size_t length = strcspn(value, "&");
    char *bytes = malloc(length + 1);
    size_t count = 0;
    for (size_t n = 0; bytes && n < length; n++) {
        const char digits[] = {value[n + 1], value[n] == '%' ? value[n + 2] : '\0', '\0'};
        bytes[count++] = value[n] == '%' ? (char)strtol(digits, NULL, 16) : value[n];
        if (value[n] == '%') n += 2;
    }
    json_t *text = bytes ? json_stringn(bytes, count) : NULL;
    const bool valid = text != NULL;
    json_decref(text);
    free(bytes);
    return valid;
}

int live_state_check(const cli_session *s, const char *state)
{
    const char *fragment = live_state_fragment(state), *text = text_of(fragment), *wrong = invalid_in(fragment);
    if (strlen(fragment) > MOST_STATE)
        return cli_usage(s, "--state must have at most %d bytes (got %zu)", MOST_STATE, strlen(fragment));
    if (wrong)
        return cli_usage(s, "--state must be percent-encoded, as in the address of a page (got \"%s\" at byte %lld)",
                         cli_shown_start(wrong, 24), (long long)(wrong - fragment));
    if (!text) return cli_usage(s, "--state must contain text= (got \"%s\")", cli_shown(fragment));
    return decodes(text) ? CLI_DONE : cli_usage(s, "the text of --state must be UTF-8");
}
