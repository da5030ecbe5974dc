/* commands.h - the table of commands, in the order of `mha --help`. A new command requires one line here and one
 * file. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "command.h"

/* X(name): the file cmd_<name>.c defines `const cli_command cli_<name>`. */
#define CLI_COMMAND_MAP(X) \
    X(demo)                \
    X(info)                \
    X(tokenize)            \
    X(tokenizer)           \
    X(train)               \
    X(embed)               \
    X(score)               \
    X(generate)            \
    X(transcribe)          \
    X(logits)              \
    X(heads)               \
    X(attribute)           \
    X(lens)                \
    X(circuit)             \
    X(report)              \
    X(live)                \
    X(draw)                \
    X(patch)               \
    X(knockout)            \
    X(prune)               \
    X(regroup)             \
    X(diff)                \
    X(convert)             \
    X(plan)                \
    X(tour)                \
    X(verify)              \
    X(bench)               \
    X(completion)

#define CLI__X(name) extern const cli_command cli_##name;
CLI_COMMAND_MAP(CLI__X)
#undef CLI__X

/* All commands, terminated by NULL (main.c). */
extern const cli_command *const cli_commands[];

#endif
