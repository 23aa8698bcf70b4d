"""Packages of Debian 12, fetched by apt into the cache and unpacked there without root: servers that no wheel and no jar brings.

A package whose version Debian no longer has, or a machine without apt or of another kind, gives a reason to skip; what is fetched has the pinned SHA-256.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from poundlock.errors import DefinitionError
from poundlock.spark.launch.java import cache_dir


@dataclass(frozen=True, slots=True)
class DebianPackage:
    """One package for amd64: its version and the SHA-256 of its file."""

    name: str
    version: str
    sha256: str


RABBITMQ = (
    DebianPackage(
        "rabbitmq-server", "3.10.8-1.1+deb12u1", "b88e03a102134e3dbc1ba563e6f678eec29a500a933c00c68c71b45b778cd5b0"
    ),
    DebianPackage(
        "erlang-base", "1:25.2.3+dfsg-1+deb12u4", "71731cddaf081836028de905052c69135a4d288fa804fdae5982ea83bf5b8b61"
    ),
    DebianPackage(
        "erlang-crypto", "1:25.2.3+dfsg-1+deb12u4", "130d7dd83071a2ec545ba1c4f2e9e77be847554b7c04316a870b2e11b5e30e39"
    ),
    DebianPackage(
        "erlang-eldap", "1:25.2.3+dfsg-1+deb12u4", "7fc71b7b4156cd9662bb38ff0f2b423d97d257c092f010902302d684299ed466"
    ),
    DebianPackage(
        "erlang-inets", "1:25.2.3+dfsg-1+deb12u4", "068079f01742b9ebe457ba7285910a2d5c6d8c61895c076fcaaf7ff752548815"
    ),
    DebianPackage(
        "erlang-mnesia", "1:25.2.3+dfsg-1+deb12u4", "94b059c51c41db8b3592e6a070b9341112da4c084d5642c1abffb5069cc642ac"
    ),
    DebianPackage(
        "erlang-os-mon", "1:25.2.3+dfsg-1+deb12u4", "5257825484519284e1fca4a23de511ef30e92f329f14f7aae853c6c5883d1a8b"
    ),
    DebianPackage(
        "erlang-parsetools",
        "1:25.2.3+dfsg-1+deb12u4",
        "1a5660cec4ee2a480391d5d7e55e8b4cc49ee05284d34fe6a38327089b6f947f",
    ),
    DebianPackage(
        "erlang-public-key",
        "1:25.2.3+dfsg-1+deb12u4",
        "37cb5fcaafa3745918d65c6bafc66a161069944d996074996762697b93128031",
    ),
    DebianPackage(
        "erlang-runtime-tools",
        "1:25.2.3+dfsg-1+deb12u4",
        "0bbb1db788ecb8b004470c39ae76a07ceec4c28aa519e548ade1d22781833f6b",
    ),
    DebianPackage(
        "erlang-ssl", "1:25.2.3+dfsg-1+deb12u4", "98c91964be7a4c7f8be1f05ce12318e9dc7aa268ea2814e495c3d0dd54f8a2fe"
    ),
    DebianPackage(
        "erlang-syntax-tools",
        "1:25.2.3+dfsg-1+deb12u4",
        "b0b955b477d0a83c39dd96af53053f90d426d110cae6c452fd5b17f4c4dacf4f",
    ),
    DebianPackage(
        "erlang-tools", "1:25.2.3+dfsg-1+deb12u4", "d36612337928437f2ce5bbeebb4bc1013449db8e8efb65affec265039ee4d267"
    ),
    DebianPackage(
        "erlang-xmerl", "1:25.2.3+dfsg-1+deb12u4", "9948872c1e4cfa34cfb273643e02c97acde54a14573cd607aeee6568a29bdc1e"
    ),
    DebianPackage(
        "erlang-asn1", "1:25.2.3+dfsg-1+deb12u4", "a35e1f628f9ee52616be4a00560f9a9a8a0ba484b1b1e1b02696325d0c32ec41"
    ),
)
MOSQUITTO = (
    DebianPackage(
        "mosquitto", "2.0.11-1.2+deb12u2", "a49e90d58d84bded78b96f09aece0e3a3dd432fb4b0620ef5012f3718094c24b"
    ),
    DebianPackage("libwrap0", "7.6.q-32", "cbce2669a3ba4d74cfdc52b14f38014893e23d85a33d109a3422c342eefc55f8"),
    DebianPackage("libdlt2", "2.18.8-6", "4ae1785ddcfdd94a7ed70a180bb73d09b9fca2f6af815b27fe64e726a30a86f4"),
)

REDIS = (
    DebianPackage(
        "redis-server", "5:7.0.15-1~deb12u10", "784e17b51024ff878fd7d709a68346658fa9b21f6de740cb75e474f28790971c"
    ),
    DebianPackage(
        "redis-tools", "5:7.0.15-1~deb12u10", "f791cfcbf3054832bd6e786546acb0d4e046888f8e63bcf567c1c65fbfaf69e2"
    ),
    DebianPackage("libjemalloc2", "5.3.0-1", "a4117c23c5c8acf6c9678a6cb086f000b79476369da7efe8a78a70826956ad3d"),
    DebianPackage("liblua5.1-0", "5.1.5-9", "5400fac99da7aba50ce4703bdee23c29fdf1acc619cd6c2c312589a4a7e69c71"),
    DebianPackage("liblzf1", "3.6-3", "9854b0866201b63e04f1e446f45f01ef4a6f72c61f2250b75f944f6046cc7e8c"),
    DebianPackage("lua-bitop", "1.0.2-7", "adea9e219e7ddd3c61507c287c3467159a3a721ce33e56cae7bf2db9565f4634"),
    DebianPackage("lua-cjson", "2.1.0+dfsg-2.2", "ccb427f4941cd3871fc77237d81b93cef326a49cb80ecb8d5f33ad69a8b274d4"),
)


def unpacked(packages: Sequence[DebianPackage]) -> Path:
    """Return the folder that has the files of some packages, as below "/"; they are fetched and unpacked if they are not there yet.

    Raises:
        DefinitionError: they cannot be had on this machine, and why.
    """
    if platform.machine() != "x86_64" or not all(map(shutil.which, ("apt-get", "dpkg-deb"))):
        raise DefinitionError(f"{packages[0].name} of the tests is for Debian 12 on x86_64, with apt-get and dpkg-deb")
    digest = hashlib.sha256("".join(each.sha256 for each in packages).encode()).hexdigest()[:16]
    home = cache_dir() / "debian"
    target = home / f"{packages[0].name}-{digest}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _unpack(packages, target)
    return target


def _unpack(packages: Sequence[DebianPackage], target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".tmp-", ignore_cleanup_errors=True) as aside:
        files, root = Path(aside) / "files", Path(aside) / "root"
        files.mkdir()
        wanted = [f"{each.name}={each.version}" for each in packages]
        done = subprocess.run(["apt-get", "download", "-qq", *wanted], cwd=files, capture_output=True, text=True)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise DefinitionError(
                f"apt-get cannot fetch {packages[0].name} of the tests: {last}", next="apt-get update"
            )
        sums = {each.sha256: each.name for each in packages}
        for file in files.iterdir():
            if hashlib.sha256(file.read_bytes()).hexdigest() not in sums:
                raise DefinitionError(f"{file.name} is not the package that is pinned in tests/support/debian.py")
            subprocess.run(["dpkg-deb", "-x", str(file), str(root)], check=True, capture_output=True)
        os.rename(root, target)
