"""Errors of pipelines that a user can do something about."""


class PipelineError(Exception):
    """A pipeline cannot continue; the text says what happened, why, and what to do."""


class LakeError(PipelineError):
    """A table of the lake cannot be read or written."""


class LagError(PipelineError):
    """The lag of groups cannot be computed."""
