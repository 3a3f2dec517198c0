"""What a trial does: pairs of blocks, one native and one under the policy, in random order.

Samples within a block hang together, so that a pair of blocks is what counts as one observation.
The order is balanced in every four pairs: a steady trend then adds to as many differences as it
takes from (randomised permuted blocks).
"""

import math
import random
from dataclasses import dataclass
from typing import Literal

from ebb_lab import text
from ebb_lab.errors import LabError

Arm = Literal["native", "policy"]

#: Fewest pairs of an interval. If the order alone decided the signs of their differences, all of
#: them would be the same in 2 of 2^n trials: with five that is more than 5 %.
MIN_PAIRS = 6
#: Pairs among which the order is balanced.
BALANCED = 4


@dataclass(frozen=True)
class Design:
    """What was asked."""

    policy: str
    minutes: float = 60.0
    block_s: float = 180.0
    #: Recorded at the start of each block, but not counted.
    washout_s: float = 30.0
    #: How far the mean latency of `window_s` may rise over that of native blocks.
    tolerate: float = 0.2
    window_s: float = 10.0
    confidence: float = 0.95
    seed: int = 1

    @property
    def pairs(self) -> int:
        """Whole pairs of blocks that fit; a hair below one is rounding."""
        return math.floor(self.minutes * 60 / (2 * self.block_s) + 1e-9)

    @property
    def counted_s(self) -> float:
        """The part of a block that counts."""
        return self.block_s - self.washout_s


@dataclass(frozen=True)
class Slot:
    """One block of the plan."""

    index: int
    pair: int
    arm: Arm

    @property
    def name(self) -> str:
        """By which the journal knows it."""
        return f"{self.index:03}-{self.arm}"


def check(design: Design) -> None:
    """Refuses what could show nothing."""
    for name, value in (("--block", design.block_s), ("--window", design.window_s)):
        if not 0 < value < math.inf:
            raise LabError(name, f"{value:g} s is no time", "Such as '3 min'")
    if not 0 <= design.washout_s < design.block_s:
        raise LabError("--washout", "is no part of a block", "Shorter than --block")
    if design.window_s > design.block_s:
        raise LabError("--window", "is longer than a block", "At most --block")
    if not 0 < design.tolerate < math.inf:
        raise LabError("--tolerate", f"{design.tolerate:g} is no share above 0", "Such as 20%")
    if not 0 < design.confidence < 1:
        raise LabError("--confidence", f"{design.confidence:g} is no probability", "Such as 0.95")
    if not 0 < design.minutes < math.inf:
        raise LabError("--minutes", f"{design.minutes:g} is no time", "Such as 60")
    if design.pairs < MIN_PAIRS:
        needed = MIN_PAIRS * 2 * design.block_s / 60
        raise LabError(
            "--minutes",
            f"{design.minutes:g} minutes are {design.pairs} pairs of blocks of "
            f"{text.duration(design.block_s)}; {MIN_PAIRS} are needed",
            f"--minutes {needed:g}, or a shorter --block",
        )


def slots(design: Design) -> list[Slot]:
    """All blocks in their order. The first is native: latency under the policy is held against
    native blocks, so that one has to be there before the policy acts."""
    lot = random.Random(design.seed)  # noqa: S311 - not a secret
    native_first: list[bool] = []
    while len(native_first) < design.pairs:
        some = [True, False] * (BALANCED // 2)
        if not native_first:
            native_first.append(some.pop(0))
        lot.shuffle(some)
        native_first += some
    planned: list[Slot] = []
    for pair, first in enumerate(native_first[: design.pairs]):
        arms: tuple[Arm, Arm] = ("native", "policy") if first else ("policy", "native")
        planned += [Slot(2 * pair + at, pair, arm) for at, arm in enumerate(arms)]
    return planned
