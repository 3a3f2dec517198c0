"""A small copy of a machine's files, on which `ebb run` can act."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

CPU = "sys/devices/system/cpu"
DOMAIN = f"{CPU}/cpufreq/policy0"
METER = "sys/class/hwmon/hwmon4/power1_average"


class Machine:
    """Four cores with frequencies, a disk, a meter at the wall."""

    def __init__(self, folder: Path) -> None:
        self.root, self.state = folder / "root", folder / "state"
        self.config = folder / "ebb.toml"
        self.config.write_text('period = "100 ms"\n')
        cores = range(4)
        files: dict[str, object] = {
            "proc/sys/kernel/random/boot_id": "a6dfd9b5",
            "proc/stat": "\n".join(f"cpu{n} 1 0 0 9" for n in cores),
            "proc/diskstats": "8 0 sda 1 0 8 1 1 0 8 1 0 2 2",
            f"{CPU}/online": "0-3",
            "sys/class/hwmon/hwmon4/name": "power_meter",
            METER: 200_000_000,
            "sys/block/sda/device/wwid": "naa.5000c500d5f1a2b3",
            "sys/block/sda/stat": "1 0 8 1 1 0 8 1 0 2 2",
            "sys/block/sda/size": 35_156_656_128,
            "sys/block/sda/queue/rotational": 1,
        }
        for core in cores:
            domain = f"{CPU}/cpufreq/policy{core}"
            files |= {f"{CPU}/cpu{core}/topology/physical_package_id": 0}
            files |= {f"{domain}/{edge}_min_freq": 1_000_000 for edge in ("cpuinfo", "scaling")}
            files |= {f"{domain}/{edge}_max_freq": 3_000_000 for edge in ("cpuinfo", "scaling")}
            files |= {f"{domain}/related_cpus": core, f"{domain}/scaling_cur_freq": 3_000_000}
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(str(text))

    def frequencies(self) -> list[str]:
        """The limits of the first core."""
        edges = (self.root / DOMAIN / f"scaling_{edge}_freq" for edge in ("min", "max"))
        return [edge.read_text().strip() for edge in edges]

    @property
    def is_slow(self) -> bool:
        """Whether a policy has lowered its frequency."""
        return self.frequencies()[1] not in ("", "3000000")

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Disk and cores have something to do; the meter says 40 W less while they are slow."""
        ended = threading.Event()

        def work() -> None:
            done = 0
            # What is written over is never longer, so that no reader sees half of a line.
            with (
                (self.root / "proc/diskstats").open("r+") as counters,
                (self.root / METER).open("r+") as meter,
                (self.root / "proc/stat").open("r+") as cores,
            ):
                while not ended.wait(0.02):
                    done += 10
                    less = 40_000_000 * self.is_slow
                    for file in (counters, meter, cores):
                        file.seek(0)
                    counters.write(f"8 0 sda {done} 0 {8 * done} {done} 0 0 0 0 0 {done} {done}\n")
                    meter.write(str(200_000_000 - less + done % 7 * 100_000))
                    cores.write("".join(f"cpu{n} {done} 0 0 {9 * done}\n" for n in range(4)))
                    for file in (counters, meter, cores):
                        file.flush()

        worker = threading.Thread(target=work)
        worker.start()
        try:
            yield
        finally:
            ended.set()
            worker.join()
