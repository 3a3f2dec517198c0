"""What the guest does with the target, in order; each step builds on those before it."""

import base64
import json
import re
import subprocess
import zlib

from cuts import power_cuts
from bed import ADDRESS, Failure, Guest, Skip, Target, expect, until

HOST = "nqn.2014-08.org.nvmexpress:uuid:6562622d-6775-4573-8400-000000000001"
# Namespaces of the target of the first steps.
RAM, NULL, MODELLED, FILE = 1, 2, 3, 4
# Seconds; how long the slowest machine may take, not how long anything should.
PATIENCE = 300


class Bed:
    """The guest, and the target it talks to at the moment."""

    def __init__(self, args, folder, image):
        self.ebb, self.folder, self.image, self.cuts = args.ebb, folder, image, args.cuts
        self.guest = self.target = self.socket = None
        self.durable = True

    def serve(self, name, *options):
        """Starts a target in place of the one before, which the guest leaves whatever it is at."""
        self.guest.run("nvme disconnect-all")
        if self.target is not None:
            self.target.stop()
            self.target = None
        self.target = Target(self.ebb, self.folder, name, *options)
        return self.target

    def serve_changing(self, name, *options):
        """The same for a target that `ebb ctl` changes."""
        self.socket = self.folder / "ctl.sock"
        return self.serve(name, "--control", str(self.socket), *options)

    def ctl(self, *command):
        """Changes the target; what it answers."""
        command = [self.ebb, "ctl", "--json", "--socket", self.socket, *command]
        told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        if told.returncode != 0:
            raise Failure(f"{command} ended with code {told.returncode}: {told.stderr}")
        return json.loads(told.stdout)

    def lasting(self):
        """A disk whose data is in a file, or in memory where files cannot be served."""
        return self.disks()[FILE if self.durable else RAM]

    def file(self, name, size="64MiB"):
        return f"file:{self.folder / name},create,size={size}"

    def connect(self, *options):
        """Connects to the target; the names of its namespaces' disks, by identifier."""
        target = self.target
        self.guest.run(
            f"nvme connect -t tcp -a {ADDRESS} -s {target.port} -n {target.nqn} {' '.join(options)}"
        )
        return self.disks()

    def disks(self):
        """The disks of the target's namespaces, /dev/nvmeXnY by NSID, once all are there."""

        def found():
            told = self.guest.run("grep -s . /sys/block/nvme*n*/nsid || true")
            disks = re.findall(r"/(nvme\d+n\d+)/nsid:(\d+)", told)
            if len(disks) == self.target.namespaces:
                return {int(nsid): f"/dev/{disk}" for disk, nsid in disks}
            return None

        return until("the guest sees all namespaces", found, PATIENCE)

    def controller(self):
        """The controller's device, /dev/nvmeX."""
        script = f"grep -lx {self.target.nqn} /sys/class/nvme/*/subsysnqn"
        return "/dev/" + self.guest.run(script).split("/")[4]

    def disconnect(self):
        """Disconnects, after which the target must have no connection left."""
        self.guest.run(f"nvme disconnect -n {self.target.nqn}")
        until("all connections are gone", lambda: self.target.connections() == 0, PATIENCE)
        expect(self.target.alive(), "the target is dead")

    def close(self):
        if self.guest is not None:
            self.guest.stop()
        if self.target is not None and self.target.alive():
            self.target.kill()


def fio(disk, name, *options):
    """A fio command that verifies what it writes."""
    common = "--direct=1 --ioengine=libaio --verify=crc32c --verify_fatal=1 --group_reporting"
    return f"fio --name={name} --filename={disk} {common} {' '.join(options)}"


def boot(bed):
    """the guest boots and the target starts"""
    bed.guest = Guest(bed.image, bed.folder)
    versions = bed.guest.run("uname -sr; nvme version | head -n 1; fio --version")
    print("# " + versions.replace("\n", ", "))
    bed.guest.run(f"mkdir -p /etc/nvme; echo {HOST} > /etc/nvme/hostnqn; cut -d: -f3 "
                  "/etc/nvme/hostnqn > /etc/nvme/hostid")
    options = ["--scheduler", "interrupt"]
    for namespace in "ram:96MiB", "null:1GiB,block=512B", "modelled:64MiB":
        options += "--namespace", namespace
    try:
        bed.serve("target", *options, "--namespace", bed.file("disk.img"))
    except Failure as failure:
        if "io_uring" not in str(failure):
            raise
        bed.durable = False
        bed.serve("target", *options)


def discover(bed):
    """nvme discover finds the subsystem and the discovery service"""
    target = bed.target
    records = bed.guest.json(f"nvme discover -t tcp -a {ADDRESS} -s {target.port} -o json")
    records = {record["subnqn"]: record for record in records["records"]}
    expect(set(records) == {target.nqn, "nqn.2014-08.org.nvmexpress.discovery"}, records)
    subsystem = records[target.nqn]
    place = subsystem["trtype"], subsystem["traddr"], subsystem["trsvcid"]
    expect(place == ("tcp", ADDRESS, str(target.port)), subsystem)
    until("discovery has ended", lambda: target.connections() == 0, PATIENCE)


def connect_all(bed):
    """nvme connect-all connects by discovery, with a queue for each CPU"""
    bed.guest.run(f"nvme connect-all -t tcp -a {ADDRESS} -s {bed.target.port}")
    disks = bed.disks()
    expect(sorted(disks) == [RAM, NULL, MODELLED, FILE][: 3 + bed.durable], disks)
    expect(bed.target.connections() == 3, f"{bed.target.connections()} connections, not 3")


def listing(bed):
    """nvme list and list-subsys show the namespaces with their sizes"""
    devices = bed.guest.json("nvme list -o json")["Devices"]
    sizes = {device["DevicePath"]: device["PhysicalSize"] for device in devices}
    disks = bed.disks()
    expect(sizes[disks[RAM]] == 96 << 20 and sizes[disks[NULL]] == 1 << 30, devices)
    expect(all(device["ModelNumber"] == "Ebb NVMe/TCP target" for device in devices), devices)
    expect(bed.target.nqn in bed.guest.run("nvme list-subsys"), "the subsystem is not listed")


def identify(bed):
    """nvme id-ctrl, id-ns, ns-descs, list-ns and get-property read what the target is"""
    guest, controller, disks = bed.guest, bed.controller(), bed.disks()
    data = guest.json(f"nvme id-ctrl {controller} -o json")
    expect(data["subnqn"] == bed.target.nqn and data["cntrltype"] == 1, data)
    # As many as there may be.
    expect(data["nn"] == data["mnan"] == 32 and data["ioccsz"] * 16 == 64 + 8192, data)
    for nsid, disk in disks.items():
        block = guest.json(f"nvme id-ns {disk} -o json")["lbafs"][0]["ds"]
        expect(block == (9 if nsid == NULL else 12), f"{disk}: blocks of 2^{block} bytes")
        told = guest.run(f"nvme ns-descs {disk}")
        kernel = guest.run(f"cat /sys/block/{disk[5:]}/uuid")
        expect(kernel in told and "nguid" in told, f"no {kernel} in {told}")
    expect(guest.run(f"nvme list-ns {controller}").count("0x") == len(disks), "list-ns")
    guest.run(f"nvme cmdset-ind-id-ns {controller} -n 1; nvme nvm-id-ctrl {controller}")
    # One by one: show-regs of nvme-cli 2.3 stumbles over fabrics.
    for offset, value in (0, "7f"), (8, "20000"), (0x14, "460001"), (0x1C, "1"):
        told = guest.run(f"nvme get-property {controller} -o {offset}")
        expect(told.endswith(value), told)
    guest.refuses(f"nvme id-ns {controller} -n 77", "INVALID_NS", "Invalid Namespace")


def logs(bed):
    """nvme-cli reads every log page that there is, and is refused others"""
    guest, controller = bed.guest, bed.controller()
    supported = guest.run(f"nvme supported-log-pages {controller}")
    pages = {int(page, 16) for page in re.findall(r"LID (0x[0-9a-f]+)", supported)}
    expect(pages >= {0, 1, 2, 3, 5}, f"pages {pages} of {supported}")
    for page in pages:
        guest.run(f"nvme get-log {controller} --log-id={page} --log-len=512")
    smart = guest.json(f"nvme smart-log {controller} -o json")
    expect(smart["critical_warning"] == 0 and smart["avail_spare"] == 100, smart)
    errors = guest.json(f"nvme error-log {controller} -o json")["errors"]
    expect(any(error["error_count"] > 0 for error in errors), "id-ns of no namespace is missing")
    slots = guest.run(f"nvme fw-log {controller} -o json")
    expect(guest.json(f"nvme id-ctrl {controller} -o json")["fr"].strip() in slots, slots)
    effects = guest.run(f"nvme effects-log {controller} -H -c 0")
    expect("Compare" in effects and "Write Zeroes" in effects, effects)
    guest.refuses(f"nvme get-log {controller} --log-id=0x99 --log-len=512", "INVALID_LOG_PAGE",
                  "Invalid Log Page")
    where = f"-t tcp -a {ADDRESS} -s {bed.target.port}"
    guest.run(f"""nvme discover {where} --persistent > /dev/null
        device=$(grep -lx nqn.2014-08.org.nvmexpress.discovery /sys/class/nvme/*/subsysnqn)
        device=/dev/$(basename $(dirname $device))
        nvme id-ctrl $device
        nvme get-log $device --log-id=0x70 --log-len=1024
        nvme disconnect -d $device""")


def features(bed):
    """nvme get-feature and set-feature, with a power state set and read back"""
    guest, controller = bed.guest, bed.controller()
    states = guest.json(f"nvme id-ctrl {controller} -o json")["npss"] + 1
    expect(states > 1, "the modelled SSD has no power states")
    for state in *range(states), 0:
        guest.run(f"nvme set-feature {controller} -f 2 -v {state}")
        told = guest.run(f"nvme get-feature {controller} -f 2")
        expect(int(told.rpartition("value:")[2], 16) == state, told)
    guest.refuses(f"nvme set-feature {controller} -f 2 -v {states}", "INVALID_FIELD",
                  "Invalid Field")
    for feature in 1, 2, 4, 5, 6, 7, 0xA, 0xB, 0xF, 0x81:
        extended = "-c 1 -l 16" if feature == 0x81 else ""
        guest.run(f"nvme get-feature {controller} -f {feature} {extended}")
        guest.run(f"nvme get-feature {controller} -f {feature} -s 3")
    guest.run(f"nvme set-feature {controller} -f 6 -v 0")
    told = guest.run(f"nvme get-feature {controller} -f 6")
    expect(int(told.rpartition("value:")[2], 16) == 0, told)
    guest.run(f"nvme set-feature {controller} -f 6 -v 1")
    # Newer kernels refuse it themselves.
    queues = f"nvme set-feature {controller} -f 7 -v 0x10001"
    guest.refuses(queues, "SEQ", "Sequence", "Permission denied")


def file_system(bed):
    """mkfs.ext4, files, fsck, and the same files after mounting it again"""
    disk = bed.disks()[RAM]
    bed.guest.run(f"""mkfs.ext4 -q {disk}
        mkdir -p /tmp/mount
        mount {disk} /tmp/mount
        cp -r /usr/bin /etc /tmp/mount 2> /dev/null || true
        rm -r /tmp/mount/bin/a*
        fstrim /tmp/mount
        cd /tmp/mount; find -type f -print0 | sort -z | xargs -0 sha256sum > /tmp/sums; cd /
        umount /tmp/mount
        fsck.ext4 -fn {disk}
        mount {disk} /tmp/mount
        cd /tmp/mount; sha256sum --quiet -c /tmp/sums; cd /
        umount /tmp/mount""")


def fio_verify(bed):
    """fio --verify, random reads and writes of mixed sizes by two jobs at depth 16"""
    jobs = "--numjobs=2 --size=32m --offset_increment=32m"
    mixed = "--rw=randrw --bsrange=4k-256k --iodepth=16"
    bed.guest.run(fio(bed.disks()[RAM], "mixed", jobs, mixed))
    small = "--rw=randwrite --bs=4k --iodepth=128 --size=12m"
    bed.guest.run(fio(bed.lasting(), "small", small))
    bed.guest.run(fio(bed.disks()[MODELLED], "modelled", "--rw=randrw --bs=16k --size=8m"))


def commands(bed):
    """flush, write-zeroes, dsm, compare: each does what it says"""
    guest, disk = bed.guest, bed.lasting()
    guest.run(f"""cd /tmp
        head -c 65536 /dev/urandom > data
        head -c 65536 /dev/zero > zeros
        io="-s 16 -c 15 -z 65536"
        nvme write {disk} $io -d data
        nvme flush {disk}
        nvme compare {disk} $io -d data
        nvme read {disk} $io -d back; cmp data back
        ! nvme compare {disk} $io -d zeros
        nvme write-zeroes {disk} -s 16 -c 15
        nvme compare {disk} $io -d zeros
        nvme write {disk} $io -d data
        nvme dsm {disk} -d -s 16,24 -b 8,8
        nvme read {disk} $io -d back; cmp zeros back
        dd if=data of={disk} bs=64k seek=4 oflag=direct status=none
        blkdiscard -o 262144 -l 65536 {disk}
        dd if={disk} bs=64k skip=4 count=1 iflag=direct status=none | cmp - zeros""")
    guest.refuses(f"nvme read {disk} -s 99999999 -c 0 -z 4096 -d /tmp/back", "LBA_RANGE",
                  "LBA Out of Range")
    guest.refuses(f"nvme write-uncor {disk} -s 0 -c 0", "INVALID_OPCODE", "Invalid Command Opcode")


def reset(bed):
    """controller resets and a rescan while fio runs"""
    start_fio(bed, bed.disks()[RAM], "reset", BACKGROUND)
    controller = bed.controller()
    bed.guest.run(f"nvme reset {controller}; nvme ns-rescan {controller}; nvme reset {controller}")
    still_writes(bed)
    finish_fio(bed)


def disconnect(bed):
    """nvme disconnect leaves the target without connections; it ends in order"""
    bed.disconnect()
    bed.target.stop()
    bed.target = None


def digests(bed):
    """header and data digests, each alone and both"""
    bed.serve("digests", "--namespace", "ram:64MiB")
    for options in "--hdr-digest", "--data-digest", "--hdr-digest --data-digest":
        disk = bed.connect(options)[1]
        bed.guest.run(fio(disk, "digests", "--rw=randrw --bsrange=4k-64k --iodepth=8 --size=8m"))
        bed.disconnect()


def allow_list(bed):
    """a host that is not on the list is refused and does not see the subsystem"""
    other = "nqn.2014-08.org.nvmexpress:uuid:6562622d-6775-4573-8400-000000000002"
    target = bed.serve("allow-list", "--namespace", "ram:64MiB", "--allow-host", other)
    where = f"-t tcp -a {ADDRESS} -s {target.port}"
    bed.guest.refuses(f"nvme connect {where} -n {target.nqn}", "failed", "could not")
    expect(target.nqn not in bed.guest.run(f"nvme discover {where}"), "it is discovered")
    expect(target.nqn in bed.guest.run(f"nvme discover {where} -q {other}"), "not discovered")
    bed.connect("-q", other)
    bed.disconnect()


def secret(number, kind="DHHC-1:00", length=32):
    """A secret of DH-HMAC-CHAP, as nvme gen-dhchap-key makes it, or one of another kind."""
    key = bytes([number]) * length
    checked = key + zlib.crc32(key).to_bytes(4, "little")
    return f"{kind}:{base64.b64encode(checked).decode()}:"


def authentication(bed):
    """hosts with good, wrong, missing and revoked keys, one way and both ways"""
    # The options are there without it too.
    if not bed.guest.run("grep -w nvme_auth_negotiate /proc/kallsyms || true"):
        raise Skip("this kernel is built without DH-HMAC-CHAP")
    files = [bed.folder / name for name in ("host.key", "target.key")]
    for file, number in zip(files, (1, 2)):
        file.write_text(secret(number))
        file.chmod(0o600)
    for group in "ffdhe2048", "ffdhe8192", "null":
        target = bed.serve(
            "keys", "--namespace", "ram:64MiB", "--dhchap-group", group,
            "--dhchap-key", f"{HOST}={files[0]}", "--dhchap-ctrl-key", f"{HOST}={files[1]}",
        )
        where = f"nvme connect -t tcp -a {ADDRESS} -s {target.port} -n {target.nqn} -q {HOST}"
        for keys in "", f"--dhchap-secret {secret(3)}":
            bed.guest.refuses(f"{where} {keys}", "failed", "could not")
        wrong = f"--dhchap-secret {secret(1)} --dhchap-ctrl-secret {secret(3)}"
        bed.guest.refuses(f"{where} {wrong}", "failed", "could not")
        for keys in f"--dhchap-secret {secret(1)}", f"--dhchap-ctrl-secret {secret(2)}":
            disk = bed.connect("-q", HOST, "--dhchap-secret", secret(1), keys)[1]
            bed.guest.run(fio(disk, "keys", "--rw=randrw --bs=4k --iodepth=8 --size=4m"))
            bed.disconnect()
    files[0].write_text(secret(4))
    bed.guest.refuses(f"{where} --dhchap-secret {secret(1)}", "failed", "could not")
    bed.connect("-q", HOST, "--dhchap-secret", secret(4))
    bed.disconnect()


def tls(bed):
    """hosts over TLS by tlshd: both identities, missing and revoked keys"""
    if not bed.guest.run("command -v tlshd || true"):
        raise Skip("this guest has no tlshd: give --kernel 13")
    file = bed.folder / "host.tls"
    bed.guest.run("""modprobe tls
        printf '%s\\n' '[authenticate]' 'keyrings=.nvme' > /etc/tlshd.conf
        setsid tlshd --stderr > /tmp/tlshd 2>&1 < /dev/null &""")
    # Not of SHA-384, for which GnuTLS must be told the hash: tlshd does not (its pull request 86).
    kind, length = "NVMeTLSkey-1:01", 32
    for version in 1, 0:
        key = secret(length + version, kind, length)
        file.write_text(key)
        file.chmod(0o600)
        # The kernel keeps every key, and takes the identity of version 1 where it has both.
        target = bed.serve("tls", "--namespace", "ram:64MiB", "--tls-key", f"{HOST}={file}",
                           "--nqn", f"nqn.2026-11.org.example:tls-{version}")
        where = f"nvme connect -t tcp -a {ADDRESS} -s {target.port} -n {target.nqn} -q {HOST}"
        bed.guest.refuses(where, "failed", "could not")
        bed.guest.run(
            f"nvme check-tls-key --hostnqn {HOST} --subsysnqn {target.nqn} --insert "
            f"--identity {version} --keydata {key}"
        )
        disk = bed.connect("-q", HOST, "--tls")[1]
        for options in "--rw=randrw --bs=4k --iodepth=8", "--rw=write --bs=1m --iodepth=4":
            bed.guest.run(fio(disk, "tls", f"{options} --size=8m"))
        file.write_text(secret(9, kind, length))
        bed.disconnect()
        bed.guest.refuses(f"{where} --tls", "failed", "could not")


# Long enough, on the fastest machine, to be disturbed; verified when all is written.
BACKGROUND = "--rw=randwrite --bs=4k --iodepth=16 --size=16m --rate_iops=400"

# While the guest looks at what has changed: 200 writes a second.
SLOWLY = "--rw=randwrite --bs=4k --iodepth=16", "--rate_iops=200"


def start_fio(bed, disk, name, *options):
    """Starts fio in the background; returns once it has written a little."""
    command = fio(disk, name, *options)
    bed.guest.run(f"rm -f /tmp/code; (set +e; {command} > /tmp/fio 2>&1; echo $? > /tmp/code) &")
    await_writes(bed)


def await_writes(bed):
    """Waits for the next hundred writes."""
    count = "awk '{ sum += $5 } END { print sum }' /sys/block/nvme*c*n*/stat"
    before = int(bed.guest.run(count))
    until("fio writes", lambda: int(bed.guest.run(count)) > before + 100, PATIENCE)


def fio_code(bed):
    """The exit code of fio in the background, if it has ended."""
    return bed.guest.run("cat /tmp/code 2> /dev/null || true")


def still_writes(bed):
    """What was done to fio must have happened while it ran."""
    expect(not fio_code(bed), "fio ended too early")


def finish_fio(bed):
    """Waits until it ends, which must be well."""
    code = until("fio ends", lambda: fio_code(bed), PATIENCE)
    expect(code == "0", "fio failed:\n" + bed.guest.run("cat /tmp/fio"))


def await_state(bed, state):
    """Waits for the guest's controller to be `live`, or `connecting`."""
    script = f"""for link in /sys/class/nvme/*; do
            if grep -qx {bed.target.nqn} $link/subsysnqn; then cat $link/state; fi
        done"""
    until(f"the controller is {state}", lambda: bed.guest.run(script) == state, PATIENCE)


RECOVERY = "--keep-alive-tmo=4", "--reconnect-delay=1", "--ctrl-loss-tmo=3600"


def restart(bed):
    """the target is killed twice while fio writes and started again; nothing is lost"""
    if not bed.durable:
        raise Skip("files cannot be served: io_uring is not allowed here")
    bed.serve("durable", "--namespace", bed.file("durable.img"))
    disk = bed.connect(*RECOVERY)[1]
    start_fio(bed, disk, "restart", BACKGROUND)
    for _ in range(2):
        bed.target.kill()
        await_state(bed, "connecting")
        still_writes(bed)
        bed.target.start()
        await_state(bed, "live")
    finish_fio(bed)
    bed.target.kill()
    bed.target.start()
    await_state(bed, "live")
    bed.guest.run(fio(disk, "restart", BACKGROUND, "--verify_only"))
    bed.disconnect()


def raid(bed):
    """RAID-5: killed under fio, back without a member, then rebuilt; nothing is lost"""
    if not bed.durable:
        raise Skip("files cannot be served: io_uring is not allowed here")
    members = [bed.folder / f"member{number}.img" for number in range(3)]

    def namespace(*options):
        return "raid5:" + ",".join([*map(str, members), *options])

    def restart_with(*options):
        bed.target.kill()
        await_state(bed, "connecting")
        bed.target.command[-1] = namespace(*options)
        bed.target.start()
        await_state(bed, "live")

    bed.serve("raid", "--namespace", namespace("create", "size=64MiB"))
    disk = bed.connect(*RECOVERY)[1]
    start_fio(bed, disk, "raid", BACKGROUND)
    members[1].rename(bed.folder / "lost.img")
    restart_with("degraded")
    still_writes(bed)
    finish_fio(bed)
    bed.guest.run(fio(disk, "raid", BACKGROUND, "--verify_only"))
    restart_with("rebuild", "size=64MiB")
    bed.guest.run(fio(disk, "sequential", "--rw=write --bs=256k --iodepth=4 --size=32m"))
    bed.disconnect()


def link_cut(bed):
    """the link is cut briefly, then until both ends give up; fio never notices"""
    bed.serve("cut", "--namespace", "ram:64MiB")
    disk = bed.connect(*RECOVERY)[1]
    start_fio(bed, disk, "cut", BACKGROUND)
    bed.guest.link(up=False)
    bed.guest.run("sleep 1")
    bed.guest.link(up=True)
    await_writes(bed)
    bed.guest.link(up=False)
    await_state(bed, "connecting")
    until("the target gives up too", lambda: bed.target.connections() == 0, PATIENCE)
    still_writes(bed)
    bed.guest.link(up=True)
    await_state(bed, "live")
    finish_fio(bed)
    bed.disconnect()


def sizes(bed):
    """The bytes of each namespace's disk, by NSID, as the guest's kernel sees them."""
    told = bed.guest.run("grep -s . /sys/block/nvme*n*/{nsid,size} || true")
    values = dict(re.findall(r"/(nvme\d+n\d+/(?:nsid|size)):(\d+)", told))
    disks = {name.split("/")[0] for name in values}
    # One that comes or goes may show half of itself.
    whole = [disk for disk in disks if f"{disk}/nsid" in values and f"{disk}/size" in values]
    return {int(values[f"{disk}/nsid"]): 512 * int(values[f"{disk}/size"]) for disk in whole}


def listed(bed):
    """The bytes of each disk, by path, as nvme list has them."""
    devices = bed.guest.json("nvme list -o json")["Devices"]
    return {device["DevicePath"]: device["PhysicalSize"] for device in devices}


def changes(bed):
    """namespaces come, grow and go by ebb ctl; nvme list follows without a rescan"""
    target = bed.serve_changing("changes", "--namespace", "ram:64MiB")
    bed.connect()

    def follows(expected):
        expected = {nsid: size << 20 for nsid, size in expected.items()}
        until(f"the kernel sees {expected}", lambda: sizes(bed) == expected, PATIENCE)
        target.namespaces = len(expected)
        disks = {disk: expected[nsid] for nsid, disk in bed.disks().items()}
        until(f"nvme list shows {disks}", lambda: listed(bed) == disks, PATIENCE)

    follows({1: 64})
    bed.ctl("namespace", "add", "ram:32MiB")
    follows({1: 64, 2: 32})
    bed.guest.run(fio(bed.disks()[2], "added", "--rw=randwrite --bs=4k --size=2m"))
    bed.ctl("namespace", "resize", "2", "48MiB")
    follows({1: 64, 2: 48})
    bed.guest.run(fio(bed.disks()[2], "grown", "--rw=write --bs=64k --offset=40m --size=8m"))
    bed.ctl("namespace", "add", "null:1GiB,block=512B", "--id", "9")
    follows({1: 64, 2: 48, 9: 1024})
    start_fio(bed, bed.disks()[1], "changes", *SLOWLY, "--size=24m")
    bed.ctl("namespace", "remove", "2")
    follows({1: 64, 9: 1024})
    bed.ctl("namespace", "add", "ram:16MiB")
    follows({1: 64, 2: 16, 9: 1024})
    still_writes(bed)
    finish_fio(bed)
    bed.disconnect()


def fail_over(bed):
    """two paths: one becomes inaccessible, one goes, while fio writes; no I/O error"""
    parameter = "/sys/module/nvme_core/parameters/multipath"
    if bed.guest.run(f"cat {parameter} 2> /dev/null || true") != "Y":
        raise Skip("this kernel is built without native multipath, or it is off")
    target = bed.serve_changing("fail-over", "--namespace", "ram:64MiB")
    first = f"{ADDRESS}:{target.port}"
    second = bed.ctl("listener", "add", f"{ADDRESS}:0")["done"].rpartition(" ")[2]
    disk = bed.connect(*RECOVERY)[1]
    port = second.rpartition(":")[2]
    bed.guest.run(
        f"nvme connect -t tcp -a {ADDRESS} -s {port} -n {target.nqn} {' '.join(RECOVERY)}"
    )

    def paths(*expected):
        script = "cat /sys/block/nvme*c*n*/ana_state 2> /dev/null || true"
        until(f"the paths are {expected}", lambda: sorted(bed.guest.run(script).split())
              == sorted(expected), PATIENCE)

    def goes_on():
        await_writes(bed)
        still_writes(bed)

    paths("optimized", "optimized")
    start_fio(bed, disk, "fail-over", *SLOWLY, "--size=48m")
    bed.ctl("ana", "set", first, "inaccessible")
    paths("inaccessible", "optimized")
    goes_on()
    bed.ctl("ana", "set", first, "1", "change")
    paths("change", "optimized")
    goes_on()
    bed.ctl("ana", "set", first, "non-optimized")
    paths("non-optimized", "optimized")
    bed.ctl("listener", "remove", second)
    goes_on()
    bed.ctl("listener", "add", second)
    script = f"cat $(dirname $(grep -l trsvcid={port} /sys/class/nvme/*/address))/state"
    until("the second path is back", lambda: bed.guest.run(script) == "live", PATIENCE)
    bed.ctl("ana", "set", first, "inaccessible")
    goes_on()
    finish_fio(bed)
    bed.disconnect()


def farewell(bed):
    """at the end the target is well, and neither side has complained"""
    expect(bed.target is not None and bed.target.alive(), "the target is dead")
    bed.disconnect()
    bed.target.stop()
    bed.target = None
    complaints = bed.guest.run(r"dmesg | grep -E 'BUG|WARNING|Call Trace|I/O error' || true")
    expect(not complaints, complaints)


SHORT = STEPS = [
    boot, discover, connect_all, listing, identify, logs, features, file_system, fio_verify,
    commands, reset, disconnect, digests, allow_list, authentication, tls, restart, raid, link_cut,
    changes, fail_over, farewell, power_cuts,
]
