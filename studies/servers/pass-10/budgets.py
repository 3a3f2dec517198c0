#!/usr/bin/env python3
"""What pass-10 serves within budgets of the whole server's watts: for each workload at the highest
setting of its controller's table, or none, that draws no more (docs/profiles.md).

    python3 studies/servers/pass-10/budgets.py                   all workloads, from 250 to 600 W
    python3 studies/servers/pass-10/budgets.py 265 300           these budgets
    python3 studies/servers/pass-10/budgets.py --commands 265    and the command of each row

The binary is `ebb` of the variable EBB, or target/release/ebb. It takes a minute or two.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
EBB = os.environ.get("EBB", str(HERE.parents[2] / "target/release/ebb"))
BUDGETS = (250, 265, 280, 300, 330, 360, 400, 440, 500, 600)
LOAD, LARGE, CLIENTS = (HERE / f"loads/{name}.toml" for name in ("load", "large", "clients"))
WORKLOADS = {
    "4 KiB reads": (LOAD, "--read", "100%"),
    "4 KiB writes": (LOAD,),
    "4 KiB, 70 % reads": (LOAD, "--read", "70%"),
    "32 KiB writes": (CLIENTS, "--jobs", "5", "--block", "32 KiB"),
    "128 KiB writes": (LARGE,),
}
# Cores, their CPU time together in cores, RAPL limit in watts: the controller's table in its order,
# and no limit.
SETTINGS = [
    *((2, time, 110) for time in (0.05, 0.1, 0.25, 0.35, 0.5, 1.0, 2.0)),
    *((cores, float(cores), 110) for cores in (3, 4, 5, 6)),
    *((8, None, limit) for limit in (*range(110, 132, 2), *range(134, 227, 4))),
    (8, None, None),
]


def command(folder: Path, workload: str, setting: tuple[int, float | None, int | None]) -> list[str]:
    """An `ebb sim` of this setting, whose profile it writes."""
    cores, time, limit = setting
    profile = folder / f"pass-{cores}-{time}-{limit}.toml"
    lines = ['name = "pass-budget"', 'summary = "pass-10 at one setting"', 'base = "pass-10"', "[cpu]"]
    lines += [f"quota = {time}"] if time else []
    lines += [f'power_limit = "{limit} W"'] if limit else []
    profile.write_text("\n".join(lines) + "\n")
    file, *options = WORKLOADS[workload]
    words = [EBB, "sim", "--profile", str(profile), "--workload", str(file), *options]
    # Parking takes effect within the time that does not count; stops of CPU time are 100 ms apart.
    counted = ["--warmup", "500 ms", "--duration", "1500 ms"] if time else ["--duration", "200 ms"]
    return words + counted + (["--policy", f"constant(cores={cores / 8:g})"] if cores < 8 else [])


def simulate(words: list[str]) -> tuple[float, float, float, float]:
    """Watts, kIOPS, GiB/s and p99 in us."""
    ran = subprocess.run([*words, "--json", "-q", "--threads", "1"], capture_output=True, check=False)
    if ran.returncode:
        sys.exit(ran.stderr.decode())
    run = json.loads(ran.stdout)["runs"][0]
    throughput = run["bytes"] / run["seconds"] / 2**30
    return run["mean_watts"], run["iops"] / 1000, throughput, run["latency_us"]["p99"]


def main() -> None:
    words = sys.argv[1:]
    shown = "--commands" in words
    numbers = [word for word in words if word != "--commands"]
    wrong = [word for word in numbers if not word.isdecimal()]
    if wrong:
        print(f"'{wrong[0]}' is no budget in whole watts, such as 265\n{__doc__}", file=sys.stderr)
        sys.exit(2)
    if not Path(EBB).is_file():
        print(f"no binary at {EBB}: cargo build --release, or set EBB", file=sys.stderr)
        sys.exit(2)
    budgets = tuple(int(word) for word in numbers) or BUDGETS
    folder = Path(tempfile.mkdtemp(prefix="pass-budgets-"))
    for workload in WORKLOADS:
        commands = [command(folder, workload, setting) for setting in SETTINGS]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = list(pool.map(simulate, commands))
        print(f"{workload}\n  budget   drawn    kIOPS  GiB/s   p99, us  cores, CPU time, RAPL limit")
        for budget in budgets:
            within = [at for at, each in enumerate(found) if each[0] <= budget]
            if not within:
                print(f"  {budget:4} W   not reached: the least is {min(found)[0]:.0f} W")
                continue
            best = max(within)
            watts, rate, throughput, p99 = found[best]
            cores, time, limit = SETTINGS[best]
            told = f"{cores}, {time or 'all'}, {f'{limit} W' if limit else 'none'}"
            print(f"  {budget:4} W  {watts:4.0f} W  {rate:7.1f}  {throughput:5.2f}  {p99:8.0f}  {told}")
            if shown:
                print(f"          {shlex.join(commands[best])}")


if __name__ == "__main__":
    main()
