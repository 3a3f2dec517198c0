"""Coverage of a fit's 90 % ranges, checked by simulation: truths are drawn from the declared box,
their rows get noise of the stated deviation, and the ranges should hold the truths in 90 %.

A cheap model stands in for `ebb`; where EBB_TRUTHS says how many truths, as `./campaign` does, real
`ebb sim` runs too.
"""

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ebb_lab import bench, binary
from ebb_lab.fitting import declaration, posterior, study
from ebb_lab.fitting.emulator import Array
from ebb_lab.fitting.posterior import Posterior
from ebb_lab.fitting.variants import Variants

ROOT = Path(__file__).parents[2]
#: What a lower frequency saves on the example's server.
SAVING = """
[runs.saving]
rate = "300 kIOPS"
block = "8 KiB"
policy = ["native", "constant(ghz=1.6)"]
[[prediction]]
name = "power at 1.6 GHz"
run = "saving"
of = "constant(ghz=1.6)"
over = "native"
value = "mean_watts"
"""

TRUTHS = 50
ROWS, FREE, NOISE = 8, 3, 0.03
WEIGHTS = np.abs(np.random.default_rng(3).normal(size=(ROWS + 1, FREE)))


def model(shares: Array) -> Array:
    """Rows as those of a server: sums of parts, products, one that saturates; the last one is
    predicted."""
    rows: Array = 2.0 + shares @ WEIGHTS.T
    rows[:, 1] *= 1.0 + shares[:, 0] * shares[:, 1]
    rows[:, 2] = 1.0 / (1.3 - shares[:, 0])
    rows[:, 3] *= np.sqrt(0.3 + shares[:, 2])
    return rows


def fitted(
    truth: Array, seed: int, noise: float = NOISE, wrong: float = 0.0, points: int = 128
) -> Posterior:
    """A fit to the truth's rows with noise, the first of which is off by so many deviations."""
    rows = model(truth[None])[0, :ROWS]
    deviation = noise * rows
    paper = rows + deviation * np.random.default_rng([seed, 7]).normal(size=ROWS)
    paper[0] += wrong * deviation[0]

    def measure(shares: Array) -> Array:
        values: Array = model(shares)[:, :ROWS, None]
        return values

    return posterior.search(
        measure, lambda shares: shares, paper, deviation, dimensions=FREE, seed=seed, points=points
    )


def test_ranges_cover_the_truth_as_often_as_they_say() -> None:
    held, predicted = [], []
    for seed in range(TRUTHS):
        truth = np.random.default_rng([seed, 8]).random(FREE)
        found = fitted(truth, seed)
        low, high = np.quantile(found.cloud, (posterior.LOW, posterior.HIGH), axis=0)
        held.append((low <= truth) & (truth <= high))
        draws = model(found.drawn(19, seed))[:, -1]
        predicted.append(draws.min() <= model(truth[None])[0, -1] <= draws.max())
    assert 0.80 <= np.mean(held) <= 0.97, np.mean(held, axis=0)
    assert 0.80 <= np.mean(predicted) <= 0.97


def test_a_row_that_the_model_lacks_widens_the_others_and_far_off_is_refused() -> None:
    truth = np.array([0.3, 0.6, 0.5])
    sound, off = fitted(truth, 1), fitted(truth, 1, wrong=8.0)
    assert sound.widened == 1.0 and not sound.hopeless
    assert 1.5 < off.widened < posterior.HOPELESS and not off.hopeless
    assert (off.cloud.std(axis=0) > sound.cloud.std(axis=0)).all()
    assert fitted(truth, 1, wrong=40.0).hopeless


def test_points_go_where_the_posterior_is() -> None:
    found = fitted(np.array([0.3, 0.6, 0.5]), 2)
    first = 32  # of the sequence
    assert first < len(found.shares) < 128
    middle, spread = found.cloud.mean(axis=0), found.cloud.std(axis=0)
    far = np.abs((found.shares - middle) / spread).max(axis=1)
    assert np.median(far[first:]) < 4 < np.median(far[:first])
    assert (found.error <= posterior.SMALL * found.deviation).all()


def test_an_end_of_the_box_that_bounds_a_range_is_told() -> None:
    inside = fitted(np.full(3, 0.5), 3, noise=0.005)
    assert inside.ends == [(False, False)] * 3
    corner = fitted(np.array([0.0, 0.5, 1.0]), 3, noise=0.02)
    assert corner.ends[0] == (True, False) and corner.ends[2] == (False, True)


@pytest.mark.parametrize("width", [0.02, 0.05])
def test_a_curved_ridge_is_drawn_along_its_length(width: float) -> None:
    """Of x·y and nothing else a whole hyperbola is probable, not the surroundings of a point."""
    found = posterior.search(
        lambda shares: (shares[:, :1] * shares[:, 1:])[:, :, None],
        lambda shares: shares,
        np.array([0.2]),
        np.array([width]),
        dimensions=2,
        seed=1,
        points=128,
    )
    assert np.quantile(np.abs(found.cloud.prod(axis=1) - 0.2), 0.9) < 2 * width
    # The density along the ridge is that of log x: even from 0.2 to 1.
    quarters = np.quantile(found.cloud[:, 0], (0.25, 0.5, 0.75))
    assert quarters == pytest.approx(0.2 ** np.array([0.75, 0.5, 0.25]), rel=0.15)


def test_whole_numbers_are_exhausted() -> None:
    """Four values are four points, and the search ends by itself."""

    def snap(shares: Array) -> Array:
        found: Array = (np.minimum(shares * 4, 3) // 1 + 0.5) / 4
        return found

    found = posterior.search(
        lambda shares: shares[:, :, None],
        snap,
        np.array([0.375]),
        np.array([0.01]),
        dimensions=1,
        seed=1,
        points=64,
    )
    assert sorted(found.shares[:, 0]) == [0.125, 0.375, 0.625, 0.875]
    assert set(found.cloud[:, 0]) == {0.375}


def test_the_seeds_noise_counts() -> None:
    """Rows that differ by seed are known to their standard error, not better."""

    def measure(shares: Array) -> Array:
        lot = np.random.default_rng(len(shares))
        found: Array = shares[:, :, None] + lot.normal(0.0, 0.1, (len(shares), 1, 4))
        return found

    found = posterior.search(
        measure,
        lambda shares: shares,
        np.array([0.5]),
        np.array([0.001]),
        dimensions=1,
        seed=1,
        points=32,
    )
    assert found.deviation[0] == pytest.approx(0.05, rel=0.3)


@pytest.mark.skipif("EBB_TRUTHS" not in os.environ, reason="takes minutes of a core a truth")
def test_ranges_cover_the_truth_of_simulated_servers(tmp_path: Path) -> None:
    """The same with `ebb sim`: servers of the example's box, measured with the uncertainties that
    it states; the prediction is of a saving."""
    shutil.copytree(ROOT / "examples" / "server", tmp_path / "server")
    path = tmp_path / "server" / "fit.toml"
    text = path.read_text().replace('leave-out = "source"', "")
    text = re.sub(r"(?m)^held-out = .*\n", "", text)
    path.write_text(f'policy = "native"\n{text}{SAVING}')
    held, predicted = [], []
    for seed in range(1, 1 + int(os.environ["EBB_TRUTHS"])):
        inside, saving = simulated(path, tmp_path / "out", seed)
        held.append(inside)
        predicted.append(saving)
        print(f"truth {seed}: {inside}, saving {saving}; of all {np.mean(held, axis=0).round(2)},")
        print(f"  {np.mean(held):.2f}, savings {np.mean(predicted):.2f}", flush=True)
    assert 0.80 <= np.mean(held) <= 0.97
    assert 0.80 <= np.mean(predicted) <= 0.97


def simulated(path: Path, folder: Path, seed: int) -> tuple[list[bool], bool]:
    """Whether a fit to a simulated server's rows holds each of its parameters, and a saving."""
    lot = np.random.default_rng([seed, 9])
    declared = declaration.read(path)
    ebb = binary.find()
    truth = lot.random((1, len(declared.free)))
    with bench.opened(folder, None, None, False) as runs:
        work = study._Work(declared, ebb, Variants(declared, folder), runs, folder)
        rows = (*declared.baseline, *declared.predictions)
        (found,) = work.each(rows, truth, [9000 + seed], "truth").mean(axis=2)
        *measured, saving = found.tolist()
        noisy = []
        for row, value in zip(declared.baseline, measured, strict=True):
            # As uncertain a share of the number as the example states.
            deviation = value * row.uncertainty / (row.paper or 1.0)
            stated = replace(row, paper=value + deviation * lot.normal(), uncertainty=deviation)
            noisy.append(replace(stated, rounding=0.0))
        work.declared = replace(declared, baseline=tuple(noisy))
        fit = work.fit()
    values = work.values_of(truth)[0]
    low, high = fit.predictions[0].range
    inside = (fit.ranges[:, 0] <= values) & (values <= fit.ranges[:, 1])
    return inside.tolist(), low <= saving <= high
