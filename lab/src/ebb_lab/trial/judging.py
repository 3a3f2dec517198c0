"""What the blocks of a trial show: differences of pairs, with intervals, and the trend of native.

The difference within a pair of blocks is one observation. Each is adjusted for which of the two
came first, by the two-period crossover's analysis (Hills and Armitage 1979, Br. J. Clin.
Pharmacol. 8:7): the mean of the means of both orders, with Student's t of n - 2 degrees of freedom.
A steady trend is so taken out of both the estimate and its error. On simulated servers with noise
that hangs together and drift this covered the truth as stated; the BCa bootstrap of as few pairs
did so less often (docs/lab.md has the numbers).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ebb_lab.trial.course import Block, Course
from ebb_lab.trial.design import MIN_PAIRS

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Interval:
    """An estimate and the bounds of its interval."""

    value: float
    low: float
    high: float

    @property
    def shown(self) -> bool:
        """Whether zero is outside."""
        return not self.low <= 0 <= self.high


@dataclass(frozen=True)
class Difference:
    """Policy against native in one value, over the whole pairs."""

    name: str
    title: str
    unit: str
    #: Means of the blocks of whole pairs.
    native: float
    policy: float
    pairs: int
    #: None where the pairs are too few for an interval.
    difference: Interval | None
    #: The same as a share of the native mean.
    relative: Interval | None
    #: Mean of the pairs' differences without the adjustment for order.
    unadjusted: float
    #: Trend of the native blocks, per hour.
    drift: Interval | None

    @property
    def shown(self) -> bool:
        """Whether a difference is shown."""
        return self.difference is not None and self.difference.shown


@dataclass(frozen=True)
class Meter:
    """Where the watts are from."""

    columns: tuple[str, ...]
    title: str
    #: Whether every sample of them is; drives without a meter are modelled.
    measured: bool


@dataclass(frozen=True)
class Verdict:
    """What a trial shows."""

    course: Course
    pairs: int
    meter: Meter | None
    differences: tuple[Difference, ...]
    conclusion: str
    notes: tuple[str, ...]


METERS = (
    (("power_w",), "the whole server at the wall"),
    (("cpu_power_w", "ssd_power_w"), "processors and drives"),
    (("cpu_power_w",), "processors alone"),
)

#: Name, title, unit, factor from what samples have.
VALUES = (
    ("watts", "power", "W", 1.0),
    ("cpu_watts", "power of processors", "W", 1.0),
    ("bytes_per_joule", "bytes per joule", "B/J", 1.0),
    ("latency_mean_ms", "mean latency", "ms", 1e3),
    ("latency_p50_ms", "p50 latency", "ms", 1e3),
    ("latency_p99_ms", "p99 latency", "ms", 1e3),
    ("bytes_per_second", "throughput", "B/s", 1.0),
)


def judge(course: Course) -> Verdict:
    """What the course shows, however it ended."""
    meter = _meter(course.blocks)
    pairs = _pairs(course.blocks)
    native = [block for block in course.blocks if block.arm == "native"]
    found = []
    for name, title, unit, factor in VALUES:
        if meter is None or (name == "cpu_watts" and len(meter.columns) < 2):
            continue
        of = [[value(block, name, meter) for block in pair] for pair in pairs]
        if not of or any(one is None for pair in of for one in pair):
            continue
        both = np.array(of, dtype=float) * factor
        first = np.array([a.started < b.started for a, b in pairs])
        trend = [(block.started, value(block, name, meter)) for block in native]
        drift = _trend(
            [(at, one * factor) for at, one in trend if one is not None], course.design.confidence
        )
        found.append(_difference((name, title, unit), both, first, drift, course.design.confidence))
    return Verdict(
        course=course,
        pairs=len(pairs),
        meter=meter,
        differences=tuple(found),
        conclusion=_conclusion(course, meter, found, len(pairs)),
        notes=tuple(_notes(course, meter, found, pairs)),
    )


def value(block: Block, name: str, meter: Meter) -> float | None:
    """One of `VALUES` of one block, in SI units; None where it was not known."""
    means = block.seen.means
    watts = sum(means[column] for column in meter.columns)
    if name == "watts":
        return watts
    if name == "bytes_per_joule":
        return means["bytes"] / watts if watts > 0 else None
    columns = {"cpu_watts": "cpu_power_w", "bytes_per_second": "bytes"}
    return means.get(columns.get(name, name.removesuffix("_ms") + "_s"))


def paired(differences: Array, native_first: Mask, confidence: float) -> Interval:
    """The mean difference, adjusted for the order within pairs."""
    import scipy.stats

    groups = [differences[native_first], differences[~native_first]]
    freedom = len(differences) - 2
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    spread = math.sqrt(squares / freedom * sum(1 / len(group) for group in groups)) / 2
    estimate = float(sum(group.mean() for group in groups)) / 2
    reach = float(scipy.stats.t.ppf((1 + confidence) / 2, freedom)) * spread
    return Interval(estimate, estimate - reach, estimate + reach)


def _pairs(blocks: Sequence[Block]) -> list[tuple[Block, Block]]:
    """Whole pairs, native before policy whatever their order in time."""
    by = {(block.pair, block.arm): block for block in blocks}
    numbers = sorted({block.pair for block in blocks})
    whole = [n for n in numbers if (n, "native") in by and (n, "policy") in by]
    return [(by[n, "native"], by[n, "policy"]) for n in whole]


def _meter(blocks: Sequence[Block]) -> Meter | None:
    """The first that all blocks have."""
    modelled = {name for block in blocks for name in block.seen.modelled}
    for columns, title in METERS:
        if blocks and all(set(columns) <= block.seen.means.keys() for block in blocks):
            return Meter(columns, title, modelled.isdisjoint(columns))
    return None


def _difference(
    names: tuple[str, str, str],
    both: Array,
    native_first: Mask,
    drift: Interval | None,
    confidence: float,
) -> Difference:
    native, policy = (float(mean) for mean in both.mean(axis=0))
    differences = both[:, 1] - both[:, 0]
    found = paired(differences, native_first, confidence) if len(both) >= MIN_PAIRS else None
    relative = None
    if found and native > 0:
        relative = Interval(found.value / native, found.low / native, found.high / native)
    unadjusted = float(differences.mean())
    return Difference(
        *names, native, policy, len(both), found, relative, unadjusted=unadjusted, drift=drift
    )


def _trend(points: Sequence[tuple[float, float]], confidence: float) -> Interval | None:
    """Least squares over the native blocks, per hour."""
    import scipy.stats

    if len(points) < MIN_PAIRS:
        return None
    if len({each for _, each in points}) == 1:
        return Interval(0.0, 0.0, 0.0)
    hours = np.array([at for at, _ in points]) / 3600
    fitted = scipy.stats.linregress(hours - hours[0], [each for _, each in points])
    reach = float(scipy.stats.t.ppf((1 + confidence) / 2, len(points) - 2) * fitted.stderr)
    slope = float(fitted.slope)
    return Interval(slope, slope - reach, slope + reach)


def _conclusion(
    course: Course, meter: Meter | None, found: Sequence[Difference], pairs: int
) -> str:
    """The answer in a sentence or two."""
    stopped = f"Stopped: {course.why}. " if course.end != "complete" else ""
    if meter is None or pairs < MIN_PAIRS:
        return (
            f"{stopped}No statistics: {pairs} pairs of blocks are too few, {MIN_PAIRS} are needed"
        )
    level = f"{course.design.confidence:.0%} interval"
    by = {each.name: each for each in found}
    told = []
    for name, fewer, more in (("watts", "less", "more"), ("latency_mean_ms", "lower", "higher")):
        one = by[name]
        if not one.shown or one.relative is None:
            told.append(f"no difference in {one.title} shown")
            continue
        low, value_, high = sorted((one.relative.low, one.relative.value, one.relative.high))
        word = fewer if value_ < 0 else more
        told.append(
            f"{one.title} {abs(value_):.1%} {word} than native ({level} {low:+.1%} … {high:+.1%})"
        )
    of = f"{course.design.policy}, power of {meter.title}"
    return f"{stopped}{of}: {'; '.join(told)}"


def _notes(
    course: Course,
    meter: Meter | None,
    found: Sequence[Difference],
    pairs: Sequence[tuple[Block, Block]],
) -> list[str]:
    """What a reader must know beside the numbers."""
    design = course.design
    notes = [
        f"intervals are of {len(pairs)} differences of pairs of blocks, each "
        f"{design.confidence:.0%} on its own; the first question is power",
        f"the first {design.washout_s:g} s of each block are recorded and not counted",
    ]
    if meter and not meter.measured:
        notes.append(
            "drives here do not meter their power: it is modelled by Ebb, from the states that "
            "the policy sets among others. Only the power of processors is measured"
        )
    names = {each.name for each in found}
    if found and "latency_p99_ms" not in names:
        notes.append(
            "percentiles of latency are not known: the kernel counts none, an 'ebb serve' named in "
            "the configuration does"
        )
    elif found:
        notes.append("p50 and p99 are means of the periods' percentiles, weighted by requests")
    notes += [_drifted(each) for each in found if each.drift and each.drift.shown]
    native = [block.seen for block in course.blocks if block.arm == "native"]
    worst = max((seen.worst_s or 0.0 for seen in native), default=0.0)
    mean = np.mean([seen.means["latency_mean_s"] for seen in native]) if native else math.inf
    if worst > (1 + design.tolerate) * mean:
        notes.append(
            f"native blocks left the bound themselves: {design.window_s:g} s of mean latency "
            f"{worst / mean - 1:+.0%} against their mean; a longer --window or a larger --tolerate "
            "would stop for the policy's sake alone"
        )
    acting = [policy for _, policy in pairs]
    if acting and not any(block.seen.changes for block in acting):
        notes.append("the policy changed nothing in any counted block")
    far = [n for n, (a, b) in enumerate(pairs) if abs(a.started - b.started) > 3 * design.block_s]
    if far:
        told = ", ".join(str(number + 1) for number in far)
        notes.append(f"blocks lie apart in pair {told}: something came between them")
    if course.uncounted:
        notes.append(
            f"{len(course.uncounted)} blocks do not count, for reasons of their own; the answer is "
            "of the times without such trouble"
        )
    return notes


def _drifted(one: Difference) -> str:
    assert one.drift is not None  # noqa: S101 - asked before
    shift = one.unadjusted - (one.difference.value if one.difference else one.unadjusted)
    return (
        f"drift: {one.title} of native blocks changed by {one.drift.value:+.4g} {one.unit} an hour "
        f"({one.drift.low:+.4g} … {one.drift.high:+.4g}, taking blocks as independent); the "
        "order within pairs is balanced and "
        f"adjusted for, without which the difference would be {shift:+.3g} {one.unit} off; a drift "
        "that is not steady widens the interval"
    )
