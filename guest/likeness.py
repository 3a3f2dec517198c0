"""The twin beside the kernel: the same server, load and policy in both, second by second."""

import csv
import subprocess

from acting import Running
from bed import HARDWARE, Failure, expect, until
from steps import PATIENCE

# As in spin.toml; seconds.
START, LENGTH, END = 30, 110, 180
# How far apart both may be: means of duties, temperatures of the busy socket in K, the joules of
# both sockets as a share. The kernel's CPUs also run the physics, Ebb and the kernel itself.
DUTY, KELVIN, ENERGY = 0.05, 3.0, 0.1


def likeness(bed):
    """EADC under one load in the kernel and in the twin: the same duties, temperatures, joules"""
    twin, kernel = in_the_twin(bed), in_the_kernel(bed)
    lines = ["second  duty           reading        watts         (kernel, twin)"]
    for second in range(0, END, 10):
        pairs = zip(kernel[second], twin[second])
        lines.append(f"{second:6}  " + "  ".join(f"{a:6.2f} {b:6.2f}" for a, b in pairs))
    print("# " + "\n# ".join(lines), flush=True)
    joules = [sum(watts for _, _, watts in run) for run in (kernel, twin)]
    print(f"# {joules[0]:.0f} J in the kernel, {joules[1]:.0f} J in the twin")
    apart = [[abs(a - b) for a, b in zip(*pair)] for pair in zip(kernel, twin)]
    duty, kelvin = (sum(second[of] for second in apart) / END for of in (0, 1))
    told = f"duty {duty:.3f}, {kelvin:.2f} K, {joules[0] / joules[1] - 1:+.1%} of energy apart"
    print(f"# on average {told}")
    expect(duty < DUTY and kelvin < KELVIN, told)
    expect(abs(joules[0] / joules[1] - 1) < ENERGY, told)
    expect(max(duty for duty, _, _ in kernel) > 0.3, "the fans had nothing to do")


def in_the_twin(bed):
    """Duty, reading of the busy socket and watts of both, for each second."""
    series = bed.folder / "twin.csv"
    sim = [bed.args.ebb, "sim", "--profile", HARDWARE / "jobs.toml", "--workload",
           HARDWARE / "spin.toml", "--policy", "eadc", "--timeseries", series, "--quiet"]
    done = subprocess.run(sim, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(done.stderr)
    with series.open() as file:
        rows = list(csv.DictReader(file))
    return [[float(row[of] or "nan") for of in (
        "fan0_reported_duty", "socket1_temperature_celsius", "cpu_power_w")]
        for row in rows if float(row["time_s"]) % 1 < 0.25][:END]


def in_the_kernel(bed):
    """The same of the guest."""
    bed.guest.run("kill $(cat /tmp/physics.pid)")
    bed.start_physics("jobs.toml")
    with Running(bed, 'policy = "eadc"'):
        bed.guest.run(f"""until [ $(wc -l < /tmp/truth) -gt {START} ]; do sleep 0.1; done
            for cpu in 4 5 6 7; do
                setsid timeout {LENGTH} taskset -c $cpu sh -c 'while :; do :; done' \\
                    > /dev/null 2>&1 < /dev/null &
            done""")
        until("the time is over", lambda: len(bed.truth()) > END, PATIENCE)
        seconds = bed.truth()
    return [[it["duties"][0], it["readings"][1], sum(it["watts"])] for it in seconds][:END]
