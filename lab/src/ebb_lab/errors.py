"""The one error of the package: where something is wrong, what it is, and what to do about it."""

import difflib
from collections.abc import Iterable


class LabError(Exception):
    """Wrong usage or input (exit code 2), told in a sentence that names the place and the remedy.

    `where` is a file with its line, an experiment or an option; `what` says what is wrong there;
    `remedy` says what to do.
    """

    exit_code = 2

    def __init__(self, where: str, what: str, remedy: str) -> None:
        super().__init__(where, what, remedy)
        self.where, self.what, self.remedy = where, what, remedy

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. {self.remedy}"


class WorkError(LabError):
    """The work failed for a reason outside the input (exit code 1), such as a full disk."""

    exit_code = 1


class RefusedError(LabError):
    """`ebb` refused a run's profile, workload or options; the same run is refused again."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A remedy for an unknown name: the nearest known one, and all there are."""
    names = [str(each) for each in known]
    near = difflib.get_close_matches(name, names, n=1)
    guess = f"Did you mean '{near[0]}'? " if near else ""
    return f"{guess}There are: {', '.join(names) or 'none'}"
