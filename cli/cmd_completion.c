/* cmd_completion.c - `mha completion SHELL`: prints a completion script for a shell, generated from the tables of
 * commands and options. */
#include "commands.h"
#include "option_values.h"
#include "options.h"
#include "output.h"
#include <string.h>

/* Calls `row` for each option of a command. */
static void each_option(FILE *out, const cli_command *command,
                        void (*row)(FILE *out, const cli_command *command, const struct poptOption *option))
{
    struct poptOption table[CLI_MAX_OPTIONS];
    cli_option_table(command, table);
    for (const struct poptOption *o = table; o->longName || o->shortName; o++)
        row(out, command, o);
}

/* Writes text escaped for single quotes in all three shells. Help texts contain no control characters. */
static void put_quoted(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else
            fputc(*text, out);
    }
}

/* Prints `before` and the values of the command's argument, separated by spaces; prints nothing if it has no values. */
static void put_words(FILE *out, const cli_command *command, const char *before)
{
    for (int n = 0; command->words && command->words[n]; n++)
        fprintf(out, "%s%s", n > 0 ? " " : before, command->words[n]);
}

static void put_commands(FILE *out)
{
    for (int i = 0; cli_commands[i]; i++)
        fprintf(out, " %s", cli_commands[i]->name);
}

/* ---- bash ---- */

static void bash_option(FILE *out, const cli_command *command, const struct poptOption *o)
{
    (void)command;
    if (o->shortName) fprintf(out, " -%c", o->shortName);
    if (o->longName) fprintf(out, " --%s", o->longName);
}

/* Prints the case branch that completes an option's value from words, or from models and folders. Bash itself completes
 * paths. */
static void bash_value(FILE *out, const cli_command *command, const struct poptOption *o)
{
    char words[OPTION_VALUES];
    const option_kind kind = option_kind_of(command, o);
    if (kind == OPTION_FLAG) return;
    fputs("        ", out);
    if (o->shortName) fprintf(out, "'%s -%c'%s", command->name, o->shortName, o->longName ? "|" : "");
    if (o->longName) fprintf(out, "'%s --%s'", command->name, o->longName);
    if (kind == OPTION_WORD) fprintf(out, ") words=\"%s\" value=1 ;;\n", option_values(command, o, words));
    if (kind == OPTION_MODEL) fprintf(out, ") words=\"%s\" value=1 folders=1 ;;\n", option_models);
    if (kind == OPTION_PATH) fputs(") value=1 ;;\n", out);
    if (kind == OPTION_FREE) fputs(") return ;;\n", out);
}

static void bash(FILE *out)
{
    fputs("# bash completion for mha:  source <(mha completion bash)\n"
          "_mha() {\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words= value= folders=\n"
          "    COMPREPLY=()\n"
          "    if [ \"$current\" = = ]; then current=\n"
          "    elif [ \"$before\" = = ]; then before=${COMP_WORDS[COMP_CWORD-2]}\n"
          "    fi\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        words=\"--help --version help version",
          out);
    put_commands(out);
    fputs("\"\n    elif [ \"${COMP_WORDS[1]}\" = help ]; then\n        words=\"", out);
    put_commands(out);
    fputs("\"\n    else\n        case \"${COMP_WORDS[1]} $before\" in\n", out);
    for (int i = 0; cli_commands[i]; i++)
        each_option(out, cli_commands[i], bash_value);
    fputs("        esac\n    fi\n    if [ -n \"$words$value\" ]; then :\n"
          "    elif [[ $current == -* ]]; then\n        case ${COMP_WORDS[1]} in\n",
          out);
    for (int i = 0; cli_commands[i]; i++) {
        fprintf(out, "        %s) words=\"", cli_commands[i]->name);
        each_option(out, cli_commands[i], bash_option);
        fputs("\" ;;\n", out);
    }
    fputs("        esac\n    else\n        case ${COMP_WORDS[1]} in\n", out);
    for (int i = 0; cli_commands[i]; i++) {
        if (!cli_commands[i]->words) continue;
        fprintf(out, "        %s) words=\"", cli_commands[i]->name);
        put_words(out, cli_commands[i], "");
        fputs("\" ;;\n", out);
    }
    fputs("        esac\n    fi\n"
          "    [ -z \"$words\" ] || mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
          "    [ -z \"$folders\" ] || mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(compgen -d -- \"$current\")\n"
          "}\n"
          "complete -o default -F _mha mha\n",
          out);
}

/* ---- zsh ---- */

static void zsh_option(FILE *out, const cli_command *command, const struct poptOption *o)
{
    char flag[2][72] = {"", ""}, words[OPTION_VALUES];
    const option_kind kind = option_kind_of(command, o);
    if (o->shortName) snprintf(flag[0], sizeof flag[0], "-%c", o->shortName);
    if (o->longName) snprintf(flag[1], sizeof flag[1], "--%s", o->longName);
    for (int i = 0; i < 2; i++) {
        if (!flag[i][0]) continue;
        fprintf(out, " \\\n            '%s[", flag[i]);
        put_quoted(out, o->descrip);
        fputc(']', out);
        if (kind != OPTION_FLAG) fprintf(out, ":%s:", o->argDescrip);
        if (kind == OPTION_WORD) fprintf(out, "(%s)", option_values(command, o, words));
        if (kind == OPTION_MODEL) fputs("_mha_models", out);
        if (kind == OPTION_PATH) fputs("_files", out);
        if (kind == OPTION_FREE) fputc(' ', out);
        fputc('\'', out);
    }
}

static void zsh(FILE *out)
{
    fprintf(out,
            "#compdef mha\n# zsh completion for mha: put this in a file _mha in a folder of $fpath\n"
            "_mha_models() { _alternative 'names:model:(%s)' 'folders:folder:_files -/'; }\n",
            option_models);
    fputs("_mha() {\n"
          "    local -a commands\n"
          "    commands=('help:show the options of a command' 'version:show the version and the instruction sets'",
          out);
    for (int i = 0; cli_commands[i]; i++) {
        fprintf(out, "\n        '%s:", cli_commands[i]->name);
        put_quoted(out, cli_commands[i]->summary);
        fputc('\'', out);
    }
    fputs(")\n    if (( CURRENT == 2 )) || [[ ${words[2]} == help ]]; then\n"
          "        _describe command commands\n        return\n    fi\n    case ${words[2]} in\n",
          out);
    for (int i = 0; cli_commands[i]; i++) {
        fprintf(out, "    %s)\n        _arguments", cli_commands[i]->name);
        each_option(out, cli_commands[i], zsh_option);
        fputs(" \\\n            '*:argument:", out);
        put_words(out, cli_commands[i], "(");
        fputs(cli_commands[i]->words ? ")' ;;\n" : "_files' ;;\n", out);
    }
    fputs("    esac\n}\n_mha \"$@\"\n", out);
}

/* ---- fish ---- */

static void fish_option(FILE *out, const cli_command *command, const struct poptOption *o)
{
    char words[OPTION_VALUES];
    const option_kind kind = option_kind_of(command, o);
    fprintf(out, "complete -c mha -n '__fish_seen_subcommand_from %s'", command->name);
    if (o->shortName) fprintf(out, " -s %c", o->shortName);
    if (o->longName) fprintf(out, " -l %s", o->longName);
    if (kind == OPTION_WORD) fprintf(out, " -xa '%s'", option_values(command, o, words));
    if (kind == OPTION_MODEL) fprintf(out, " -xa '%s (__fish_complete_directories)'", option_models);
    if (kind == OPTION_PATH) fputs(" -rF", out);
    if (kind == OPTION_FREE) fputs(" -x", out);
    fputs(" -d '", out);
    put_quoted(out, o->descrip);
    fputs("'\n", out);
}

static void fish(FILE *out)
{
    fputs("# fish completion for mha:  mha completion fish > ~/.config/fish/completions/mha.fish\n"
          "complete -c mha -n __fish_use_subcommand -f -a 'help version'\n"
          "complete -c mha -n '__fish_seen_subcommand_from help' -f -a '",
          out);
    put_commands(out);
    fputs("'\n", out);
    for (int i = 0; cli_commands[i]; i++) {
        fprintf(out, "complete -c mha -n __fish_use_subcommand -f -a %s -d '", cli_commands[i]->name);
        put_quoted(out, cli_commands[i]->summary);
        fputs("'\n", out);
        if (cli_commands[i]->words) {
            fprintf(out, "complete -c mha -n '__fish_seen_subcommand_from %s' -f -a '", cli_commands[i]->name);
            put_words(out, cli_commands[i], "");
            fputs("'\n", out);
        }
        each_option(out, cli_commands[i], fish_option);
    }
}

static const char *const shells[] = {"bash", "zsh", "fish", NULL};

static int run(cli_session *session)
{
    static void (*const print[])(FILE *out) = {bash, zsh, fish};
    for (size_t i = 0; session->arg_count == 1 && i < sizeof print / sizeof *print; i++) {
        if (strcmp(session->args[0], shells[i]) != 0) continue;
        print[i](session->out);
        return CLI_DONE;
    }
    return session->arg_count == 1
               ? cli_usage(session, "the argument must be one of bash, zsh, fish (got \"%s\")",
                           cli_shown(session->args[0]))
               : cli_usage(session, "the argument must be one of bash, zsh, fish (got %d arguments)",
                           session->arg_count);
}

const cli_command cli_completion = {
    .name = "completion",
    .summary = "print a completion script for the shell",
    .usage = "bash|zsh|fish",
    .details = "The script completes commands, options, option values from a fixed set, models and file names.",
    .words = shells,
    .examples = "source <(mha completion bash)\n"
                "mha completion fish >~/.config/fish/completions/mha.fish\n",
    .run = run,
};
