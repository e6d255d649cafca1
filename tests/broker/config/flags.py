"""The flags of the command, as `read_config` gets them."""

import argparse


def flags(**given: object) -> argparse.Namespace:
    """The flags of a ``broker`` that gets no others than these."""
    return argparse.Namespace(
        **{
            "config": None,
            "set": [],
            "data_dir": None,
            "node_id": None,
            "cluster": None,
            "advertise": None,
            "durable": False,
            "http_token_file": None,
            **given,
        }
    )
