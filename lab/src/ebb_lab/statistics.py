"""The statistics of the storage-servers study (V. Machado et al., SAC 2017, §3).

    "The Kolmogorov-Smirnov [Lilliefors] test was applied to each experiment results to test if
    time and power samples followed a normal distribution. […] Hence we take the medians […]. The
    Dunn test was used instead to compare medians. Therefore, in the rest of this paper we only
    say there is a difference between results for two configurations if said difference was
    confirmed by the Dunn test."

`compare` does that: Lilliefors' test of each group, medians, Kruskal and Wallis's test of all
groups together, Dunn's of each pair with a correction for their number. What the paper leaves out
and a reviewer asks for is added: bootstrap intervals, which assume no distribution, and effect
sizes. The mathematics is SciPy's, statsmodels' and scikit-posthocs'.

The paper names no correction; Dunn's own (1961) is Bonferroni's. Holm's, the default, holds the
same family-wise error rate and never finds less.
"""

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ebb_lab.errors import LabError

Correction = Literal["holm", "bonferroni", "fdr_bh", "none"]
Array = npt.NDArray[np.float64]

#: Fewest repeats of a group: the paper's five. The chi-square and normal approximations of
#: Kruskal-Wallis and Dunn hold from there on (Kruskal and Wallis 1952 tabulate smaller groups).
MIN_REPEATS = 5

#: Resamples of each bootstrap, and the seed from which they are drawn.
RESAMPLES = 9_999
SEED = 20_170_403


@dataclass(frozen=True)
class Group:
    """One configuration's repeats. `low` and `high` bound the median."""

    name: str
    n: int
    median: float
    low: float
    high: float
    #: Lilliefors' p, clipped to 0.001..0.99 as its table is; None where all values are equal.
    normality_p: float | None


@dataclass(frozen=True)
class Pair:
    """`b` against `a`: how far its median lies from `a`'s, and whether Dunn's test confirms it."""

    a: str
    b: str
    #: Median of `b` less that of `a`, with its interval; `relative` as a share of `a`'s median,
    #: None where a value of `a` is about zero or less.
    difference: float
    low: float
    high: float
    relative: float | None
    relative_low: float | None
    relative_high: float | None
    #: Dunn's p after correction.
    p: float
    #: Cliff's delta: how much more often a value of `b` is above one of `a` than below; and
    #: Vargha and Delaney's A, the same from 0 to 1.
    cliffs_delta: float
    vargha_delaney: float
    different: bool


@dataclass(frozen=True)
class Comparison:
    """What the repeats of several configurations show, and what they do not."""

    experiment: str
    value: str
    unit: str
    alpha: float
    confidence: float
    correction: Correction
    groups: tuple[Group, ...]
    kruskal_h: float
    kruskal_p: float
    #: H / (n - 1) of Kruskal-Wallis: 0 none, 1 all of the variation of ranks.
    epsilon_squared: float
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]

    @property
    def different(self) -> bool:
        """Whether any difference is shown."""
        return any(pair.different for pair in self.pairs)

    @property
    def conclusion(self) -> str:
        """The result in a sentence."""
        shown = [pair for pair in self.pairs if pair.different]
        if not shown:
            return f"no difference shown (Kruskal-Wallis p = {self.kruskal_p:.3g})"
        return f"{len(shown)} of {len(self.pairs)} differences shown"


def compare(
    groups: Mapping[str, Sequence[float]],
    *,
    experiment: str = "the experiment",
    value: str = "value",
    unit: str = "",
    alpha: float = 0.05,
    confidence: float = 0.95,
    correction: Correction = "holm",
) -> Comparison:
    """Compares groups of repeats by the paper's method; order of repeats plays no role.

    A difference is said to be shown where Dunn's corrected p is at most `alpha`, and
    Kruskal-Wallis's too. `LabError` names the experiment and the remedy where the repeats allow
    no test: fewer than two groups, fewer than `MIN_REPEATS` in one, values that are not finite.
    """
    import scipy.stats

    _check_levels(alpha, confidence)
    samples = _checked(groups, experiment, value)
    _check_reach(samples, alpha, correction, experiment)
    alike = len({float(each) for sample in samples.values() for each in sample}) == 1
    h, p = (0.0, 1.0) if alike else map(float, scipy.stats.kruskal(*samples.values()))
    corrected = _dunn(samples, correction) if not alike else None
    pairs = []
    for (i, a), (j, b) in itertools.combinations(enumerate(samples), 2):
        dunn = 1.0 if corrected is None else float(corrected[i, j])
        different = dunn <= alpha and p <= alpha
        pairs.append(_pair(a, b, samples, dunn, different, confidence))
    return Comparison(
        experiment=experiment,
        value=value,
        unit=unit,
        alpha=alpha,
        confidence=confidence,
        correction=correction,
        groups=tuple(_group(name, sample, confidence) for name, sample in samples.items()),
        kruskal_h=h,
        kruskal_p=p,
        epsilon_squared=h / (sum(map(len, samples.values())) - 1),
        pairs=tuple(pairs),
        notes=tuple(_notes(samples, confidence, alike) + _apart(pairs)),
    )


def median_interval(
    sample: Sequence[float] | Array, confidence: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of the median: for few values near the binomial one.

    No interval of this kind can be wider than from the least value to the largest, which hold
    the median between them with probability 1 - 2^(1-n): 93.75 % for five values.
    """
    return _bootstrap((np.asarray(sample, dtype=float),), _median, confidence)


def normality_p(sample: Sequence[float] | Array) -> float | None:
    """p of Lilliefors' test that the values are of a normal distribution of unknown parameters."""
    from statsmodels.stats.diagnostic import lilliefors

    values = np.asarray(sample, dtype=float)
    if np.ptp(values) == 0:
        return None
    with warnings.catch_warnings():
        # statsmodels tells that p lies outside its table; that it is clipped is documented here.
        warnings.simplefilter("ignore")
        return float(lilliefors(np.sort(values), dist="norm", pvalmethod="table")[1])


def cliffs_delta(a: Sequence[float] | Array, b: Sequence[float] | Array) -> float:
    """P(b > a) - P(b < a) over all pairs of values (Cliff 1993), from Mann and Whitney's U."""
    import scipy.stats

    u = scipy.stats.mannwhitneyu(b, a, method="asymptotic").statistic
    return float(2.0 * u / (len(a) * len(b)) - 1.0)


def _check_levels(alpha: float, confidence: float) -> None:
    for name, level in (("alpha", alpha), ("confidence", confidence)):
        if not 0.0 < level < 1.0:
            raise LabError(name, f"{level} is no probability between 0 and 1", "Such as 0.05, 0.95")


def _checked(
    groups: Mapping[str, Sequence[float]], experiment: str, value: str
) -> dict[str, Array]:
    """The groups as sorted arrays, or what makes them unfit for any test."""
    where = f"in {experiment}"
    if len(groups) < 2:
        names = ", ".join(groups) or "none"
        raise LabError(
            where,
            f"nothing to compare: groups are {names}",
            "Compare at least two; another --by, or fewer --where, may give more",
        )
    samples = {}
    for name, sequence in groups.items():
        sample = np.sort(np.asarray(sequence, dtype=float))
        if len(sample) == 0:
            raise LabError(where, f"group '{name}' is empty", "Run it, or leave it out")
        if not np.isfinite(sample).all():
            raise LabError(
                where,
                f"group '{name}' has a {value} that is not a finite number",
                "Repeat the runs that gave it, or leave them out knowingly with --where",
            )
        if len(sample) < MIN_REPEATS:
            raise LabError(
                where,
                f"group '{name}' has {len(sample)} repeats, too few for a test",
                f"Run at least {MIN_REPEATS} (seeds or repetitions) of each group",
            )
        samples[str(name)] = sample
    return samples


def _check_reach(
    samples: Mapping[str, Array], alpha: float, correction: Correction, experiment: str
) -> None:
    """Refuses a test that could find nothing even where no two groups overlapped."""
    import scipy.stats

    family = math.comb(len(samples), 2) if correction in ("holm", "bonferroni") else 1
    total = sum(map(len, samples.values()))
    smallest = 1.0
    for a, b in itertools.combinations(samples.values(), 2):
        # Mean ranks farthest apart: one group before all others, one after them.
        apart = total - (len(a) + len(b)) / 2
        error = math.sqrt(total * (total + 1) / 12 * (1 / len(a) + 1 / len(b)))
        smallest = min(smallest, 2 * float(scipy.stats.norm.sf(apart / error)))
    if smallest * family > alpha:
        raise LabError(
            f"in {experiment}",
            f"{total} values in {len(samples)} groups cannot show a difference at {alpha}: p is "
            f"at least {smallest * family:.2g} after correction",
            "Run more repeats, compare fewer groups or allow a larger --alpha",
        )


def _dunn(samples: Mapping[str, Array], correction: Correction) -> Array:
    """Corrected p of each group against each, in the order of the groups."""
    import pandas as pd
    import scikit_posthocs

    adjust = None if correction == "none" else correction
    long = pd.DataFrame(
        [(name, value) for name, sample in samples.items() for value in sample],
        columns=["group", "value"],
    )
    found = scikit_posthocs.posthoc_dunn(long, val_col="value", group_col="group", p_adjust=adjust)
    names = list(samples)
    return np.asarray(found.loc[names, names], dtype=float)


def _group(name: str, sample: Array, confidence: float) -> Group:
    low, high = median_interval(sample, confidence)
    return Group(name, len(sample), float(np.median(sample)), low, high, normality_p(sample))


def _pair(
    a: str, b: str, samples: Mapping[str, Array], p: float, different: bool, confidence: float
) -> Pair:
    first, second = samples[a], samples[b]
    base, other = float(np.median(first)), float(np.median(second))
    low, high = _bootstrap((first, second), _difference, confidence)
    relative: tuple[float, float, float] | None = None
    # A share of a base that is almost zero or below it says nothing.
    if first[0] > 1e-6 * max(abs(second[0]), second[-1], first[-1]):
        relative = (other / base - 1, *_bootstrap((first, second), _relative, confidence))
    delta = cliffs_delta(first, second)
    return Pair(
        a=a,
        b=b,
        difference=other - base,
        low=low,
        high=high,
        relative=relative[0] if relative else None,
        relative_low=relative[1] if relative else None,
        relative_high=relative[2] if relative else None,
        p=p,
        cliffs_delta=delta,
        vargha_delaney=(delta + 1) / 2,
        different=different,
    )


def _notes(samples: Mapping[str, Array], confidence: float, alike: bool) -> list[str]:
    """What a reader must know beside the numbers."""
    notes = []
    fewest = min(map(len, samples.values()))
    widest = 1 - 2.0 ** (1 - fewest)
    if widest < confidence:
        notes.append(
            f"an interval of {fewest} values covers the median in at most {widest:.1%} of "
            f"experiments, not in {confidence:.0%}"
        )
    constant = [name for name, sample in samples.items() if sample[0] == sample[-1]]
    if alike:
        notes.append("all values of all groups are equal")
    elif constant:
        notes.append(f"all repeats are equal in {', '.join(constant)}: do they repeat anything?")
    return notes


def _apart(pairs: Sequence[Pair]) -> list[str]:
    """Dunn's ranks are those of all groups: neighbours among many need many repeats."""
    missed = [f"{p.b} and {p.a}" for p in pairs if abs(p.cliffs_delta) == 1 and not p.different]
    if not missed:
        return []
    return [
        f"no value of one overlaps the other, yet so few repeats show no difference: "
        f"{', '.join(missed)}; run more repeats or compare fewer groups"
    ]


def _median(sample: Array, axis: int = -1) -> Any:
    return np.median(sample, axis=axis)


def _difference(first: Array, second: Array, axis: int = -1) -> Any:
    return np.median(second, axis=axis) - np.median(first, axis=axis)


def _relative(first: Array, second: Array, axis: int = -1) -> Any:
    return np.median(second, axis=axis) / np.median(first, axis=axis) - 1


def _bootstrap(
    samples: tuple[Array, ...], statistic: Any, confidence: float
) -> tuple[float, float]:
    """Percentile interval; sorted samples and a fixed seed: the same values, the same interval."""
    import scipy.stats

    ordered = tuple(np.sort(sample) for sample in samples)
    if all(sample[0] == sample[-1] for sample in ordered):
        only = float(statistic(*ordered))
        return only, only
    interval = scipy.stats.bootstrap(
        ordered,
        statistic,
        n_resamples=RESAMPLES,
        batch=max(1, 10_000_000 // sum(map(len, ordered))),
        confidence_level=confidence,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return float(interval.low), float(interval.high)
