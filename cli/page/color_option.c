/* color_option.c - see color_option.h. */
#include "page/color_option.h"

#include "output.h"
#include <string.h>

int cli_color_scale(const cli_session *s, const char *name, color_scale *scale)
{
    *scale = name && strcmp(name, "linear") == 0 ? COLOR_LINEAR : COLOR_ROOT;
    if (!name || *scale == COLOR_LINEAR || strcmp(name, "root") == 0) return CLI_DONE;
    return cli_usage(s, "--colors must be one of root, linear (got \"%s\")", cli_shown(name));
}
