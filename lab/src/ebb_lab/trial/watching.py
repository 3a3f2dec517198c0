"""One block as `ebb run` tells it: what counts is added up, and the bound of latency is kept."""

import json
import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ebb_lab.errors import LabError
from ebb_lab.trial.design import Arm, Design

#: Means over time; of bytes and requests, rates per second.
POWERS = ("power_w", "cpu_power_w", "ssd_power_w")
COUNTS = ("bytes", "completed")
#: Means over requests: of percentiles, the mean of the periods', since no more is known.
LATENCIES = ("latency_mean_s", "latency_p50_s", "latency_p99_s")

#: A column that is unknown for more than the rest says nothing of the block.
KNOWN = 0.9
#: So much of the counted part has to be there.
COVERED = 0.9
#: After so many samples that count, a signal that never came is missed at once.
FIRST = 5

PROBE = "'ebb probe' says what this machine can sense, and what is in the way"


class Unfit(Exception):  # noqa: N818 - a block that cannot be counted
    """Why a block does not count."""


class Breach(Exception):  # noqa: N818
    """Latency left the bound under the policy."""


class MissingError(LabError):
    """A signal without which there is no answer."""


@dataclass(frozen=True)
class Seen:
    """What a whole block came to: `means` of the columns that were known, by their names."""

    counted_s: float
    samples: int
    means: dict[str, float]
    #: Which of these nothing measured, in one sample or more.
    modelled: list[str]
    #: What the policy changed, wash-out included.
    changes: int
    #: Highest mean latency of a window, wash-out included; None before one was full.
    worst_s: float | None


class Watch:
    """Takes the lines of one block."""

    def __init__(self, design: Design, arm: Arm, reference_s: float | None) -> None:
        self.design, self.arm, self.reference_s = design, arm, reference_s
        self._begun = False
        self._last = 0.0
        self._longest = self._counted = 0.0
        self._samples = self._changes = 0
        self._worst: float | None = None
        #: Sum and weight of each column; all that the weights could be.
        self._sums = {name: [0.0, 0.0] for name in (*POWERS, *COUNTS, *LATENCIES)}
        self._names: set[str] = set()
        self._modelled: set[str] = set()
        #: Period, requests and their mean latency.
        self._window: deque[tuple[float, float, float]] = deque()
        self._unknown_s = 0.0

    def take(self, line: str) -> None:
        """One line. `Breach` and `Unfit` end the block, `LabError` the trial."""
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, KeyError, TypeError) as error:
            raise Unfit(f"ebb run printed no event: {line[:80]}") from error
        if kind == "sample":
            self._sample(event["values"], event["modelled"])
        elif kind == "state":
            self._state(event["state"])
        elif kind == "decision":
            self._changes += event.get("applied") == "done"

    def end(self) -> Seen:
        """The block, now that it has ended."""
        if not self._begun:
            raise Unfit("ebb run never said that it " + self._verb())
        # Up to two periods may lie across the edges of what counts.
        if self._counted + 2 * self._longest < COVERED * self.design.counted_s:
            raise Unfit(
                f"samples cover {self._counted:.1f} s of the {self.design.counted_s:g} s that count"
            )
        means = self._means()
        self._need(means)
        if "latency_mean_s" not in means:
            raise Unfit("no request completed: the server was idle")
        modelled = sorted(self._modelled & means.keys())
        return Seen(self._counted, self._samples, means, modelled, self._changes, self._worst)

    def _need(self, there: Collection[str]) -> None:
        """Refuses a machine that lacks a signal without which there is no answer."""
        if not set(there) & {"power_w", "cpu_power_w"}:
            self._lacks("power_w", "nor is cpu_power_w: there is no meter of power")
        for name in COUNTS:
            if name not in there:
                self._lacks(name, "users' I/O is not counted")
        if "latency_mean_s" not in there and self._sums["completed"][0] > 0:
            self._lacks("latency_mean_s", "though requests complete")

    def _lacks(self, name: str, why: str) -> None:
        stem = name.rpartition("_")[0] or name
        other = sorted(each for each in self._names - {name} if each.startswith(f"{stem}_"))
        if other and other[0] not in LATENCIES + POWERS:
            remedy = f"There is '{other[0]}': use the ebb that belongs to this ebb_lab"
        else:
            remedy = PROBE
        raise MissingError(f"signal {name}", f"is not known in a {self.arm} block, {why}", remedy)

    def _verb(self) -> str:
        return "observes" if self.arm == "native" else "acts"

    def _state(self, state: str) -> None:
        if state in ("observing", "acting"):
            if (state == "acting") != (self.arm == "policy"):
                raise LabError(
                    "ebb run", f"is {state} in a {self.arm} block", "See ebb config show"
                )
            self._begun = True
        elif state != "starting":
            raise Unfit(state)

    def _sample(self, values: dict[str, Any], modelled: list[str]) -> None:
        read = {name: self._read(values, name) for name in (*self._sums, "time_s", "period_s")}
        now, period = read["time_s"], read["period_s"]
        if now is None or period is None:
            raise LabError("signal time_s", "or period_s is not in a sample", "Use this lab's ebb")
        if now < self._last:
            raise Unfit("ebb run started anew: the machine has other parts now")
        self._last, self._longest = now, max(self._longest, period)
        self._names |= values.keys()
        before = self.design.washout_s
        if now - period >= before - 1e-6 and now <= self.design.block_s + period:
            self._count(read, period)
            self._modelled |= set(modelled)
        self._bound(read, period)

    def _read(self, values: dict[str, Any], name: str) -> float | None:
        value = values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise LabError(f"signal {name}", f"is {value!r} in a sample", PROBE)
        if not math.isfinite(value):
            raise LabError(f"signal {name}", "is not finite in a sample", PROBE)
        return float(value)

    def _count(self, read: dict[str, float | None], period: float) -> None:
        self._counted += period
        self._samples += 1
        if self._samples == FIRST:
            self._need(self._names)
        for name in POWERS:
            self._add(name, read[name], period, period)
        for name in COUNTS:
            self._add(name, read[name], 1.0, period)
        for name in LATENCIES:
            self._add(name, read[name], read["completed"] or 0.0, read["completed"] or 0.0)

    def _add(self, name: str, value: float | None, factor: float, weight: float) -> None:
        if value is not None:
            self._sums[name][0] += value * factor
            self._sums[name][1] += weight

    def _means(self) -> dict[str, float]:
        """Columns that were known for long enough; of latency, for enough requests."""
        means = {}
        for name, (total, weight) in self._sums.items():
            of = self._sums["completed"][0] if name in LATENCIES else self._counted
            if weight > 0 and weight >= KNOWN * of:
                means[name] = total / weight
        return means

    def _bound(self, read: dict[str, float | None], period: float) -> None:
        """Holds the mean latency of the last seconds against the bound; wash-out included, since
        users feel that, too."""
        requests, latency = read["completed"], read["latency_mean_s"]
        if requests is None or (requests > 0 and latency is None):
            self._unknown_s += period
            if self.arm == "policy" and self._unknown_s > self.design.window_s:
                raise Unfit(f"latency was not known for {self._unknown_s:.1f} s while Ebb acted")
            return
        self._unknown_s = 0.0
        self._window.append((period, requests, latency or 0.0))
        while sum(each[0] for each in self._window) - self._window[0][0] >= self.design.window_s:
            self._window.popleft()
        total = sum(each[1] for each in self._window)
        full = sum(each[0] for each in self._window) >= self.design.window_s - 1e-6
        if not full or total == 0:
            return
        mean = sum(each[1] * each[2] for each in self._window) / total
        self._worst = max(mean, self._worst or 0.0)
        if self.reference_s is None or self.arm == "native":
            return
        if mean > (1 + self.design.tolerate) * self.reference_s:
            raise Breach(
                f"mean latency of {self.design.window_s:g} s was {mean * 1e3:.4g} ms under the "
                f"policy, {mean / self.reference_s - 1:+.1%} against {self.reference_s * 1e3:.4g} "
                f"ms of native blocks; tolerated are {self.design.tolerate:.0%}"
            )
