"""`ebb-lab plan`: how many of which servers a trace takes, and what they draw, cost and emit.

For each candidate the least number of servers is sought whose busiest one keeps the p99 latency
under the first policy; then every policy is simulated on that number of them, for several seeds.
A seed lays out the data anew and is the simulation's. All of it is modelled: what varies over
seeds is layout and chance, not how well the profile is like the server.
"""

from __future__ import annotations

import dataclasses
import math
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ebb_lab import binary, fields, placement, simulating, statistics, text
from ebb_lab.binary import Binary
from ebb_lab.errors import LabError
from ebb_lab.grid import Job, digest

if TYPE_CHECKING:
    import pyarrow as pa

HOURS_A_YEAR = 8_760
#: Servers simulated of each seed: the busiest, and so many of the others drawn by lot.
OTHERS = 3


@dataclass(frozen=True)
class Candidate:
    """A server that could be bought. Price and capacity are the planner's, where given."""

    profile: str
    price: float | None = None
    holds_bytes: float | None = None


@dataclass(frozen=True)
class Question:
    """What is planned for."""

    traces: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    policies: tuple[str, ...] = ("native",)
    p99_us: float = 10_000.0
    years: float = 5.0
    energy_price: float = 0.25
    currency: str = "EUR"
    carbon_g_per_kwh: float = 300.0
    pue: float = 1.0
    data_bytes: float | None = None
    seeds: int = 10
    most: int = 64
    #: Words for `ebb trace convert`, such as --rate-scale=10.
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Range:
    """Median over seeds and the bootstrap interval of that median."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """One candidate under one policy. Power, energy and latency are modelled."""

    profile: str
    policy: str
    servers: int
    #: Why so many: `latency`, or `capacity` where the data take more.
    because: str
    watts: Range
    kwh: Range
    energy_cost: Range
    #: With the servers' price where that is known.
    cost: Range
    hardware_known: bool
    co2_kg: Range
    #: Of the busiest server.
    p50_us: Range
    p99_us: Range
    keeps_p99: bool
    #: Seeds in which the busiest server's mean latency rose by more than is tolerated (plf).
    seeds_beyond_plf: int


@dataclass(frozen=True)
class Plan:
    """The answer. `impossible` names candidates that no number up to the limit makes fit."""

    question: Question
    requests: int
    trace_seconds: float
    rows: tuple[Row, ...]
    impossible: tuple[tuple[str, str], ...]
    conclusion: str
    notes: tuple[str, ...]


def plan(question: Question, workers: int | None = None) -> Plan:
    """Answers the question; `LabError` where it cannot be answered as it is asked."""
    _check(question)
    ebb = binary.find()
    count = workers or len(os.sched_getaffinity(0))
    with (
        tempfile.TemporaryDirectory(prefix="ebb-lab-") as folder,
        ThreadPoolExecutor(count) as pool,
    ):
        words = [*question.traces, *question.options]
        requests = placement.convert(ebb, words, Path(folder) / "trace.parquet")
        bench = _Bench(question, ebb, requests, Path(folder), pool)
        rows: list[Row] = []
        costs: dict[str, list[float]] = {}
        impossible = []
        for candidate in question.candidates:
            least = _least(bench, candidate)
            if isinstance(least, str):
                impossible.append((candidate.profile, least))
                continue
            for row, samples in _settled(bench, candidate, *least):
                rows.append(row)
                costs[f"{row.profile} under {row.policy}"] = samples
    span = requests["at_ns"].to_numpy()
    return Plan(
        question=question,
        requests=len(requests),
        trace_seconds=float(span.max() - span.min()) / 1e9,
        rows=tuple(rows),
        impossible=tuple(impossible),
        conclusion=_conclusion(rows, costs),
        notes=tuple(_notes(question, rows)),
    )


class _Bench:
    """Simulates servers that share the trace."""

    def __init__(
        self,
        question: Question,
        ebb: Binary,
        requests: pa.Table,
        folder: Path,
        pool: ThreadPoolExecutor,
    ) -> None:
        self.question, self.ebb, self.requests = question, ebb, requests
        self.folder, self.pool = folder, pool

    def shards(self, servers: int, seed: int) -> list[tuple[Path, bool]]:
        """Traces of the busiest server, marked so, and of some others by lot."""
        at = placement.places(self.requests, servers, seed)
        load = np.bincount(at, minlength=servers)
        busiest = int(load.argmax())
        others = [server for server in range(servers) if server != busiest and load[server]]
        random = np.random.default_rng(seed)
        drawn = sorted(random.permutation(others)[:OTHERS]) if others else []
        found = []
        for server in [busiest, *map(int, drawn)]:
            path = self.folder / f"{servers}-{seed}-{server}.parquet"
            if not path.exists():
                placement.write(self.requests, at == server, path)
            found.append((path, server == busiest))
        return found

    def simulate(
        self, profile: str, trace: Path, seed: int, policies: Sequence[str], settled: bool = True
    ) -> list[dict[str, Any]]:
        """The runs of these policies on one server, as `ebb sim --json` has them: `settled`, or
        the trace once as it is, for its latencies."""
        how = "--loop" if settled else "--warmup=0s"
        words = (f"--profile={profile}", f"--trace={trace}", "--fold", how, f"--seed={seed}")
        job = Job(
            key="",
            words=(*words, *(f"--policy={policy}" for policy in policies)),
            folder=str(Path.cwd()),
            files=((str(trace), digest(trace, "plan")),),
            ebb_sha256=self.ebb.sha256,
            labels=(("profile", profile), ("seed", str(seed))),
        )
        record = simulating.simulate(job)
        if "error" in record:
            raise LabError("plan", record["error"], "Correct it, or leave the candidate out")
        runs: list[dict[str, Any]] = record["result"]["runs"]
        for run in runs:
            if settled and "unsettled" in run:
                raise LabError(
                    f"plan, {job.title}",
                    f"nothing is known of a year: {run['unsettled']}",
                    "Leave out the policy, or the candidate",
                )
            if "trip" in run:
                raise LabError(
                    f"plan, {job.title}",
                    f"the server switches itself off for heat under {run['policy']}",
                    "Leave out the policy or the candidate",
                )
        return runs


def _least(bench: _Bench, candidate: Candidate) -> tuple[int, str] | str:
    """The least number of servers and what sets it, or why there is none."""
    question = bench.question
    floor = 1
    if question.data_bytes and candidate.holds_bytes:
        floor = max(1, math.ceil(question.data_bytes / candidate.holds_bytes))
    if floor > question.most:
        return f"the data take {floor} servers, more than --most {question.most}"

    def p99(servers: int) -> float:
        (trace, _), *_ = bench.shards(servers, 1)
        (run,) = bench.simulate(candidate.profile, trace, 1, question.policies[:1], settled=False)
        return float(run["latency_us"]["p99"])

    below, servers = floor - 1, floor
    while (found := p99(servers)) > question.p99_us:
        if servers == question.most:
            return f"p99 is {found:.0f} µs with {servers} servers"
        below, servers = servers, min(servers * 2, question.most)
    while servers - below > 1:
        middle = (below + servers) // 2
        if p99(middle) > question.p99_us:
            below = middle
        else:
            servers = middle
    return servers, "capacity" if servers == floor > 1 else "latency"


def _settled(
    bench: _Bench, candidate: Candidate, servers: int, because: str
) -> list[tuple[Row, list[float]]]:
    """The rows of as many servers as keep the limit over all seeds, not in the first alone."""
    while True:
        rows = _rows(bench, candidate, servers, because)
        if rows[0][0].keeps_p99 or servers >= bench.question.most:
            return rows
        servers, because = min(servers + max(1, servers // 10), bench.question.most), "latency"


def _rows(
    bench: _Bench, candidate: Candidate, servers: int, because: str
) -> list[tuple[Row, list[float]]]:
    """A row for each policy, with its costs of each seed."""
    question = bench.question
    seeds = range(1, question.seeds + 1)
    work = [(seed, *shard) for seed in seeds for shard in bench.shards(servers, seed)]
    results = bench.pool.map(
        lambda one: bench.simulate(candidate.profile, one[1], one[0], question.policies), work
    )
    runs = list(zip(work, results, strict=True))
    found = []
    for index, policy in enumerate(question.policies):
        watts, p50, p99, beyond = [], [], [], 0
        for seed in seeds:
            mine = [(busiest, r[index]) for (s, _, busiest), r in runs if s == seed]
            (first,) = [run for busiest, run in mine if busiest]
            others = [run["mean_watts"] for busiest, run in mine if not busiest]
            # Servers without any request draw what the least busy one does, about.
            rest = float(np.mean(others)) if others else first["mean_watts"]
            watts.append(first["mean_watts"] + (servers - 1) * rest)
            p50.append(first["latency_us"]["p50"])
            p99.append(first["latency_us"]["p99"])
            beyond += first["sla_kept"] is False
        found.append(_row(question, candidate, policy, servers, because, watts, p50, p99, beyond))
    return found


def _row(
    question: Question,
    candidate: Candidate,
    policy: str,
    servers: int,
    because: str,
    watts: list[float],
    p50: list[float],
    p99: list[float],
    beyond: int,
) -> tuple[Row, list[float]]:
    kwh = [each / 1000 * HOURS_A_YEAR * question.years * question.pue for each in watts]
    energy_cost = [each * question.energy_price for each in kwh]
    hardware = servers * (candidate.price or 0.0)
    cost = [each + hardware for each in energy_cost]
    latency = _range(p99)
    row = Row(
        profile=candidate.profile,
        policy=policy,
        servers=servers,
        because=because,
        watts=_range(watts),
        kwh=_range(kwh),
        energy_cost=_range(energy_cost),
        cost=_range(cost),
        hardware_known=candidate.price is not None,
        co2_kg=_range([each * question.carbon_g_per_kwh / 1000 for each in kwh]),
        p50_us=_range(p50),
        p99_us=latency,
        keeps_p99=latency.median <= question.p99_us,
        seeds_beyond_plf=beyond,
    )
    return row, cost


def _range(values: list[float]) -> Range:
    low, high = statistics.median_interval(values)
    return Range(float(np.median(values)), low, high)


def _conclusion(rows: list[Row], costs: dict[str, list[float]]) -> str:
    """The cheapest that keeps the limit, and whether its lead is shown."""
    fit = [row for row in rows if row.keeps_p99]
    if not fit:
        return "no candidate keeps the p99 latency"
    from statsmodels.stats.multitest import multipletests

    best = min(fit, key=lambda row: row.cost.median)
    name = f"{best.profile} under {best.policy}"
    told = f"{best.servers} x {name} costs least"
    rivals = {f"{row.profile} under {row.policy}" for row in fit} - {name}
    if not rivals:
        return told
    # Each rival against the best alone: among many groups Dunn's ranks would say less.
    names = sorted(rivals)
    pairs = [{name: costs[name], rival: costs[rival]} for rival in names]
    raw = [statistics.compare(pair, experiment="plan", value="cost").kruskal_p for pair in pairs]
    shown = multipletests(raw, alpha=0.05, method="holm")[0]
    alike = [rival for rival, different in zip(names, shown, strict=True) if not different]
    if alike:
        return f"{told}; no difference in cost shown to {', '.join(alike)}"
    return f"{told}; its difference to every other is shown (Kruskal-Wallis, Holm, alpha 0.05)"


def _notes(question: Question, rows: list[Row]) -> list[str]:
    notes = [
        "everything is modelled; the trace is taken for the load of all years, and played again "
        "and again where policies settle later than it ends",
        "intervals are over layout and chance (seeds), not over how true profiles are",
        f"data are laid on servers in extents of {placement.EXTENT >> 20} MiB; latency is that of "
        "the busiest server; power is that of it and of others drawn at random",
    ]
    if not all(candidate.holds_bytes for candidate in question.candidates):
        notes.append("whether the data fit is not checked where 'holds' is not stated")
    if rows and not all(row.hardware_known for row in rows):
        notes.append("costs are of energy alone where a server's price is not stated")
    notes += [
        f"{row.policy} on {row.profile} saves at a price: in {row.seeds_beyond_plf} of "
        f"{question.seeds} seeds it raises the busiest server's mean latency by more than is "
        "tolerated (plf)"
        for row in rows
        if row.seeds_beyond_plf
    ]
    if any(not row.keeps_p99 for row in rows):
        notes.append("numbers are for the first policy; another may not keep the p99 with as few")
    return notes


def _check(question: Question) -> None:
    if not question.candidates:
        raise LabError("--candidate", "there is none", "'ebb sim --list' names profiles")
    priced = [each.price is not None for each in question.candidates]
    if any(priced) and not all(priced):
        unpriced = question.candidates[priced.index(False)].profile
        raise LabError(
            f"--candidate {unpriced}", "has no price, others have", "State all prices, or none"
        )
    if len({each.profile for each in question.candidates}) < len(question.candidates):
        raise LabError("--candidate", "one is there twice", "Name each once")
    if len(set(question.policies)) < len(question.policies):
        raise LabError("--policy", "one is there twice", "Name each once")
    if question.seeds < statistics.MIN_REPEATS:
        raise LabError(
            "--seeds", f"{question.seeds} are too few", f"At least {statistics.MIN_REPEATS}"
        )
    for name, value in (
        ("--p99", question.p99_us),
        ("--years", question.years),
        ("--most", question.most),
    ):
        if not value > 0 or not math.isfinite(value):
            raise LabError(name, f"{value:g} is not above 0", "State a positive number")
    for name, value in (
        ("--energy-price", question.energy_price),
        ("--carbon", question.carbon_g_per_kwh),
    ):
        if value < 0 or not math.isfinite(value):
            raise LabError(name, f"{value:g} is below 0", "State 0 or more")
    if not 1 <= question.pue < math.inf:
        raise LabError("--pue", f"{question.pue:g} is below 1", "Such as 1.2")


def candidate(words: str) -> Candidate:
    """From words such as `asg-1115s, price=12000, holds=61 TB`."""
    profile, *rest = [part.strip() for part in words.split(",")]
    known: dict[str, float] = {}
    for part in rest:
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if name == "price" and sign:
            known["price"] = fields.scaled(value, {"": 1.0}, f"--candidate {words}: price")
        elif name == "holds" and sign:
            known["holds_bytes"] = fields.scaled(value, fields.BYTES, f"--candidate {words}: holds")
        else:
            raise LabError(
                f"--candidate {words}", f"'{part}' is unknown", "There are price=NUMBER, holds=SIZE"
            )
    return Candidate(profile, **known)


def tell(answer: Plan) -> str:
    """The plan for people: the answer, a table, what could not be made to fit, and notes."""
    return "\n".join(
        [
            f"Modelled: {answer.conclusion}.",
            text.table(HEADER, table(answer)),
            *(f"  {name} does not fit: {reason}" for name, reason in answer.impossible),
            f"  {assumptions(answer)}",
            *(f"  Note: {note}." for note in answer.notes),
        ]
    )


HEADER = (
    *("server", "policy", "number", "power (W)", "energy (kWh)", "cost", "CO2 (t)"),
    *("p50 (ms)", "p99 (ms)", "p99 kept"),
)


def table(answer: Plan) -> list[tuple[str, ...]]:
    """The rows as text, medians with their intervals."""

    def told(value: Range, factor: float = 1.0, digits: int = 4) -> str:
        median, low, high = (
            text.number(each * factor, digits) for each in (value.median, value.low, value.high)
        )
        return f"{median} ({low} … {high})"

    return [
        (
            row.profile,
            row.policy,
            f"{row.servers} ({row.because})",
            told(row.watts),
            told(row.kwh),
            f"{told(row.cost)} {answer.question.currency}",
            told(row.co2_kg, 1e-3, 3),
            told(row.p50_us, 1e-3, 3),
            told(row.p99_us, 1e-3, 3),
            "yes" if row.keeps_p99 else "no",
        )
        for row in answer.rows
    ]


def assumptions(answer: Plan) -> str:
    """What was asked, in a sentence."""
    asked, seconds = answer.question, answer.trace_seconds
    length = f"{seconds:.2g} s" if seconds < 10 else text.duration(seconds)
    return (
        f"{answer.requests:,} requests in {length}; p99 at most "
        f"{asked.p99_us / 1000:g} ms; {asked.years:g} years, {asked.energy_price:g} "
        f"{asked.currency}/kWh, {asked.carbon_g_per_kwh:g} g CO2/kWh, PUE {asked.pue:g}; medians "
        f"of {asked.seeds} seeds with 95% intervals"
    )


def as_json(answer: Plan) -> dict[str, Any]:
    """What `--json` prints (docs/json-schema/lab-plan-1.json)."""
    return {"schema": 1, "simulated": True} | dataclasses.asdict(answer)
