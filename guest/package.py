"""The Debian package on a server with systemd, by the description that cargo-deb has: installed without
any configuration, upgraded, reset, removed, purged."""

import glob
import shutil
import subprocess
import tomllib
from pathlib import Path

import service
from bed import Skip, expect
from service import CONFIG, boot

CRATE = Path(__file__).resolve().parent.parent / "crates" / "ebb"
VERSIONS = ["0.0.1", "0.0.2"]
CONTROL = """Package: ebb
Version: {version}
Architecture: amd64
Maintainer: {maintainer}
Depends: libc6
Description: as {crate} describes it
"""


class Bed(service.Bed):
    """A guest that has two versions of the package, and nothing of them is installed."""

    def packages(self):
        return [build(self.args.ebb, self.folder, version) for version in VERSIONS]

    def install(self):
        pass

    def files(self):
        """Files and folders with its name; the journal's have numbers, which may look like it."""
        return self.guest.run("find / /run -xdev -path /var/log -prune -o -name '*ebb*' -print").splitlines()

    def status(self):
        return self.guest.json("ebb status --json")

    def dpkg(self, words):
        """Runs dpkg; what it said."""
        return self.guest.run(f"DEBIAN_FRONTEND=noninteractive dpkg {words} 2>&1")


# Asks for the live page.
PAGE = r"""perl -MIO::Socket::UNIX -e '$page = IO::Socket::UNIX->new("/run/ebb/page.sock") or die $!;
    print $page "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n"; $page->flush; print scalar <$page>;'"""


def build(ebb, folder, version):
    """The package of a binary, as its crate describes it."""
    if shutil.which("dpkg-deb") is None:
        raise Skip("missing: dpkg")
    deb = tomllib.loads((CRATE / "Cargo.toml").read_text())["package"]["metadata"]["deb"]
    root, made = folder / version, folder / "made"
    subprocess.run([CRATE.parent.parent / "packaging" / "made", ebb, made], check=True)
    for source, to, mode in deb["assets"]:
        source = source.replace("../../target/package", str(made))
        source = ebb if source == "target/release/ebb" else str(CRATE / source)
        for file in map(Path, glob.glob(source)):
            at = root / to / file.name if to.endswith("/") else root / to
            at.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, at)
            at.chmod(int(mode, 8))
    subprocess.run(["strip", root / "usr" / "bin" / "ebb"], check=True)
    control = root / "DEBIAN"
    control.mkdir()
    crate = CRATE / "Cargo.toml"
    (control / "control").write_text(CONTROL.format(version=version, crate=crate, **deb))
    (control / "conffiles").write_text("".join(f"{file}\n" for file in deb["conf-files"]))
    for script in (CRATE / deb["maintainer-scripts"]).iterdir():
        shutil.copy(script, control)
        (control / script.name).chmod(0o755)
    package = folder / f"ebb_{version}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", root, package], check=True,
                   stdout=subprocess.DEVNULL)
    return package


def installed(bed):
    """installed without any configuration it observes: status, page and report say what, nothing is set"""
    bed.before = bed.files()
    bed.dpkg(f"-i /opt/tools/ebb_{VERSIONS[0]}.deb")
    bed.until("it observes", lambda: bed.status()["state"] == "observing")
    expect(bed.status()["saving"]["would"], bed.status())
    expect("200 OK" in bed.guest.run(PAGE), "no live page")
    bed.until("it has told its ledger", lambda: "measured" in bed.guest.run("ebb report"))
    bed.guest.run("systemctl is-enabled ebb ebb-restore; ! systemctl is-active ebb-serve; ebb config check")
    bed.guest.run("systemctl stop ebb")
    bed.as_found("after the installation")
    bed.guest.run("systemctl start ebb")


def upgraded(bed):
    """the operator lets it act and upgrades it: it goes on with its configuration, ledger and settings"""
    bed.guest.run(f"cat > /etc/ebb/ebb.toml << 'END'\n{CONFIG.format('26 W')}END\nsystemctl restart ebb")
    before = bed.acts()
    bed.dpkg(f"-i --force-confold /opt/tools/ebb_{VERSIONS[1]}.deb")
    bed.acts(before)
    bed.guest.run(f"dpkg -s ebb | grep -x 'Version: {VERSIONS[1]}'; grep -x 'apply = true' /etc/ebb/ebb.toml")
    expect("measured" in bed.guest.run("ebb report"), "the ledger is not that of before")


def reset(bed):
    """the machine is reset while it acts: it acts again, and its ledger is whole"""
    bed.guest.run("sync -f /var/lib/ebb")
    bed.guest.reset()
    bed.acts()
    expect("measured" in bed.guest.run("ebb report"), "the ledger was lost")
    bed.guest.run("ebb verify")


def removed(bed):
    """removed while it acts, everything is as found; purged, nothing of it is left"""
    bed.dpkg("-r ebb")
    bed.as_found("after the removal", boots=True)
    bed.guest.run("[ -e /etc/ebb/ebb.toml ]; [ ! -e /usr/bin/ebb ]")
    bed.dpkg("-P ebb")
    left = set(bed.files()) - set(bed.before)
    expect(not left, f"left after purge: {sorted(left)}")


STEPS = [boot, installed, upgraded, reset, removed]
SHORT = []
