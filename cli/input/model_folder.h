/* model_folder.h - what a model must be, said of names that are something else: a GGUF file, a pickle, a name of the
 * hub. */
#ifndef CLI_INPUT_MODEL_FOLDER_H
#define CLI_INPUT_MODEL_FOLDER_H

#include "command.h"

/* Is `name` a folder? If not, CLI_REFUSED with a message that says what it is and where folders come from. */
int model_folder_check(const cli_session *session, const char *name);
/* Does the folder have config.json and, if `weights` are needed, weights that can be read? */
int model_folder_check_files(const cli_session *session, const char *folder, bool weights);

#endif
