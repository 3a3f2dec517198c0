"""Six reactors of `ebb serve` under this kernel's own initiator: more cores than a machine that
checks Ebb may have."""

from bed import expect, until
from frozen import PLACE, loopback
from steps import PATIENCE

CORES, BURSTS = 6, 3
NQN = "nqn.2014-08.org.nvmexpress:uuid:6562622d-6775-4573-8400-000000000200"
# A burst, verified when all is written.
FIO = "fio --name=burst --direct=1 --ioengine=libaio --rw=randrw --bs=4k --iodepth=16 --size=2m " \
    "--numjobs=8 --offset_increment=2m --verify=crc32c --verify_fatal=1 --group_reporting " \
    "--output-format=json --output=/tmp/burst.json"
# Of a core's time without any load, how much it sleeps at least.
RESTS = 0.95


class Reactors:
    """The target, in the guest."""

    def __init__(self, bed):
        self.bed = bed
        loopback(bed)
        bed.guest.run(f"""setsid /tmp/tools/ebb serve --cores 0-{CORES - 1} --nqn {NQN} --listen {PLACE}:4420 \\
                --metrics {PLACE}:9420 --max-connections 32 --buffers 64 --namespace ram:32MiB \\
                > /tmp/reactors 2>&1 < /dev/null &
            echo $! > /tmp/reactors.pid""")
        until("it serves", lambda: "metrics on" in bed.guest.run(
            "cat /tmp/reactors; kill -0 $(cat /tmp/reactors.pid)"), PATIENCE)

    def cores(self):
        """What each core did so far."""
        cores = self.bed.guest.json(f"/tmp/tools/ebb status {PLACE}:9420 --json")["cores"]
        expect(len(cores) == CORES, cores)
        return cores

    def rest(self):
        """How much of three seconds the core sleeps that sleeps least."""
        before = self.cores()
        self.bed.guest.run("sleep 3")

        def share(core, was):
            asleep = sum(core["asleep_s"].values()) - sum(was["asleep_s"].values())
            awake = sum(core[of] - was[of] for of in ("busy_s", "wasted_s"))
            return asleep / max(asleep + awake, 1e-9)

        return min(map(share, self.cores(), before))

    def rests(self):
        until(f"all cores sleep {RESTS:.0%} of the time", lambda: self.rest() >= RESTS, PATIENCE)


def reactors(bed):
    """six reactors rest while a kernel's host is silent, share its bursts, and rest again"""
    served = Reactors(bed)
    bed.guest.run(f"nvme connect -t tcp -a {PLACE} -s 4420 -n {NQN}")
    find = f"cd /sys/class/nvme; grep -l {NQN} nvme*/subsysnqn | cut -d/ -f1"
    disk = until("the disk is there", lambda: bed.guest.run(
        f"basename $(ls -d /sys/class/nvme-subsystem/*/$({find} | sed s/nvme/nvme*/)n1) || true"),
        PATIENCE)
    for number in range(BURSTS):
        served.rests()
        before = served.cores()
        bed.guest.run(f"{FIO} --filename=/dev/{disk}")
        told = bed.guest.json("sed -n '/^{/,$p' /tmp/burst.json")["jobs"][0]
        after = served.cores()
        worked = sum(core["busy_s"] - was["busy_s"] > 0.01 for core, was in zip(after, before))
        expect(told["read"]["total_ios"] and told["write"]["total_ios"], told)
        expect(worked > 1, f"burst {number}: one core served it: {after}")
        print(f"# burst {number}: {worked} of {CORES} cores, "
              f"{told['read']['total_ios'] + told['write']['total_ios']} requests", flush=True)
    served.rests()
    bed.guest.run(f"nvme disconnect -n {NQN}; kill $(cat /tmp/reactors.pid)")
    until("it ends", lambda: "I/O commands in" in bed.guest.run("cat /tmp/reactors"), PATIENCE)
