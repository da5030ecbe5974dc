# man_page.awk - converts help texts to a manual page: the summary from `mha --help`, the rest from `mha COMMAND --help`:
# awk -v name=mha-heads -v version=0.1.0 -f man_page.awk MAIN_HELP OWN_HELP
#
# "Usage:" becomes the synopsis, an option a tagged paragraph, and a line "Word...:" before indented lines a heading. Other indented
# lines are not changed. Lines wrapped for the terminal are joined.

# Escapes characters that have a special meaning in troff: backslashes, hyphens, and dots and quotes at the start of a
# line.
function escaped(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    return text ~ /^[.']/ ? "\\&" text : text
}

function finish_option() {
    if (term == "") return
    print ".TP\n\\fB" escaped(term) "\\fR\n" escaped(meaning)
    term = ""
}

function finish_table() {
    if (in_table) print ".fi"
    in_table = 0
}

function finish() {
    finish_option()
    finish_table()
}

function is_option(line) { # Returns whether the line describes an option, for example: -q, --quiet  print no messages
    return line ~ /^ +-[-a-zA-Z]/ && line !~ /^ +- /
}

function section(title) {
    finish()
    if (title != in_section) print ".SH " title
    in_section = title
}

# Writes the heading of a group of options, of the examples or of a table.
function put_heading(title, next_line) {
    if (is_option(next_line)) section("OPTIONS")
    else section(title == "Examples" ? "EXAMPLES" : "DESCRIPTION")
    if (title != "Options" && title != "Examples") print ".SS \"" escaped(title) "\""
}

function put_line(line, next_line) {
    if (in_section != "EXAMPLES" && is_option(line)) { # in examples, an indented option continues a long command line
        section("OPTIONS")
        sub(/^ +/, "", line)
        at = match(line, /   *[^ ]/)
        term = at ? substr(line, 1, at - 1) : line
        meaning = at ? substr(line, at + RLENGTH - 1) : ""
    } else if (term != "" && line ~ /^       /) {
        sub(/^ +/, "", line)
        meaning = meaning (meaning == "" ? "" : " ") line
    } else if (line == "") {
        finish()
        print ".PP"
    } else if (line ~ /^ /) {
        finish_option()
        if (!in_table) print ".nf"
        in_table = 1
        print escaped(line)
    } else if (line ~ /^[A-Z].*:$/ && length(line) < 60 && next_line ~ /^ /) {
        put_heading(substr(line, 1, length(line) - 1), next_line)
    } else {
        section("DESCRIPTION")
        print escaped(line)
    }
}

FNR == 1 { file++ }
file == 1 && /^Commands:/ { in_commands = 1 }
file == 1 && /^$/ { in_commands = 0 }
file == 1 && in_commands && /^  [a-z]/ {
    pages = pages (pages == "" ? "" : ", ") "\\fBmha\\-" $1 "\\fR(1)"
    if (name == "mha-" $1) {
        summary = $0
        sub(/^ +[a-z]+ +/, "", summary)
    }
}
file == 2 { lines[++count] = $0 }

END {
    if (summary == "") summary = "multi-head attention in C"
    # The page has no date, so that the same sources produce the same pages.
    printf ".TH %s 1 \"\" \"mha %s\" \"User Commands\"\n.SH NAME\n%s \\- %s\n", toupper(name), version, escaped(name), escaped(summary)
    usage = lines[1]
    sub(/^Usage: */, "", usage)
    print ".SH SYNOPSIS\n\\fB" escaped(usage) "\\fR"
    for (n = 2; n <= count; n++) put_line(lines[n], lines[n + 1])
    finish()
    print ".SH \"SEE ALSO\"\n" (name == "mha" ? pages : "\\fBmha\\fR(1)")
}
