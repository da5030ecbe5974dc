/* model_folder.h - explains why a path is not a model folder: a pickle, a model name on the hub. */
#ifndef CLI_INPUT_MODEL_FOLDER_H
#define CLI_INPUT_MODEL_FOLDER_H

#include "command.h"

/* Returns CLI_REFUSED unless `name` is a folder or a GGUF file; the message names the kind of file and where to get
 * model folders. */
int model_folder_check(const cli_session *session, const char *name);
/* Returns CLI_REFUSED unless the folder has config.json and, if `weights` are required, readable weights. */
int model_folder_check_files(const cli_session *session, const char *folder, bool weights);

/* Returns true for a folder with config.json but without tokenizer.json; the model then accepts only token ids. */
bool model_folder_lacks_tokenizer(const char *folder);

#endif
