"""Parsers of a command line whose options may stand before, between and after the words of a command.

An error is one line, with a suggestion for a misspelt command, option or choice.
"""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from barnabas_client.cli.failures import USAGE
from barnabas_protocol.suggestions import did_you_mean


class Parser(argparse.ArgumentParser):
    """A parser of a program, of a section of its commands, or of a command."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        # An option in short (`--password P` for `--password-file P`) would change its meaning with a new option.
        self.allow_abbrev = False
        self.register("action", "parsers", _Commands)

    def parse(self, words: Sequence[str], namespace: argparse.Namespace | None = None) -> argparse.Namespace:
        """Parse all of `words`; values that `namespace` has already are kept where `words` do not replace them.

        Raises:
            SystemExit: help was asked for (status 0), or `words` are not valid (status 2).
        """
        self._check_options(words)
        # Options may stand between the arguments of a command, such as `produce TOPIC -K : FILE`.
        parse = self.parse_known_args if self.commands else self.parse_known_intermixed_args
        parsed, rest = parse(words, namespace)
        if rest:
            self.error(f"unexpected argument {rest[0]!r}")
        return parsed

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with status 2."""
        self.exit(USAGE, f"{self.prog.split()[0]}: {message} (see {self.prog} --help)\n")

    @property
    def commands(self) -> dict[str, "Parser"]:
        """The parsers of the words that may follow, by word; empty for the parser of a command."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return dict(action.choices)
        return {}

    def _check_options(self, words: Sequence[str]) -> None:
        """Report an unknown option before anything that follows from it, such as an argument that seems missing."""
        known, has_commands, at = self._option_string_actions, bool(self.commands), 0
        while at < len(words) and words[at] != "--":
            word = words[at]
            at += 1
            if word.startswith("--") and " " not in word:
                name, equals, _ = word.partition("=")
                found = known.get(name)
                if found is None:
                    self.error(f"unknown option {name}{did_you_mean(name, known)}")
                at += found.nargs != 0 and not equals
            elif word in known:
                at += known[word].nargs != 0
            elif has_commands and not word.startswith("-"):
                return

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(one) for one in action.choices]
        if not isinstance(action, argparse._SubParsersAction):
            raise argparse.ArgumentError(
                action, f"{value!r} is not one of {', '.join(choices)}{did_you_mean(str(value), choices)}"
            )
        within = self.prog.partition(" ")[2]
        name = f"{within} {value}".strip()
        close = did_you_mean(str(value), choices)
        inside = [f"{word} {value}" for word, parser in self.commands.items() if value in parser.commands]
        if inside:
            close = f", did you mean {' or '.join(inside)}?"
        elif not close:
            close = f": the commands are {', '.join(choices)}"
        self.error(f"unknown command {name!r}{close}")


if TYPE_CHECKING:
    _SubParsersAction = argparse._SubParsersAction[Parser]
else:  # the class is generic for type checkers only
    _SubParsersAction = argparse._SubParsersAction


class _Commands(_SubParsersAction):
    """Hands the remaining words to the parser of a command, with the values that were parsed so far.

    argparse's own action gives it an empty namespace, so that defaults replace what stands before the command.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        name, *rest = list(values or ())
        self.choices[name].parse(rest, namespace)
