"""Explanations as lines of text."""

from barnabas_client.cli.output import Output, Style
from barnabas_explain.explain import ExplanationData
from barnabas_explain.words import moment
from barnabas_protocol.printable import printable


def time_of_day(explanation: ExplanationData) -> str:
    """The time of day of an explanation."""
    return moment(explanation["time"]).partition(" ")[2]


def lines(explanation: ExplanationData, output: Output) -> list[str]:
    """Format an explanation as lines."""
    when = output.styled(moment(explanation["time"]), Style.FAINT)
    out = [f"{when}  {printable(explanation['text'])}"]
    out += (f"    {printable(detail)}" for detail in explanation.get("details", ()))
    if explanation.get("remedy"):
        out.append(f"    {output.styled('To do:', Style.WARN)} {printable(explanation['remedy'])}")
    return out
