"""Six reactors of `ebb serve` under this kernel's own initiator: more cores than a machine that
checks Ebb may have."""

from bed import expect, until
from steps import PATIENCE

# Of the guest's own loopback: 127.0.0.1 is this machine's there.
PLACE = "127.0.0.2"
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
        bed.guest.run(f"""ip link set lo up
            ip addr replace {PLACE}/32 dev lo
            setsid /tmp/tools/ebb serve --cores 0-{CORES - 1} --nqn {NQN} --listen {PLACE}:4420 \\
                --metrics {PLACE}:9420 --max-connections 32 --buffers 64 --namespace ram:32MiB \\
                > /tmp/reactors 2>&1 < /dev/null &
            echo $! > /tmp/reactors.pid""")
        until("it serves", lambda: "metrics on" in bed.guest.run(
            "cat /tmp/reactors; kill -0 $(cat /tmp/reactors.pid)"), PATIENCE)

    def cores(self):
        """Seconds asleep and awake, and whether it was asked anything, by core."""
        told = self.bed.guest.json(f"/tmp/tools/ebb status {PLACE}:9420 --json")
        expect(len(told["cores"]) == CORES, told["cores"])
        asleep = [sum(core["asleep_s"].values()) for core in told["cores"]]
        awake = [core["busy_s"] + core["wasted_s"] for core in told["cores"]]
        return asleep, awake, told

    def rest(self):
        """How much of three seconds the core sleeps that sleeps least."""
        before = self.cores()
        self.bed.guest.run("sleep 3")
        after = self.cores()
        asleep, awake = ([b - a for a, b in zip(before[at], after[at])] for at in (0, 1))
        return min(one / max(one + other, 1e-9) for one, other in zip(asleep, awake))

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
        before = [core["busy_s"] for core in served.cores()[2]["cores"]]
        bed.guest.run(f"{FIO} --filename=/dev/{disk}")
        told = bed.guest.json("sed -n '/^{/,$p' /tmp/burst.json")["jobs"][0]
        after = served.cores()[2]["cores"]
        worked = sum(core["busy_s"] - was > 0.01 for core, was in zip(after, before))
        expect(told["read"]["total_ios"] and told["write"]["total_ios"], told)
        expect(worked > 1, f"burst {number}: one core served it: {after}")
        print(f"# burst {number}: {worked} of {CORES} cores, "
              f"{told['read']['total_ios'] + told['write']['total_ios']} requests", flush=True)
    served.rests()
    bed.guest.run(f"nvme disconnect -n {NQN}; kill $(cat /tmp/reactors.pid)")
    until("it ends", lambda: "I/O commands in" in bed.guest.run("cat /tmp/reactors"), PATIENCE)
