/* model_name.h - finds the folders of the named models "minilm" and "builtin", and shortens paths of models. */
#ifndef CLI_MODEL_NAME_H
#define CLI_MODEL_NAME_H

#include <limits.h>
#include <stdbool.h>

/* Finds ${XDG_CACHE_HOME:-$HOME/.cache}/mha/minilm, where `./run fetch minilm` stores the model; false if it does
 * not exist. */
bool cli_find_minilm(char path[PATH_MAX]);
/* Finds PREFIX/share/mha/builtin for the program PREFIX/bin/mha, in a build folder or an installation. */
bool cli_find_builtin(char path[PATH_MAX]);
/* Stores the folder of a named model in `path` and returns it; if there is no such folder, returns `name`. */
const char *cli_model_folder(const char *name, char path[PATH_MAX]);
/* Returns the last component of a path, with any trailing slashes. */
const char *cli_last_component(const char *path);

#endif
