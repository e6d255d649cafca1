"""The command ``barnabas-pipeline``.

`commands` declares the commands, `run` executes one; nothing of Spark is imported before the command line is valid.
Nothing else imports this package but demos.
"""

from barnabas_pipeline.cli.run import main

__all__ = ["main"]
