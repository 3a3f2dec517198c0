"""The two ends of the test bed: `ebb serve` on this machine and a Linux guest under qemu."""

import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

ADDRESS = "127.0.0.1"
# The server that a guest takes itself for.
HARDWARE = Path(__file__).resolve().parent / "hardware"


class Failure(Exception):
    """Something is not as it must be."""


class Silence(Failure):
    """A guest does not answer, not even that it cannot: it hangs as a whole."""


class Skip(Exception):
    """Something cannot be tested here, for this reason."""


def until(what, condition, seconds):
    """Waits until `condition()` is true, and returns its value. The limit only tells a hang."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise Failure(f"after {seconds} s still not: {what}")
        time.sleep(0.2)
    return value


class Target:
    """A process of `ebb serve`."""

    def __init__(self, ebb, folder, name, *options):
        self.command = [ebb, "serve", *options]
        self.log = folder / f"{name}.log"
        self.port = 0
        self.nqn = None
        self.namespaces = 0
        self.start()

    def start(self):
        """Starts it, the second time at the same port."""
        output = self.log.open("a")
        listen = ["--listen", f"{ADDRESS}:{self.port}"]
        self.process = subprocess.Popen(
            [*self.command, *listen], stdout=subprocess.PIPE, stderr=output, text=True
        )
        for line in self.process.stdout:
            output.write(line)
            match line.split():
                case ["subsystem", nqn]:
                    self.nqn, self.namespaces = nqn, 0
                case ["namespace", *_]:
                    self.namespaces += 1
                case ["listening", "on", address]:
                    self.port = int(address.rpartition(":")[2])
                    if "--metrics" not in self.command:
                        return
                case ["metrics", "on", url]:
                    self.metrics = url
                    return
        raise Failure(f"`ebb serve` ended: {self.log.read_text().strip()}")

    def status(self):
        """What it says of itself, if it serves metrics."""
        with urllib.request.urlopen(self.metrics.replace("/metrics", "/status"), timeout=60) as told:
            return json.load(told)

    def connections(self):
        """How many there are, by the kernel's tables."""
        mine = set()
        for link in Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                mine.add(os.readlink(link))
            except FileNotFoundError:
                pass
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = "0A"
        return sum(row[3] != listening and f"socket:[{row[9]}]" in mine for row in rows)

    def alive(self):
        return self.process.poll() is None

    def kill(self):
        """As a crash would end it."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Ends it in order, which must work."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure("`ebb serve` does not end when it is told to") from None
        if code != 0:
            raise Failure(f"`ebb serve` ended with code {code}: {self.log.read_text().strip()}")


def tools(folder, *programs, packages=()):
    """A drive for a guest, with programs that are small enough to load page by page, and packages."""
    content = folder / "tools"
    content.mkdir()
    strip = shutil.which("strip")
    if strip is None:
        raise Skip("missing: binutils; install them")
    for program in map(Path, programs):
        subprocess.run([strip, "-o", content / program.name, program], check=True)
    for package in packages:
        shutil.copy(package, content)
    blocks = sum(file.stat().st_size for file in content.iterdir()) // 1024 * 5 // 4 + 4096
    image = folder / "tools.img"
    make = ["mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-d", content, image]
    subprocess.run([*make, f"{blocks}k"], check=True, stdout=subprocess.DEVNULL)
    return f"file={image},format=raw,read-only=on"


# What a guest has, as qemu describes it: two CPUs, or eight on two sockets with memory each. Of
# the latter model the clock does not depend on the frequency.
CLIENT = ["-cpu", "max", "-smp", "2", "-m", "768"]
SERVER = [
    "-cpu", "Skylake-Server", "-smp", "8,sockets=2,cores=4,threads=1", "-m", "1024",
    "-object", "memory-backend-ram,id=memory0,size=512M",
    "-object", "memory-backend-ram,id=memory1,size=512M",
    "-numa", "node,nodeid=0,cpus=0-3,memdev=memory0",
    "-numa", "node,nodeid=1,cpus=4-7,memdev=memory1",
]


# What runs first in a guest: its agent and nothing else, or systemd.
AGENT = "init=/ebb-init"
SYSTEMD = "init=/lib/systemd/systemd systemd.unit=multi-user.target systemd.mask=getty.target " \
    "systemd.mask=apt-daily.timer systemd.mask=e2scrub_all.timer systemd.mask=fstrim.timer"


# What a kernel that is not well says on its console.
COMPLAINT = r"Oops|divide error|BUG:|WARNING: CPU|Call Trace|Kernel panic"
# What qemu before 8.1 makes of code that one CPU changes while it translates it for another: a
# breakpoint that nobody set (https://bugzilla.redhat.com/show_bug.cgi?id=2216496).
MISTRANSLATED = r"int3: 0000 \[#1\]"


# Ends a script that runs for too long, for the agent runs one at a time, and tells in its output what
# every task does.
WATCH = r"""setsid bash -c 'while sleep 20; do
        script=$(cat /tmp/running)
        grep -qs /tmp/script /proc/$script/cmdline && [ $(($(date +%s) - $(stat -c %Y /tmp/running))) -gt 450 ] || continue
        for task in /proc/[0-9]*; do
            if read -rd "" name < $task/cmdline; then
                echo "$task $(tr "\\0" " " < $task/cmdline) $(grep ^State $task/status)"
                cat $task/task/*/stack
            fi
        done >> /tmp/output 2>&1
        kill -KILL $script
    done' > /dev/null 2>&1 < /dev/null &"""


class Guest:
    """A virtual machine that runs what it is told."""

    def __init__(self, image, folder, machine=CLIENT, drives=(), forward=None, first=AGENT):
        """With more `drives`, as qemu describes block devices; what connects to this machine's
        port `forward` reaches the guest's port 4420."""
        self.console = folder / "console.log"
        agent, monitor = str(folder / "agent"), str(folder / "monitor")
        # Software has no side channels to close, and closing them takes it time. And
        # addresses are the same in each start, for whoever looks one up.
        append = f"root=/dev/vda rw console=ttyS0 {first} loglevel=5 net.ifnames=0 panic=-1 " \
            "mitigations=off nokaslr"
        forwarded = f",hostfwd=tcp:{ADDRESS}:{forward}-:4420" if forward else ""
        command = [
            "qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", *machine,
            "-display", "none", "-nodefaults", "-no-reboot",
            "-kernel", image / "vmlinuz", "-initrd", image / "initrd.img", "-append", append,
            "-drive", f"file={image}/root.img,if=virtio,format=raw,snapshot=on",
            "-netdev", "user,id=net" + forwarded, "-device", "virtio-net-pci,id=link,netdev=net,romfile=",
            "-chardev", f"socket,id=agent,path={agent},server=on,wait=off",
            "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent",
            "-qmp", f"unix:{monitor},server=on,wait=off", "-serial", f"file:{self.console}",
        ]
        for drive in drives:
            command += ["-drive", f"{drive},if=virtio"]
        self.read = 0
        self.log = folder / "qemu.log"
        self.process = subprocess.Popen(command, stderr=self.log.open("w"))
        try:
            self.agent = self._connect(agent, 600)
            self.monitor = self._connect(monitor, 60)
            self.monitor.readline()
            self._control("qmp_capabilities")
        except BaseException:
            self.stop()
            raise

    def _connect(self, path, patience):
        stream = socket.socket(socket.AF_UNIX)

        def connected():
            if self.process.poll() is not None:
                raise Failure(f"qemu does not start: {self.log.read_text()}")
            try:
                stream.connect(path)
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            return True

        until("qemu runs", connected, 60)
        stream.settimeout(patience)
        return stream.makefile("rwb")

    def _control(self, command, **arguments):
        message = {"execute": command, "arguments": arguments}
        self.monitor.write(json.dumps(message).encode() + b"\n")
        self.monitor.flush()
        while "return" not in (reply := json.loads(self.monitor.readline())):
            if "error" in reply:
                raise Failure(f"qemu refuses {command}: {reply['error']['desc']}")
        return reply["return"]

    def link(self, up):
        """Plugs the network cable in or pulls it."""
        self._control("set_link", name="link", up=up)

    def reset(self):
        """Starts the machine again as its reset button does; its disks keep what they hold."""
        self._control("set-action", reboot="reset")
        self._control("system_reset")

    def complaints(self):
        """What the kernel has complained of since this was last asked."""
        text = self.console.read_bytes()[self.read:].decode(errors="replace")
        self.read += len(text.encode())
        found = re.search(COMPLAINT, text)
        return found and text[max(0, found.start() - 200):][:4000]

    def is_mistranslated(self):
        """Whether qemu, not the kernel, is at fault for what went wrong first."""
        text = self.console.read_text(errors="replace")
        first = re.search(rf"^.*(?:{COMPLAINT}|int3:).*$", text, re.MULTILINE)
        return bool(first and re.search(MISTRANSLATED, first[0]))

    def attempt(self, script):
        """Runs a script (bash -euo pipefail); its exit code and output."""
        self.agent.write(base64.b64encode(f"echo $$ > /tmp/running\n{script}".encode()) + b"\n")
        self.agent.flush()
        try:
            line = self.agent.readline()
        except TimeoutError:
            line = b""
        if not line:
            raise Silence(f"the guest does not answer any more; {self.busy()}; it was to run: {script}")
        code, _, output = line.partition(b" ")
        return int(code), base64.b64decode(output).decode(errors="replace").strip()

    def busy(self):
        """What qemu's threads do, and where the guest's CPUs are."""
        def ticks():
            told = {}
            for task in Path(f"/proc/{self.process.pid}/task").iterdir():
                name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
                told[f"{name} {task.name}"] = sum(map(int, rest.split()[11:13]))
            return told

        told = ""
        try:
            before = ticks()
            time.sleep(5)
            told = "ticks in 5 s: " + ", ".join(
                f"{name} {count - before.get(name, 0)}" for name, count in ticks().items())
            command = {"command-line": "info registers -a"}
            registers = self._control("human-monitor-command", **command)
            return f"{told}; at {re.findall(r'RIP=[0-9a-f]*', registers)}"
        except (OSError, ValueError) as error:
            return f"{told}; qemu says nothing: {error}"

    def run(self, script):
        """Runs a script that must succeed; its output."""
        code, output = self.attempt(script)
        if code != 0:
            raise Failure(f"{script.strip()}\nended with code {code}:\n{output}")
        return output

    def refuses(self, script, *words):
        """Runs a script that must fail and say why."""
        code, output = self.attempt(script)
        if code == 0:
            raise Failure(f"{script.strip()}\nmust fail, but answered:\n{output}")
        expect(any(word in output for word in words), f"{script}: not {words}:\n{output}")

    def json(self, script):
        """Runs a script that prints JSON."""
        output = self.run(script)
        try:
            return json.loads(output)
        except ValueError:
            raise Failure(f"{script.strip()}\nprinted no JSON:\n{output}") from None

    def stop(self):
        self.process.kill()
        self.process.wait()


def expect(condition, otherwise):
    """Fails with `otherwise` unless `condition`."""
    if not condition:
        raise Failure(otherwise)
