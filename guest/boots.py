"""The server is reset while `ebb run` acts, at random moments, many times: half a minute each."""

import random

import server
import trials
from bed import Failure, expect
from dump import DUMP, same


class Bed(server.Bed):
    """The same server."""


def boots(bed):
    """after a reset while it acts, `ebb restore` leaves a machine as one that never ran it"""
    before = dump(bed)
    for number in bed.results.left("boot", count=bed.args.trials):
        moment = random.Random(f"boot {bed.args.seed} {number}").uniform(0, 6)
        bed.start_physics()
        bed.guest.run(f"""mkdir -p /var/lib/ebb
            cat > /tmp/ebb.toml << 'END'\n{trials.CONFIG}\nEND
            setsid /tmp/tools/ebb run --apply --config /tmp/ebb.toml > /tmp/said 2>&1 < /dev/null &
            for try in $(seq 300); do [ -e /var/lib/ebb/originals.json ] && break || sleep 0.1; done
            sleep {moment:.3f}""")
        bed.guest.reset()
        server.begin(bed)
        told = bed.guest.run("/tmp/tools/ebb restore 2>&1; ls /var/lib/ebb")
        where = f"boot {number} of seed {bed.args.seed}, {moment:.3f} s"
        try:
            same(before, dump(bed), told)
            expect("originals" not in told, f"there is more to set back:\n{told}")
        except Failure as failure:
            raise Failure(f"{where}: {failure}") from None
        bed.results.add("boot", number, told=told)
        if number % 20 == 19:
            print(f"# {number + 1} of {bed.args.trials} boots", flush=True)
    touched = sum("originals" in record["told"] or "->" in record["told"]
                  for record in bed.results.of("boot").values())
    print(f"# {bed.args.trials} boots of seed {bed.args.seed}; in {touched} something was set back")


def dump(bed):
    return bed.guest.run(f"{DUMP}\ndump")


SHORT = STEPS = [server.boot, boots, server.farewell]
