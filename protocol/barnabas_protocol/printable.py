"""Text from clients, made safe for terminals and log lines.

A group id, a client id or a reason is whatever its client sent. Printed as it is, an escape sequence clears the
operator's screen or changes its colours, and a newline forges a second log line. All output for people goes through
:func:`printable`: the broker's log lines, the tables and messages of the commands.
"""


def printable(text: str, keep: str = "") -> str:
    r"""Text that a terminal shows as it is: one line, without control characters.

    Printable characters, spaces and backslashes stay, so that a name can be copied from a table. Everything else is
    written as in a Python string: ``\n``, ``\x1b``, ``\u202e``. That includes the marks that reverse the direction of
    text or have no width, and lone surrogates, which cannot be encoded.

    Args:
        text: any text, usually from a client.
        keep: control characters that stay as they are, such as tabs.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else one.encode("unicode_escape").decode() for one in text)
