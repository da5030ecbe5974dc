/* live_state.c - checks the state of `mha live --state`: NAME=VALUE parts joined by &, percent-encoded, as in the
 * address of the page. */
#include "live/live_page.h"
#include "output.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { STATE_MAX = 1 << 20 };

const char *live_state_fragment(const char *state)
{
    const char *hash = strrchr(state, '#');
    return hash ? hash + 1 : state;
}

/* Returns the part after a part, or NULL. */
static const char *next_part(const char *part)
{
    const char *end = strchr(part, '&');
    return end ? end + 1 : NULL;
}

/* Returns the first part with the name of `part`, which may be `part`. */
static const char *first_named(const char *fragment, const char *part, size_t length)
{
    for (const char *at = fragment; at; at = next_part(at))
        if (strcspn(at, "=&") == length && memcmp(at, part, length) == 0) return at;
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

/* Checks a part: its name must not occur before, and its value must be UTF-8. */
static int check_part(const cli_session *s, const char *fragment, const char *part)
{
    const size_t length = strcspn(part, "=&");
    if (first_named(fragment, part, length) != part)
        return cli_usage(s, "--state must not repeat a name (got \"%s\")", cli_shown_start(part, 24));
    if (decodes(part + length + (part[length] == '='))) return CLI_DONE;
    return cli_usage(s, "--state must have values in UTF-8 (got \"%s\")", cli_shown_start(part, 24));
}

int live_state_check(const cli_session *s, const char *state)
{
    const char *fragment = live_state_fragment(state), *wrong = invalid_in(fragment);
    if (strlen(fragment) > STATE_MAX)
        return cli_usage(s, "--state must have at most %d bytes (got %zu)", STATE_MAX, strlen(fragment));
    if (wrong)
        return cli_usage(s, "--state must be percent-encoded, as in the address of a page (got \"%s\" at byte %lld)",
                         cli_shown_start(wrong, 24), (long long)(wrong - fragment));
    const char *text = first_named(fragment, "text", 4);
    if (!text || text[4] != '=') return cli_usage(s, "--state must contain text= (got \"%s\")", cli_shown(fragment));
    int code = CLI_DONE;
    for (const char *part = fragment; part && code == CLI_DONE; part = next_part(part))
        code = check_part(s, fragment, part);
    return code;
}
