"""The server loses its power while `ebb run` acts, at random moments, many times: 40 s each."""

import random
import subprocess

import server
import trials
from bed import Failure, expect
from dump import DUMP, same

# The disk of the state counts in a budget, with the most that it can draw.
CONFIG = trials.CONFIG.replace("82 W", "102 W")


class Bed(server.Bed):
    """The same server."""

    @property
    def setup(self):
        return [boot]


def boots(bed):
    """after a loss of power while it acts, `ebb restore` leaves a machine as one that never ran it"""
    before = dump(bed)
    for number in bed.results.left("boot", count=bed.args.trials):
        moment = random.Random(f"boot {bed.args.seed} {number}").uniform(0, 6)
        bed.start_physics()
        bed.guest.run(f"""cat > /tmp/ebb.toml << 'END'\n{CONFIG}\nEND
            setsid /tmp/tools/ebb run --apply --config /tmp/ebb.toml > /tmp/said 2>&1 < /dev/null &
            until [ -e /var/lib/ebb/originals.json ]; do
                kill -0 $! || {{ cat /tmp/said; exit 1; }}
                sleep 0.1
            done
            sleep {moment:.3f}""")
        said = bed.guest.run("cat /tmp/said")
        complaints = bed.guest.complaints()
        expect(not complaints, f"the kernel complains:\n{complaints}")
        power_cycle(bed)
        restored = bed.guest.run("/tmp/tools/ebb restore 2>&1; ls /var/lib/ebb")
        where = f"boot {number} of seed {bed.args.seed}, {moment:.3f} s"
        try:
            same(before, dump(bed), f"{restored}\n{said}", boots=True)
            expect("originals.json" not in restored, f"there is more to set back:\n{restored}")
        except Failure as failure:
            raise Failure(f"{where}: {failure}") from None
        bed.results.add("boot", number, told=restored)
        if number % 20 == 19:
            print(f"# {number + 1} of {bed.args.trials} boots", flush=True)
    saved = sum("reset by the restart" in record["told"] for record in bed.results.of("boot").values())
    print(f"# {bed.args.trials} boots of seed {bed.args.seed}; before {saved} of them it had begun to act")
    expect(saved > 0, "it never had begun to act: there was nothing to prove")


def boot(bed):
    """the server boots with a disk of its own for what Ebb has saved"""
    # The guest's root has no journal: a reset may leave any of its files unreadable.
    disk = bed.folder.with_suffix(".state")
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-J", "size=4", disk, "16m"],
                   stdout=subprocess.DEVNULL, check=True)
    server.boot(bed, [f"file={disk},format=raw"])
    begin(bed)


def power_cycle(bed):
    """Power fails and comes back; once more where the emulator gets stuck in the kernel's start,
    before anything of Ebb runs."""
    for last in False, False, True:
        bed.guest.stop()
        server.switch_on(bed)
        try:
            bed.guest.run("true")
            complaints = bed.guest.complaints()
            expect(not complaints, f"the kernel complains of its start:\n{complaints}")
            break
        except Failure as failure:
            if last:
                raise
            print(f"# power fails once more: {str(failure)[:200]!r}", flush=True)
    server.begin(bed)
    begin(bed)


def begin(bed):
    """After a start of the kernel and `server.begin`."""
    bed.guest.run("mkdir -p /var/lib/ebb && mount /dev/vdc /var/lib/ebb && chmod 700 /var/lib/ebb")


def dump(bed):
    return bed.guest.run(f"{DUMP}\ndump")


SHORT = STEPS = [boot, boots, server.farewell]
