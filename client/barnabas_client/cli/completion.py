"""`barnabas completion`: generates scripts that complete commands, options and choices, from the parser."""

import argparse
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field
from typing import Final

from barnabas_client.cli.command import Command
from barnabas_client.cli.command_line import CommandLine
from barnabas_client.cli.failures import DONE
from barnabas_client.cli.output import Output


@dataclass(slots=True)
class Place:
    """A place in the tree of commands: what may follow the words before it.

    Attributes:
        words: the words before it.
        commands: the commands that may follow, with their help.
        options: the options that may follow, in all spellings, with their help.
        choices: the possible values of an option, or of an argument for the key "", if they are limited.
        values: the options that take a value.
    """

    words: tuple[str, ...]
    commands: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    choices: dict[str, list[str]] = field(default_factory=dict)
    values: set[str] = field(default_factory=set)

    @property
    def path(self) -> str:
        """The words, separated by spaces."""
        return " ".join(self.words)


def completion(arguments: Namespace, output: Output) -> int:
    """Print the script of a shell."""
    command_line: CommandLine = arguments.command_line
    places = walk(command_line.parser(command_line.every_command()))
    output.lines([_SCRIPTS[arguments.shell](places)])
    return DONE


def walk(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> list[Place]:
    """Return every place of a tree of parsers, the root first."""
    place = Place(words)
    below: list[Place] = []
    for action in _actions(parser):
        if isinstance(action, argparse._SubParsersAction):
            helps = {pseudo.dest: pseudo.help or "" for pseudo in action._choices_actions}
            for name, child in action.choices.items():
                place.commands[name] = helps.get(name, "")
                below += walk(child, (*words, name))
            continue
        for option in action.option_strings:
            place.options[option] = (action.help or "").replace("%%", "%")
            if action.nargs != 0:
                place.values.add(option)
            if action.choices:
                place.choices[option] = [str(one) for one in action.choices]
        if not action.option_strings and action.choices:
            place.choices[""] = [str(one) for one in action.choices]
    return [place, *below]


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return list(parser._actions)


_BASH: Final = r"""# bash completion for barnabas. To use it: eval "$(barnabas completion bash)"
_barnabas() {
    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" path="" word words=""
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "${path:+$path }$word" in
            @PATHS@) path="${path:+$path }$word" ;;
        esac
    done
    case "$path:$previous" in
@CHOICES@
    esac
    if [[ -z $words ]]; then
        case "$path" in
@WORDS@
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _barnabas barnabas"""


def _bash(places: list[Place]) -> str:
    paths = "|".join(_quoted(place.path) for place in places if place.words)
    choices = [
        f"        {_quoted(f'{place.path}:{option}')}) words={_quoted(' '.join(values))} ;;"
        for place in places
        for option, values in place.choices.items()
        if option
    ]
    choices += [
        f"        {_quoted(f'{place.path}:{option}')}) COMPREPLY=(); return ;;"
        for place in places
        for option in sorted(place.values - place.choices.keys())
    ]
    words = [
        f"            {_quoted(place.path)}) words="
        f"{_quoted(' '.join([*place.commands, *place.choices.get('', ()), *place.options]))} ;;"
        for place in places
    ]
    return _BASH.replace("@PATHS@", paths).replace("@CHOICES@", "\n".join(choices)).replace("@WORDS@", "\n".join(words))


_ZSH: Final = r"""#compdef barnabas
# zsh completion for barnabas. To use it: barnabas completion zsh > "${fpath[1]}/_barnabas"
_barnabas() {
    local where="" word previous="${words[CURRENT-1]}"
    local -a found
    for word in "${(@)words[2,CURRENT-1]}"; do
        case "${where:+$where }$word" in
            @PATHS@) where="${where:+$where }$word" ;;
        esac
    done
    case "$where:$previous" in
@CHOICES@
    esac
    if (( ! $#found )); then
        case "$where" in
@WORDS@
        esac
    fi
    _describe barnabas found || _files
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _barnabas "$@"; else compdef _barnabas barnabas; fi"""


def _zsh(places: list[Place]) -> str:
    paths = "|".join(_quoted(place.path) for place in places if place.words)
    choices = [
        f"        {_quoted(f'{place.path}:{option}')}) found=({' '.join(map(_quoted, values))}) ;;"
        for place in places
        for option, values in place.choices.items()
        if option
    ]
    choices += [
        f"        {_quoted(f'{place.path}:{option}')}) _files; return ;;"
        for place in places
        for option in sorted(place.values - place.choices.keys())
    ]
    words = []
    for place in places:
        described = {**place.commands, **dict.fromkeys(place.choices.get("", ()), ""), **place.options}
        items = (_quoted(f"{name}:{help}" if help else name) for name, help in described.items())
        words.append(f"            {_quoted(place.path)}) found=({' '.join(items)}) ;;")
    return _ZSH.replace("@PATHS@", paths).replace("@CHOICES@", "\n".join(choices)).replace("@WORDS@", "\n".join(words))


_FISH: Final = r"""# fish completion for barnabas. To use it: barnabas completion fish | source
function __barnabas_at
    set -l where
    for word in (commandline -opc)[2..-1]
        switch (string join ' ' $where $word)
            case @PATHS@
                set where $where $word
        end
    end
    test (string join ' ' $where) = "$argv"
end"""


def _fish(places: list[Place]) -> str:
    lines = [_FISH.replace("@PATHS@", " ".join(_quoted(place.path) for place in places if place.words))]
    for place in places:
        at = f"complete -c barnabas -n {_quoted(f'__barnabas_at {place.path}'.strip())}"
        lines += (f"{at} -f -a {name} -d {_quoted(help)}" for name, help in place.commands.items())
        lines += (f"{at} -f -a {name}" for name in place.choices.get("", ()))
        for option, help in place.options.items():
            spelling = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            takes = f" -x -a {_quoted(' '.join(place.choices[option]))}" if option in place.choices else ""
            if not takes and option in place.values:
                takes = " -r"
            lines.append(f"{at} {spelling}{takes} -d {_quoted(help)}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Quote text for any of the three shells."""
    return "'" + text.replace("'", "'\\''") + "'"


_SCRIPTS: Final = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=_SCRIPTS)


COMMAND: Final = Command(
    path=("completion",),
    help="print a script that completes commands in a shell",
    add_arguments=_arguments,
    run=completion,
    offline=True,
)
