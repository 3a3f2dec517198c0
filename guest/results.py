"""What many like runs have told: a run that ended goes on where it was."""

import json


class Results:
    """A line of JSON each, in a file or, without one, as long as this runs. What was told under
    other settings does not count."""

    def __init__(self, file, settings):
        self.file, self.settings, self.told = file, settings, {}
        if file is None:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        text = file.read_text() if file.exists() else ""
        if text and not text.endswith("\n"):
            # It was killed within a line; the next must not go on there.
            text = text[:text.rfind("\n") + 1]
            file.write_text(text)
        for record in map(json.loads, text.splitlines()):
            if record["settings"] == settings:
                self.told[tuple(record["run"])] = record

    def add(self, *run, **told):
        """Keeps what a run has told."""
        record = {"run": run, **told, "settings": self.settings}
        if self.file is not None:
            with self.file.open("a") as file:
                file.write(json.dumps(record) + "\n")
        self.told[run] = record

    def of(self, *first):
        """The records of the runs that begin so, by the last part of their names."""
        return {run[-1]: record for run, record in self.told.items() if run[:-1] == first}

    def left(self, *first, count):
        """Which of so many numbered runs are not there yet."""
        return [number for number in range(count) if number not in self.of(*first)]
