"""Blocks in pairs, with a policy and without: what they say, and whether that is good enough."""

import statistics

# Student's t, 95 % from below, of one degree of freedom up to thirty: the ends of 90 %.
T95 = [6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
       1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706,
       1.703, 1.701, 1.699, 1.697]
# Pairs from which on the interval is judged. Of fewer it is too wide, so their mean is.
ENOUGH = 8
# How much more power at the wall a policy may be found to take, %: of the interval's upper end,
# for noise that eight pairs leave, and of the mean of fewer.
WALL, WALL_OF_FEW = 1.0, 2.0


def interval(values):
    """Mean, and the ends of its interval of 90 %."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return mean, float("-inf"), float("inf")
    half = T95[min(len(values) - 1, len(T95)) - 1] * statistics.stdev(values) / len(values) ** 0.5
    return mean, mean - half, mean + half


class Row:
    """What a cell's pairs say, in % of what is without the policy."""

    def __init__(self, cell, pairs, plf, judged):
        self.load, self.policy = cell
        self.count = len(pairs)
        self.watts, self.wall = compare(pairs, "watts")
        self.latency_ms, self.latency = None, None
        if all(pair["without"]["latency_ms"] is not None for pair in pairs):
            self.latency_ms, self.latency = compare(pairs, "latency_ms")
        # Times at which it gave up, or a control did not follow.
        self.interruptions = sum(pair["with"]["interruptions"] for pair in pairs)
        self.faults = self.judge(plf) if judged else None

    def judge(self, plf):
        """What is not good enough."""
        few = self.count < ENOUGH
        which, what = (0, "the mean") if few else (2, "the upper end")
        faults = []
        for name, told, most in (("wall", self.wall, WALL_OF_FEW if few else WALL),
                                 ("latency", self.latency, plf)):
            if told is not None and not told[which] < most:
                faults.append(f"{name}: {what} is {told[which]:+.2f} %, not below {most:+g} %")
        return faults

    def verdict(self):
        by = "by means only" if self.count < ENOUGH else ""
        if self.faults is None:
            return "not judged"
        return ", ".join(filter(None, [*(self.faults or ["ok"]), by]))

    def line(self):
        latency = f"latency {said(self.latency)}" if self.latency else "no requests"
        return f"row {self.load}:{self.policy}: {self.watts:.2f} W without, wall {said(self.wall)}, " \
            f"{latency}, {self.count} pairs, {self.interruptions} interruptions: {self.verdict()}"

    def cells(self):
        latency_ms = f"{self.latency_ms:.2f}" if self.latency else "–"
        latency = said(self.latency) if self.latency else "–"
        return [self.load, f"`{self.policy}`", self.count, f"{self.watts:.2f}", said(self.wall),
                latency_ms, latency, self.interruptions, self.verdict()]


def compare(pairs, of):
    """The mean without the policy, and the interval of what the policy changes, in %."""
    without = [pair["without"][of] for pair in pairs]
    changes = [100 * (pair["with"][of] / before - 1) for pair, before in zip(pairs, without)]
    return statistics.mean(without), interval(changes)


def said(told):
    mean, low, high = told
    return f"{mean:+.2f} % ({low:+.2f} to {high:+.2f})"


def table(rows, about):
    """Markdown."""
    heads = ["load", "policy", "pairs", "W without", "wall (90 %)", "ms without", "latency (90 %)",
             "interruptions", "verdict"]
    lines = [heads, ["---"] * len(heads), *(row.cells() for row in rows)]
    body = "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
    return f"# Watts and latency with a policy and without\n\n{about}\n\n{body}\n"
