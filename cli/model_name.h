/* model_name.h - the folders of the models that have a name: "minilm" and "builtin". */
#ifndef CLI_MODEL_NAME_H
#define CLI_MODEL_NAME_H

#include <limits.h>
#include <stdbool.h>

/* ${XDG_CACHE_HOME:-$HOME/.cache}/mha/minilm, where `./run fetch minilm` puts it; false if it does not exist. */
bool cli_find_minilm(char path[PATH_MAX]);
/* PREFIX/share/mha/builtin for the program PREFIX/bin/mha, in a build folder as after installation. */
bool cli_find_builtin(char path[PATH_MAX]);
/* The folder of a named model, stored in `path`; otherwise, or if that folder does not exist, `name` itself. */
const char *cli_model_folder(const char *name, char path[PATH_MAX]);

#endif
