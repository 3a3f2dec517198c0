"""The server loses its power while `ebb run` acts, at random moments: 40 s each."""

import random

import trials
from bed import Failure, expect
from dump import DUMP, same

# What Ebb has saved is on a disk of its own, for the guest's root has no journal: a loss of power may
# leave any of its files unreadable. That of the step before that freezes one.
STATE = "/dev/vdc"
# Of a place there that Ebb has begun to set, and that its policy acts.
TOUCHED, ACTS = '"touched": *true', "grep -qE ' (acting|degraded.*)$' /tmp/said"


def boots(bed):
    """after a loss of power while it acts, `ebb restore` leaves a machine as one that never ran it"""
    bed.guest.run(f"umount /tmp/frozen 2> /dev/null || true; mke2fs -q -F -t ext4 -J size=4 {STATE}")
    power_cycle(bed)
    before = dump(bed)
    for number in bed.results.left("boot", count=bed.args.boots):
        chance = random.Random(f"boot {bed.args.seed} {number}")
        moment, policy = chance.uniform(0, 6), chance.choice(list(trials.POLICIES))
        # From when it has saved what it found, or has set something after the first contact.
        acts = number % 2 == 0
        saved = "[ -e /var/lib/ebb/originals.json ]"
        event = f"{ACTS} && grep -q '{TOUCHED}' /var/lib/ebb/originals.json" if acts else saved
        bed.start_physics(changes=trials.CHANGES)
        bed.guest.run(f"""{trials.BEGIN}
            {trials.WORK}
            cat > /tmp/ebb.toml << 'END'\n{trials.POLICIES[policy]}{trials.HOLD}\nEND
            setsid /tmp/tools/ebb run --apply --config /tmp/ebb.toml > /tmp/said 2>&1 < /dev/null &
            until {event}; do
                kill -0 $! || {{ cat /tmp/said; exit 1; }}
                sleep 0.1
            done
            sleep {moment:.3f}""")
        said = bed.guest.run("cat /tmp/said")
        complaints = bed.guest.complaints()
        expect(not complaints, f"the kernel complains:\n{complaints}")
        power_cycle(bed)
        restored = bed.guest.run("/tmp/tools/ebb restore 2>&1; ls /var/lib/ebb")
        where = f"boot {number} of seed {bed.args.seed}, {policy}, {moment:.3f} s"
        try:
            same(before, dump(bed), f"{restored}\n{said}", boots=True)
            expect("originals.json" not in restored, f"there is more to set back:\n{restored}")
        except Failure as failure:
            raise Failure(f"{where}: {failure}") from None
        expect(not acts or "reset by the restart" in restored, f"{where}: it had set something:\n{restored}")
        bed.results.add("boot", number, told=restored)
        if number % 20 == 19:
            print(f"# {number + 1} of {bed.args.boots} boots", flush=True)
    acted = sum("reset by the restart" in record["told"] for record in bed.results.of("boot").values())
    print(f"# {bed.args.boots} boots of seed {bed.args.seed}; before {acted} of them it had begun to act")


def power_cycle(bed):
    """Power fails and comes back; once more where the emulator gets stuck in the kernel's start,
    before anything of Ebb runs."""
    for last in False, False, True:
        bed.guest.stop()
        bed.switch_on()
        try:
            bed.guest.run("true")
            complaints = bed.guest.complaints()
            expect(not complaints, f"the kernel complains of its start:\n{complaints}")
            break
        except Failure as failure:
            if last:
                raise
            print(f"# power fails once more: {str(failure)[:200]!r}", flush=True)
    bed.begin()
    bed.guest.run(f"mkdir -p /var/lib/ebb && mount {STATE} /var/lib/ebb && chmod 700 /var/lib/ebb")


def dump(bed):
    return bed.guest.run(f"{DUMP}\ndump")
