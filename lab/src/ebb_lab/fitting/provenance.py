"""Which version of the declared files a fit rests on."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Commit:
    """The last commit that changed the files; None where git does not know one of them."""

    id: str | None
    dirty: bool

    def __str__(self) -> str:
        if self.id is None:
            return "not in git"
        return f"commit {self.id[:12]}" + (", changed since" if self.dirty else "")


def commit(files: Sequence[Path]) -> Commit:
    """The commit of these files, in the repository of the first."""
    folder = files[0].resolve().parent
    names = [str(path.resolve()) for path in files]

    def git(*words: str) -> str | None:
        try:
            ended = subprocess.run(
                [shutil.which("git") or "git", "-C", folder, *words, "--", *names],
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return ended.stdout.strip()

    if git("ls-files", "--error-unmatch") is None:
        return Commit(None, True)
    return Commit(git("log", "-1", "--format=%H") or None, bool(git("status", "--porcelain")))
