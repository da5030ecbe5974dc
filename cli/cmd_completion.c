/* cmd_completion.c - `mha completion SHELL`: what the shell needs to complete mha, made from the command and option
 * tables. */
#include <string.h>

#include "commands.h"
#include "options.h"
#include "output.h"

/* Calls `row` for each option of a command. */
static void each_option(FILE *out, const cli_command *command,
                        void (*row)(FILE *out, const cli_command *command, const struct poptOption *option))
{
    struct poptOption table[CLI_MAX_OPTIONS];
    cli_option_table(command, table);
    for (const struct poptOption *o = table; o->longName || o->shortName; o++)
        row(out, command, o);
}

static bool takes_value(const struct poptOption *option)
{
    return (option->argInfo & POPT_ARG_MASK) != POPT_ARG_NONE;
}

/* A value that is a path: its placeholder says so. */
static bool takes_path(const struct poptOption *option)
{
    static const char *const paths[] = {"MODEL", "FILE", "OUT", "DIR", "FOLDER"};
    for (size_t i = 0; option->argDescrip && i < sizeof paths / sizeof *paths; i++)
        if (strcmp(option->argDescrip, paths[i]) == 0) return true;
    return false;
}

/* Text inside single quotes of any of the three shells; our own help texts, which hold no control characters. */
static void put_quoted(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else
            fputc(*text, out);
    }
}

/* What an argument of the command may be, in a list that begins with `before`. */
static void put_words(FILE *out, const cli_command *command, const char *before)
{
    for (int n = 0; command->words && command->words[n]; n++)
        fprintf(out, "%s%s", n > 0 ? " " : before, command->words[n]);
}

/* ---- bash ---- */

static void bash_option(FILE *out, const cli_command *command, const struct poptOption *o)
{
    (void)command;
    if (o->shortName) fprintf(out, " -%c", o->shortName);
    if (o->longName) fprintf(out, " --%s", o->longName);
}

static void bash(FILE *out)
{
    fputs("# bash completion for mha:  source <(mha completion bash)\n"
          "_mha() {\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} words=\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        words=\"--help --version",
          out);
    for (int i = 0; cli_commands[i]; i++)
        fprintf(out, " %s", cli_commands[i]->name);
    fputs("\"\n    elif [[ $current == -* ]]; then\n        case ${COMP_WORDS[1]} in\n", out);
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
          "}\n"
          "complete -o default -F _mha mha\n",
          out);
}

/* ---- zsh ---- */

static void zsh_option(FILE *out, const cli_command *command, const struct poptOption *o)
{
    (void)command;
    char flag[2][72] = {"", ""};
    if (o->shortName) snprintf(flag[0], sizeof flag[0], "-%c", o->shortName);
    if (o->longName) snprintf(flag[1], sizeof flag[1], "--%s", o->longName);
    for (int i = 0; i < 2; i++) {
        if (!flag[i][0]) continue;
        fprintf(out, " \\\n            '%s[", flag[i]);
        put_quoted(out, o->descrip);
        fputc(']', out);
        if (takes_value(o)) fprintf(out, ":%s:%s", o->argDescrip, takes_path(o) ? "_files" : " ");
        fputc('\'', out);
    }
}

static void zsh(FILE *out)
{
    fputs("#compdef mha\n# zsh completion for mha: put this in a file _mha in a folder of $fpath\n"
          "_mha() {\n"
          "    if (( CURRENT == 2 )); then\n"
          "        local -a commands\n"
          "        commands=(",
          out);
    for (int i = 0; cli_commands[i]; i++) {
        fprintf(out, "\n            '%s:", cli_commands[i]->name);
        put_quoted(out, cli_commands[i]->summary);
        fputc('\'', out);
    }
    fputs(")\n        _describe command commands\n        return\n    fi\n    case ${words[2]} in\n", out);
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
    fprintf(out, "complete -c mha -n '__fish_seen_subcommand_from %s'", command->name);
    if (o->shortName) fprintf(out, " -s %c", o->shortName);
    if (o->longName) fprintf(out, " -l %s", o->longName);
    if (takes_value(o)) fputs(takes_path(o) ? " -rF" : " -x", out);
    fputs(" -d '", out);
    put_quoted(out, o->descrip);
    fputs("'\n", out);
}

static void fish(FILE *out)
{
    fputs("# fish completion for mha:  mha completion fish > ~/.config/fish/completions/mha.fish\n", out);
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
    return cli_usage(session, "name one shell: bash, zsh or fish");
}

const cli_command cli_completion = {
    .name = "completion",
    .summary = "print the completion of a shell",
    .usage = "bash|zsh|fish",
    .details = "For this session of bash:  source <(mha completion bash)",
    .words = shells,
    .run = run,
};
