"""Goes through the blocks of a trial, keeps what is done, and stops where it has to.

A folder holds one trial: `trial.json` says what it is, `runs.jsonl` which blocks are done
(`journal`), `samples/` every line that `ebb run` printed. The same command goes on where it was.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ebb_lab import text
from ebb_lab.errors import LabError, WorkError
from ebb_lab.journal import Journal
from ebb_lab.trial import design as designs
from ebb_lab.trial.design import Arm, Design, Slot
from ebb_lab.trial.running import Interrupted, Runner
from ebb_lab.trial.watching import Breach, MissingError, Seen, Unfit, Watch

#: How often a block is tried before the trial gives up.
TRIES = 3
#: The journal's key of the end by a breach, which is for good.
STOPPED = "stopped"

End = Literal["complete", "stopped", "failed", "interrupted"]


@dataclass(frozen=True)
class Block:
    """A block that counts; `started` is the time of day, in seconds since 1970."""

    pair: int
    arm: Arm
    started: float
    seen: Seen


@dataclass(frozen=True)
class Course:
    """What was done. `end` is why there is no more, `why` says it in words."""

    design: Design
    about: dict[str, Any]
    blocks: tuple[Block, ...]
    #: Blocks that do not count, with the reason.
    uncounted: tuple[tuple[str, str], ...]
    end: End
    why: str


def run(
    design: Design,
    folder: Path,
    runner: Runner,
    *,
    about: dict[str, Any] | None = None,
    clock: Callable[[], float] = time.time,
    say: Callable[[str], None] = lambda _: None,
) -> Course:
    """Runs what is not done yet. `about` is what must be the same when a trial goes on: the
    binary, the configuration, the host."""
    designs.check(design)
    with Journal(folder) as journal:
        about = {"schema": 1, "design": asdict(design), **(about or {})}
        _settle(folder / "trial.json", about)
        going = _Going(design, folder, runner, journal, clock, say)
        end, why = going.all()
        return Course(design, about, going.blocks(), going.uncounted(), end, why)


def _settle(path: Path, about: dict[str, Any]) -> None:
    """Notes what the trial is, or refuses another one. A longer one is another, too: going on
    until something shows is no test."""
    if not path.exists():
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(about, ensure_ascii=False, indent=1))
        partial.replace(path)
        return
    before = json.loads(path.read_text())
    # As JSON has it, where a tuple is a list.
    now = json.loads(json.dumps(about))
    if before != now:
        parts = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        raise LabError(
            str(path.parent),
            f"has a trial with another {', '.join(parts)}",
            "Name another -o; a trial is not changed under way",
        )


@dataclass
class _Going:
    design: Design
    folder: Path
    runner: Runner
    journal: Journal
    clock: Callable[[], float]
    say: Callable[[str], None]

    def all(self) -> tuple[End, str]:
        if STOPPED in self.journal.entries:
            (record,) = self.journal.records(iter([STOPPED]))
            return "stopped", record["result"]
        # What a killed trial may have left is nobody's choice.
        self.runner.restore()
        plan = designs.slots(self.design)
        for slot in plan:
            if self._done(slot):
                continue
            try:
                if why := self._until_counted(slot, len(plan)):
                    return "failed", why
            except Breach as breach:
                return "stopped", str(breach)
            except Interrupted:
                done = sum(map(self._done, plan))
                return "interrupted", f"ended by a signal after {done} of {len(plan)} blocks"
        return "complete", f"all {len(plan)} blocks are done"

    def _until_counted(self, slot: Slot, total: int) -> str:
        """Tries a block; why that is given up, or nothing."""
        why = ""
        for _ in range(TRIES):
            attempt = 1 + sum(key.startswith(f"{slot.name}/") for key in self.journal.entries)
            began = self.clock()
            record: dict[str, Any] = {"key": f"{slot.name}/{attempt}"}
            try:
                seen = self._block(slot, f"{slot.name}-{attempt}")
            except (Unfit, MissingError) as unfit:
                if isinstance(unfit, MissingError) and not self.blocks():
                    raise
                why = str(unfit)
                self.say(f"block {slot.name} does not count: {why}")
                record["error"] = why
            else:
                record["result"] = asdict(Block(slot.pair, slot.arm, began, seen))
                latency = text.number(seen.means["latency_mean_s"] * 1e3)
                left = (total - slot.index - 1) * self.design.block_s
                self.say(
                    f"block {slot.index + 1} of {total}, {slot.arm}: {latency} ms; "
                    f"{text.duration(left)} left"
                )
            self.journal.append(record | {"seconds": self.clock() - began})
            if "error" not in record:
                return ""
        return f"block {slot.name} did not count {TRIES} times: {why}"

    def _block(self, slot: Slot, name: str) -> Seen:
        """One block; whatever ends it, everything is set back before this returns."""
        acts = slot.arm == "policy"
        watch = Watch(self.design, slot.arm, self._reference_s() if acts else None)
        path = self.folder / "samples" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        try:
            with (
                path.open("w", encoding="utf-8") as kept,
                self.runner.block(acts, self.design.block_s) as lines,
            ):
                for line in lines:
                    kept.write(line + "\n")
                    watch.take(line)
        except Breach as breach:
            # Noted before anything else can fail: such a trial does not go on.
            why = f"block {slot.name}: {breach}"
            self.journal.append({"key": STOPPED, "seconds": 0.0, "result": why})
            raise Breach(why) from None
        except OSError as error:
            raise WorkError(str(error.filename or path), f"{error.strerror}", "Mend it") from error
        finally:
            if acts:
                self.runner.restore()
        return watch.end()

    def _reference_s(self) -> float:
        """Mean latency of the native blocks so far, each request counting once."""
        native = [block.seen for block in self.blocks() if block.arm == "native"]
        weights = [seen.means["completed"] * seen.counted_s for seen in native]
        latency = [seen.means["latency_mean_s"] for seen in native]
        return sum(map(float.__mul__, weights, latency)) / sum(weights)

    def _done(self, slot: Slot) -> bool:
        entries = self.journal.entries.items()
        return any(key.startswith(f"{slot.name}/") and not entry.error for key, entry in entries)

    def blocks(self) -> tuple[Block, ...]:
        """Those that count, in the order in which they were done."""
        keys = (key for key in self.journal.entries if key != STOPPED)
        return tuple(
            Block(**result | {"seen": Seen(**result["seen"])})
            for result in (record["result"] for record in self.journal.records(keys))
        )

    def uncounted(self) -> tuple[tuple[str, str], ...]:
        """The blocks that do not count, and why."""
        entries = self.journal.entries.items()
        return tuple((key, entry.error) for key, entry in entries if entry.error)
