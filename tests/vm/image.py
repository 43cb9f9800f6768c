# SPDX-License-Identifier: Apache-2.0
"""What a guest boots: Debian's kernel, and an initramfs with what its scripts need.

    image = build(["build/tools/rondo"], folder)

The kernel comes from Debian's archive, once; it is kept in the user's cache. The rest is that of
this machine: busybox, the tools of RDMA, the programs under test, and all their libraries. Programs
are in the guest's PATH; libraries have the same path as here.
"""

import dataclasses
import functools
import lzma
import os
import platform
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
# In the order in which they are loaded, each after the modules that it depends on. Soft-RoCE asks for
# crc32 by a name that is no such dependency.
MODULES = ["crc32_generic", "rdma_rxe", "ib_uverbs", "veth", "sch_netem", "virtio_pci", "virtio_net"]
TOOLS = ["ip", "tc", "rdma", "ibv_devinfo", "ib_write_bw", "ib_write_lat", "ib_send_bw", "chrt", "strace"]
PACKAGES = {"ip": "iproute2", "tc": "iproute2", "rdma": "iproute2", "ibv_devinfo": "ibverbs-utils", "busybox": "busybox-static",
            "chrt": "util-linux", "strace": "strace", "setpriv": "util-linux", "qemu-system-x86_64": "qemu-system-x86", "apt-get": "apt", "apt-cache": "apt",
            "dpkg": "dpkg", "ldd": "libc-bin"}
DRIVER = "/etc/libibverbs.d/rxe.driver"
KERNEL_PACKAGE = "linux-image-amd64"
DOWNLOAD_SECONDS = 300
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"  # an ordinary user's PATH lacks these


class Unable(Exception):
    """Raised when there can be no guest here; the text says why."""


@dataclasses.dataclass(frozen=True)
class Image:
    kernel: Path
    initramfs: Path
    release: str  # of the kernel, as uname -r prints it


def tool(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_PATH}")
    if path is None:
        raise Unable(f"{name} is not installed (Debian: {PACKAGES.get(name, 'perftest')})")
    return path


def build(programs: list[str], folder: Path, download: bool = True) -> Image:
    """Writes the initramfs into `folder`. download: whether a kernel may be downloaded."""
    package = kernel_package(download)
    release = next((package / "lib/modules").iterdir()).name
    archive = Archive()
    archive.directories("dev", "proc", "sys", "tmp", "run", "root", "usr/local/bin")
    for name in ("bin", "sbin", "lib", "lib64"):
        archive.link(name, f"usr/{name}")
    archive.file("init", HERE / "init.sh")
    archive.file("etc/steps.sh", HERE / "steps.sh")
    busybox = tool("busybox")
    archive.file("usr/bin/busybox", Path(busybox))
    for applet in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if applet not in TOOLS and applet != "busybox":
            archive.link(f"usr/bin/{applet}", "busybox")
    archive.text("etc/modules", "".join(f"/{path}\n" for path in add_modules(archive, package, release)))
    archive.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
    archive.text("etc/hosts", "127.0.0.1 localhost\n")
    for path in [tool(name) for name in TOOLS] + programs:
        archive.program(Path(os.path.abspath(path)))
    add_provider(archive)
    initramfs = folder / "initramfs"
    archive.write(initramfs)
    return Image(package / "kernel", initramfs, release)


# ---- the kernel ----

def kernel_package(download: bool) -> Path:
    """The folder with the unpacked package, and the file `kernel` in it."""
    if platform.machine() != "x86_64":
        raise Unable(f"guests are x86_64 machines, and this is {platform.machine()}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rondo" / "vm"
    for complete in sorted(cache.glob("linux-image-*"), key=lambda path: path.stat().st_mtime, reverse=True):
        return complete
    if not download:
        raise Unable(f"there is no kernel in {cache} (./dev rdma downloads it)")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        root = Path(folder) / "root"
        package = download_kernel(Path(folder))
        _run([tool("dpkg"), "-x", str(package), str(root)], Path(folder))
        compressed = next((root / "boot").glob("vmlinuz-*")).read_bytes()
        (root / "kernel").write_bytes(decompressed(compressed))
        complete = cache / package.name.partition("_")[0]
        root.rename(complete)
    return complete


def decompressed(kernel: bytes) -> bytes:
    """The kernel as an ELF file, which boots 4 s faster. A kernel that is not compressed with xz is
    returned as it is, for it boots as well."""
    start = kernel.find(b"\xfd7zXZ\0")
    return lzma.LZMADecompressor().decompress(kernel[start:]) if start >= 0 else kernel


def download_kernel(folder: Path) -> Path:
    """Downloads the package that KERNEL_PACKAGE depends on."""
    # The package lists of this machine may be absent or old: the second try uses lists of its own,
    # which an ordinary user may fetch.
    own = ["-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]
    (folder / "lists/partial").mkdir(parents=True)
    (folder / "cache/archives/partial").mkdir(parents=True)
    try:
        return _fetch([], folder)
    except Unable:
        _run([tool("apt-get"), *own, "-q", "update"], folder)
        return _fetch(own, folder)


def _fetch(options: list[str], folder: Path) -> Path:
    told = _run([tool("apt-cache"), *options, "depends", "--important", KERNEL_PACKAGE], folder)
    depends = re.search(r"Depends: (linux-image-\S+)", told)
    if depends is None:
        raise Unable(f"apt knows no package {KERNEL_PACKAGE}; guests need Debian's kernel")
    _run([tool("apt-get"), *options, "-q", "-o", "APT::Sandbox::User=root", "download", depends[1]], folder)
    return next(folder.glob("*.deb"))


def _run(command: list[str], folder: Path) -> str:
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=DOWNLOAD_SECONDS,
                              env=os.environ | {"LC_ALL": "C"}).stdout
    except subprocess.CalledProcessError as error:
        raise Unable(f"no kernel: {Path(command[0]).name}: {' '.join(error.stderr.split())[-300:]}") from None
    except subprocess.TimeoutExpired:
        raise Unable(f"no kernel: {Path(command[0]).name} took longer than {DOWNLOAD_SECONDS} s") from None


# ---- what is in the image ----

class Archive:
    """An initramfs: a cpio archive of the format newc. Links are followed when files are added."""

    def __init__(self):
        self._entries: dict[str, tuple[int, object]] = {}  # by path: the mode, and the content

    def directories(self, *paths: str) -> None:
        for path in paths:
            for each in [*reversed(Path(path).parents), Path(path)]:
                if str(each) != ".":
                    self._entries.setdefault(str(each), (stat.S_IFDIR | 0o755, b""))

    def text(self, path: str, content: str) -> None:
        self.data(path, content.encode())

    def data(self, path: str, content: bytes) -> None:
        self._add(path, stat.S_IFREG | 0o644, content)

    def link(self, path: str, target: str) -> None:
        self._add(path, stat.S_IFLNK | 0o777, target.encode())

    def file(self, path: str, source: Path) -> None:
        self._add(path, stat.S_IFREG | 0o755, source)

    def program(self, path: Path) -> None:
        """Adds a program to the guest's PATH, and the libraries that it needs."""
        self.file(f"usr/local/bin/{path.name}", path)
        self.needs(path)

    def needs(self, path: Path) -> None:
        """Adds the libraries that a program or a shared library needs."""
        for library in libraries(path):
            self.file(str(library), library)

    def write(self, path: Path) -> None:
        with open(path, "wb") as out:
            for number, (name, (mode, content)) in enumerate(self._entries.items()):
                self._write_entry(out, number, name, mode, content.read_bytes() if isinstance(content, Path) else content)
            self._write_entry(out, 0, "TRAILER!!!", 0, b"")

    def _add(self, path: str, mode: int, content) -> None:
        # The guest has the links of a merged /usr.
        name = re.sub(r"^(bin|sbin|lib|lib64)/", r"usr/\1/", path.lstrip("/"))
        self.directories(str(Path(name).parent))
        self._entries[name] = (mode, content)

    @staticmethod
    def _write_entry(out, number: int, name: str, mode: int, content: bytes) -> None:
        encoded = name.encode() + b"\0"
        # inode, mode, uid, gid, links, mtime, bytes, device (2), device of a node (2), name, check
        fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0]
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
        out.write(head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4))


@functools.cache
def libraries(program: Path) -> list[Path]:
    done = subprocess.run([tool("ldd"), program], capture_output=True, text=True)
    if missing := re.findall(r"(\S+) => not found", done.stdout):
        raise Unable(f"{program} needs libraries that are not here: {', '.join(missing)}")
    return [Path(path) for path in re.findall(r"(?:=> |^\s*)(/\S+) \(0x", done.stdout, re.MULTILINE)]


def add_provider(archive: Archive) -> None:
    """The part of libibverbs that drives Soft-RoCE. libibverbs finds it by a file that names it."""
    verbs = next((path for path in libraries(Path(tool("ibv_devinfo"))) if path.name.startswith("libibverbs.so")), None)
    provider = next((verbs.parent / "libibverbs").glob("librxe-rdmav*.so"), None) if verbs else None
    if provider is None or not os.path.exists(DRIVER):
        raise Unable("the driver of Soft-RoCE is not installed (Debian: ibverbs-providers)")
    archive.file(DRIVER, Path(DRIVER))
    archive.file(str(provider), provider)
    archive.needs(provider)


def add_modules(archive: Archive, package: Path, release: str) -> list[str]:
    """Adds MODULES and what they depend on. Returns their paths in the order of loading."""
    folder = package / "lib/modules" / release
    files = {_module_name(path.name): path for path in folder.rglob("*.ko*")}
    built_in = {_module_name(Path(line).name) for line in (folder / "modules.builtin").read_text().split()}
    loaded: dict[str, str] = {}

    def load(name: str) -> None:
        if name in loaded or name in built_in:
            return
        if name not in files:
            raise Unable(f"the kernel {release} has no module {name}")
        content = _module_content(files[name])
        for needed in re.findall(rb"\0depends=([^\0]*)", content)[0].decode().split(","):
            if needed:
                load(_module_name(needed))
        loaded[name] = f"lib/modules/{name}.ko"
        archive.data(loaded[name], content)

    for name in MODULES:
        load(name)
    return list(loaded.values())


def _module_name(file: str) -> str:
    return file.partition(".ko")[0].replace("-", "_")


def _module_content(path: Path) -> bytes:
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == ".xz" else content
