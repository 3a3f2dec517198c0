"""A server in simulated time for trials: what its `ebb run` would print, and what is true of it."""

import contextlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.signal import lfilter

from ebb_lab.trial.design import Design

PERIOD_S = 5.0
#: Shorter than by default; the noise hangs together for longer than a block.
DESIGN = Design("pacer", minutes=20, block_s=60, washout_s=20, window_s=10, tolerate=0.5)
#: Between two blocks.
GAP_S = 1.5


@dataclass
class Server:
    """A `Runner`. Power and latency have noise of two kinds, some of which stays for `memory_s`,
    and a drift; the policy's effect comes within some seconds and is known."""

    seed: int
    effect_w: float = 0.0
    effect_ms: float = 0.0
    drift_w_per_hour: float = 60.0
    memory_s: float = 90.0
    now: float = 0.0
    #: What was done to it, in order.
    log: list[str] = field(default_factory=list)
    #: Seconds of all policy blocks after which latency is ten times as high.
    slow_after_s: float = math.inf
    _acted: float = 0.0

    def __post_init__(self) -> None:
        lot = np.random.default_rng(self.seed)
        count = int(3 * DESIGN.minutes * 60 / PERIOD_S)
        keep = math.exp(-PERIOD_S / self.memory_s)

        def noise(white: float, slow: float) -> np.ndarray:
            steps = lot.normal(0, slow * math.sqrt(1 - keep**2), count)
            steps[0] = lot.normal(0, slow)
            return np.asarray(lfilter([1], [1, -keep], steps) + lot.normal(0, white, count))

        self._watts = 200 + noise(4, 6)
        self._latency_ms = 0.5 + noise(0.02, 0.02)
        self._requests = np.exp(noise(0.2, 0.2)) * 5_000

    def time(self) -> float:
        return self.now

    def restore(self) -> None:
        self.log.append("restore")

    @contextlib.contextmanager
    def block(self, acts: bool, seconds: float) -> Iterator[Iterator[str]]:
        self.log.append("policy" if acts else "native")
        yield self.lines(acts, seconds)
        self.now += GAP_S

    def lines(self, acts: bool, seconds: float) -> Iterator[str]:
        began = self.now
        for step in range(1, round(seconds / PERIOD_S) + 1):
            at = step * PERIOD_S
            self.now = began + at
            self._acted += PERIOD_S * acts
            yield json.dumps(self._sample(acts, at))
            if step == 1:
                yield json.dumps(
                    {"event": "state", "time_s": at, "state": "acting" if acts else "observing"}
                )

    def _sample(self, acts: bool, at: float) -> dict[str, object]:
        n = int(self.now / PERIOD_S)
        # What the policy does comes with a time constant of 5 s.
        effect = (1 - math.exp(-at / 5)) * acts
        latency = self._latency_ms[n] + self.effect_ms * effect
        if self._acted > self.slow_after_s:
            latency *= 10
        values = {
            "time_s": at,
            "period_s": PERIOD_S,
            "power_w": self._watts[n]
            + self.effect_w * effect
            + self.drift_w_per_hour * self.now / 3600,
            "completed": self._requests[n],
            "bytes": self._requests[n] * 4096,
            "latency_mean_s": latency / 1e3,
            "latency_p50_s": 0.9 * latency / 1e3,
            "latency_p99_s": 3 * latency / 1e3,
        }
        return {"event": "sample", "time_s": at, "values": values, "modelled": []}
