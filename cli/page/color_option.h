/* color_option.h - the option --colors of commands that draw weights or importance. */
#ifndef CLI_PAGE_COLOR_OPTION_H
#define CLI_PAGE_COLOR_OPTION_H

#include "command.h"
#include "page/color_scale.h"

/* `what`: the colored values, for the help text. */
#define COLOR_OPTION(value, what)                                                                           \
    {                                                                                                       \
        "colors", 0, POPT_ARG_STRING, value, 0, "color scale of " what ": root (default) or linear", "NAME" \
    }

/* Sets *scale to the scale `name`, which may be NULL for the default. Returns CLI_USAGE for an unknown name. */
int cli_color_scale(const cli_session *session, const char *name, color_scale *scale);

#endif
