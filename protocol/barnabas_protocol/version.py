"""The version of Barnabas: of the distribution, and so of all its packages."""

VERSION = "0.1.0"
