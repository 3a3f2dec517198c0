"""The method against published examples, against other libraries, and its promises."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from ebb_lab import statistics
from ebb_lab.errors import LabError


@pytest.fixture(autouse=True, scope="module")
def few_resamples() -> Iterator[None]:
    """Enough for what is tested here, and fast."""
    before = statistics.RESAMPLES
    statistics.RESAMPLES = 999
    yield
    statistics.RESAMPLES = before


# New York's ozone in ppb, May to September 1973: R's data set `airquality`, days with a value.
OZONE = {
    "5": [41, 36, 12, 18, 28, 23, 19, 8, 7, 16, 11, 14, 18, 14, 34, 6, 30, 11, 1, 11, 4, 32]
    + [23, 45, 115, 37],
    "6": [29, 71, 39, 23, 21, 37, 20, 12, 13],
    "7": [135, 49, 32, 64, 40, 77, 97, 97, 85, 10, 27, 7, 48, 35, 61, 79, 63, 16, 80, 108, 20]
    + [52, 82, 50, 64, 59],
    "8": [39, 9, 16, 78, 35, 66, 122, 89, 110, 44, 28, 65, 22, 59, 23, 31, 44, 21, 9, 45, 168]
    + [73, 76, 118, 84, 85],
    "9": [96, 78, 73, 91, 47, 32, 20, 23, 21, 24, 44, 21, 28, 9, 13, 46, 18, 13, 24, 16, 13, 23]
    + [36, 7, 14, 30, 14, 18, 20],
}
# Beall 1942: insects counted after six sprays; R's data set `InsectSprays`.
SPRAYS = {
    "A": [10, 7, 20, 14, 14, 12, 10, 23, 17, 20, 14, 13],
    "B": [11, 17, 21, 11, 16, 14, 17, 17, 19, 21, 7, 13],
    "C": [0, 1, 7, 2, 3, 1, 2, 1, 3, 0, 1, 4],
    "D": [3, 5, 12, 6, 4, 3, 5, 5, 5, 5, 2, 4],
    "E": [3, 5, 3, 5, 3, 6, 1, 1, 3, 2, 6, 4],
    "F": [11, 9, 15, 22, 15, 16, 13, 10, 26, 26, 24, 13],
}


def test_kruskal_wallis_gives_what_rs_manual_prints() -> None:
    ozone = statistics.compare(OZONE)
    assert ozone.kruskal_h == pytest.approx(29.267, abs=5e-4)
    assert ozone.kruskal_p == pytest.approx(6.901e-06, rel=1e-3)
    sprays = statistics.compare(SPRAYS)
    assert sprays.kruskal_h == pytest.approx(54.691, abs=5e-4)
    assert sprays.kruskal_p == pytest.approx(1.511e-10, rel=1e-3)
    # H / (n - 1), Tomczak and Tomczak 2014.
    assert sprays.epsilon_squared == pytest.approx(54.691 / 71, abs=1e-4)


def test_dunn_gives_the_z_that_the_manual_of_rs_dunn_test_prints() -> None:
    printed = {
        ("5", "6"): 0.925158,
        ("5", "7"): 4.419470,
        ("5", "8"): 4.132813,
        ("5", "9"): 1.321202,
        ("6", "7"): 2.244208,
        ("7", "8"): 0.286657,
        ("7", "9"): 3.217199,
        ("8", "9"): 2.922827,
    }
    found = {(p.a, p.b): p.p for p in statistics.compare(OZONE, correction="none").pairs}
    for pair, z in printed.items():
        assert found[pair] == pytest.approx(2 * scipy.stats.norm.sf(z), rel=1e-4)


@pytest.mark.parametrize("correction", ["holm", "bonferroni", "fdr_bh"])
def test_corrections_are_those_of_statsmodels(correction: statistics.Correction) -> None:
    raw = [p.p for p in statistics.compare(OZONE, correction="none").pairs]
    found = [p.p for p in statistics.compare(OZONE, correction=correction).pairs]
    assert found == pytest.approx(list(multipletests(raw, method=correction)[1]))


def test_dunn_is_its_formula() -> None:
    """Dunn 1964, with ties, from ranks alone."""
    values = np.concatenate([np.array(v, dtype=float) for v in SPRAYS.values()])
    ranks = scipy.stats.rankdata(values)
    total = len(values)
    ties = sum(count**3 - count for count in np.unique(values, return_counts=True)[1])
    variance = total * (total + 1) / 12 - ties / (12 * (total - 1))
    means = {name: ranks[12 * i : 12 * i + 12].mean() for i, name in enumerate(SPRAYS)}
    found = {(p.a, p.b): p.p for p in statistics.compare(SPRAYS, correction="none").pairs}
    for a, b in itertools.combinations(SPRAYS, 2):
        z = abs(means[a] - means[b]) / math.sqrt(variance * (1 / 12 + 1 / 12))
        assert found[a, b] == pytest.approx(2 * scipy.stats.norm.sf(z), rel=1e-9)


def test_effect_sizes_of_the_example_of_rs_effsize() -> None:
    treatment = [10, 10, 20, 20, 20, 30, 30, 30, 40, 50]
    control = [10, 20, 30, 40, 40, 50]
    assert statistics.cliffs_delta(control, treatment) == pytest.approx(-0.25)
    (pair,) = statistics.compare({"control": control, "treatment": treatment}).pairs
    assert pair.vargha_delaney == pytest.approx(0.375)


def test_lilliefors_critical_values() -> None:
    """Lilliefors 1967, Table 1, at 5 %: beyond 0.258 for ten values, 0.190 for twenty."""
    random = np.random.default_rng(1)
    for n, critical in ((10, 0.258), (20, 0.190)):
        for _ in range(200):
            sample = np.sort(random.normal(size=n))
            fitted = scipy.stats.norm.cdf(sample, sample.mean(), sample.std(ddof=1))
            above = np.arange(1, n + 1) / n - fitted
            below = fitted - np.arange(n) / n
            distance = max(above.max(), below.max())
            p = statistics.normality_p(sample)
            assert p is not None
            # His own simulation was short; the table in use differs in the third digit.
            if abs(distance - critical) > 0.008:
                assert (p < 0.05) == (distance > critical)


def test_lilliefors_agrees_with_scipys_simulation() -> None:
    compared = 0
    for seed in range(8):
        sample = np.random.default_rng(seed).gamma(2.0, size=25)
        p = statistics.normality_p(sample)
        assert p is not None
        if not 0.001 < p < 0.2:
            continue
        simulated = scipy.stats.goodness_of_fit(
            scipy.stats.norm, sample, statistic="ks", n_mc_samples=2_000, rng=5
        )
        assert p == pytest.approx(simulated.pvalue, abs=0.02)
        compared += 1
    assert compared >= 3


def test_the_interval_of_many_values_is_the_binomial_one() -> None:
    sample = np.random.default_rng(8).lognormal(size=101)
    low, high = statistics.median_interval(sample)
    ordered = np.sort(sample)
    ranks = scipy.stats.binom(101, 0.5).ppf([0.025, 0.975]).astype(int)
    assert ordered[ranks[0] - 3] <= low <= ordered[ranks[0] + 2]
    assert ordered[ranks[1] - 3] <= high <= ordered[ranks[1] + 2]


@pytest.mark.parametrize("sizes", [(5, 5), (5, 5, 5), (6, 9, 20, 7), (40, 40)])
def test_false_positives_stay_near_alpha(sizes: tuple[int, ...]) -> None:
    """400 experiments without any difference, from a skewed distribution."""
    random = np.random.default_rng(sum(sizes))
    drawn = [random.lognormal(size=(400, n)) for n in sizes]
    omnibus = scipy.stats.kruskal(*drawn, axis=1).pvalue <= 0.05
    found = 0
    # Only where the omnibus test rejects can `compare` show a difference.
    for number in np.flatnonzero(omnibus):
        groups = {str(i): list(sample[number]) for i, sample in enumerate(drawn)}
        found += statistics.compare(groups).different
    # 20 expected; 36 are exceeded once in 3,000 times. Few repeats make the tests careful.
    assert 4 <= found <= 36


@pytest.mark.parametrize(("n", "confidence", "least"), [(5, 0.9, 0.89), (12, 0.95, 0.92)])
def test_intervals_cover_the_median(n: int, confidence: float, least: float) -> None:
    random = np.random.default_rng(n)
    covered = 0
    for _ in range(300):
        low, high = statistics.median_interval(random.exponential(size=n), confidence)
        covered += low <= math.log(2) <= high
    assert covered / 300 >= least - 0.03


VALUES = st.lists(st.floats(min_value=-1e6, max_value=1e6, allow_nan=False), min_size=5, max_size=9)


@settings(max_examples=8)
@given(st.lists(VALUES, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_order_of_repeats_plays_no_role(samples: list[list[float]], random: object) -> None:
    groups = {str(i): sample for i, sample in enumerate(samples)}
    shuffled = {}
    for name, sample in groups.items():
        shuffled[name] = list(sample)
        random.shuffle(shuffled[name])  # type: ignore[attr-defined]
    assert statistics.compare(groups) == statistics.compare(shuffled)


def test_order_and_names_of_groups_play_no_role() -> None:
    found = {frozenset((p.a, p.b)): p.p for p in statistics.compare(SPRAYS).pairs}
    for order in ("FCABED", "EDFACB"):
        groups = {name: SPRAYS[name] for name in order}
        assert tuple(g.name for g in statistics.compare(groups).groups) == tuple(order)
        for pair in statistics.compare(groups).pairs:
            assert pair.p == pytest.approx(found[frozenset((pair.a, pair.b))])


@settings(max_examples=8)
@given(VALUES, VALUES)
def test_pairs_mirror(a: list[float], b: list[float]) -> None:
    (one,) = statistics.compare({"a": a, "b": b}).pairs
    (other,) = statistics.compare({"b": b, "a": a}).pairs
    assert one.p == pytest.approx(other.p)
    assert one.different == other.different
    assert one.cliffs_delta == pytest.approx(-other.cliffs_delta)
    assert one.difference == -other.difference
    assert one.low <= one.difference <= one.high
    assert 0 <= one.p <= 1
    assert -1 <= one.cliffs_delta <= 1


@settings(max_examples=8)
@given(VALUES, st.floats(min_value=0.01, max_value=100))
def test_tests_depend_on_ranks_alone(sample: list[float], factor: float) -> None:
    whole = [float(round(value)) for value in sample]
    groups = {"a": whole, "b": [value + 1 for value in whole]}
    scaled = {name: [value * factor for value in values] for name, values in groups.items()}
    one, other = statistics.compare(groups), statistics.compare(scaled)
    assert one.kruskal_p == pytest.approx(other.kruskal_p, rel=1e-6)


def test_a_clear_difference_is_shown_and_none_is_not() -> None:
    clear = statistics.compare({"pc": [52, 53, 51, 54, 52.5], "arm": [9, 9.2, 8.9, 9.1, 9.3]})
    (pair,) = clear.pairs
    assert pair.different
    assert pair.cliffs_delta == -1
    assert pair.relative == pytest.approx(9.1 / 52.5 - 1)
    assert pair.relative_high is not None
    assert pair.relative_high < -0.8
    same = statistics.compare({"a": [1, 2, 3, 4, 5], "b": [1.1, 2.1, 2.9, 4.2, 4.9]})
    assert not same.different
    assert same.conclusion.startswith("no difference shown")


def test_equal_values_are_no_difference_and_say_so() -> None:
    comparison = statistics.compare({"a": [3.0] * 5, "b": [3.0] * 6})
    assert comparison.kruskal_p == 1
    assert not comparison.different
    assert "all values of all groups are equal" in comparison.notes
    constant = statistics.compare({"a": [3.0] * 5, "b": [3.0, 4, 5, 6, 7]})
    assert any("do they repeat anything" in note for note in constant.notes)


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ({}, "nothing to compare"),
        ({"a": [1.0] * 5}, "nothing to compare"),
        ({"a": [1.0] * 5, "b": []}, "group 'b' is empty"),
        ({"a": [1.0] * 5, "b": [1.0] * 4}, "group 'b' has 4 repeats, too few"),
        ({"a": [1.0] * 5, "b": [1.0, 2, 3, 4, math.nan]}, "not a finite number"),
        ({"a": [1.0] * 5, "b": [1.0, 2, 3, 4, math.inf]}, "not a finite number"),
    ],
)
def test_what_allows_no_test_is_refused(groups: dict[str, list[float]], told: str) -> None:
    with pytest.raises(LabError, match=told) as raised:
        statistics.compare(groups, experiment="profile=x")
    assert "in profile=x" in str(raised.value)


def test_what_could_find_nothing_is_refused() -> None:
    with pytest.raises(LabError, match="cannot show a difference at 0.001"):
        statistics.compare({"a": [1, 2, 3, 4, 5], "b": [6, 7, 8, 9, 10]}, alpha=0.001)
    with pytest.raises(LabError, match="no probability"):
        statistics.compare({"a": [1.0] * 5, "b": [2.0] * 5}, alpha=5)
