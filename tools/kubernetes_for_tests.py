"""Make what tests/crash/test_kubernetes.py needs and no package brings: Kubernetes's programs, and an image of poundlock.

The programs are built by Go, which takes about ten minutes of CPU; the image is what `poundlock deploy image` describes, built by
buildah over a base of Debian's packages, since there may be no registry to have one from. Both go into the folder that
POUNDLOCK_KUBERNETES names, by default one in the cache; what is there stays as it is.

Needs root, Go, and the Debian packages debootstrap, buildah, containerd, runc, containernetworking-plugins and etcd-server.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(os.environ.get("POUNDLOCK_KUBERNETES", Path.home() / ".cache" / "poundlock" / "kubernetes"))
SOURCE = Path(__file__).parents[1]
VERSION = "1.34.4"  # the newest line that the containerd of Debian 12 goes with
COREDNS = "github.com/coredns/coredns@v1.12.4"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
IMAGE = "localhost/poundlock:test"
_NAME = "k8s.io/component-base/version.gitVersion"
MIRROR = "http://deb.debian.org/debian"


def built(folder: Path) -> None:
    """Build the programs that are not in a folder."""
    missing = [name for name in PROGRAMS if not (folder / name).exists()]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
    if missing:
        # Kubernetes's own go.mod points at folders beside it, so the programs are built from a module that names versions instead.
        with tempfile.TemporaryDirectory() as module:
            got = subprocess.check_output(
                ["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{VERSION}"], cwd=module
            )
            own = Path(json.loads(got)["Dir"], "go.mod").read_text()
            minor = VERSION.partition(".")[2]
            own = re.sub(r"^module .*", "module programs", own, flags=re.MULTILINE)
            own = re.sub(r"(\S+) => \./staging/src/\S+", lambda found: f"{found[1]} => {found[1]} v0.{minor}", own)
            Path(module, "go.mod").write_text(f"{own}\nrequire k8s.io/kubernetes v{VERSION}\n")
            imports = "".join(f'\t_ "k8s.io/kubernetes/cmd/{name}/app"\n' for name in PROGRAMS if name != "kubectl")
            Path(module, "programs.go").write_text(f"//go:build programs\n\npackage programs\n\nimport (\n{imports})\n")
            subprocess.run(["go", "mod", "tidy"], cwd=module, env=environment, check=True)
            for name in missing:
                command = [
                    "go",
                    "build",
                    "-trimpath",
                    "-ldflags",
                    f"-s -w -X {_NAME}=v{VERSION}",
                    "-o",
                    str(folder / name),
                ]
                subprocess.run([*command, f"k8s.io/kubernetes/cmd/{name}"], cwd=module, env=environment, check=True)
                print(folder / name, flush=True)
    if not (folder / "coredns").exists():
        place = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(folder)}
        subprocess.run(["go", "install", "-ldflags", "-s -w", COREDNS], env=place, check=True)
        print(folder / "coredns", flush=True)


def image(archive: Path) -> None:
    """Build the image of this checkout into an OCI archive."""
    with tempfile.TemporaryDirectory() as folder:
        root, context = Path(folder, "root"), Path(folder, "context")
        packages = "python3,python3-pip,ca-certificates"
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", root, MIRROR], check=True
        )
        next(root.glob("usr/lib/python3*/EXTERNALLY-MANAGED")).unlink()
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        base = Path(folder, "base.tar")
        subprocess.run(["tar", "-C", root, "-cf", base, "."], check=True)
        working = _buildah("from", "scratch")
        _buildah("add", "-q", working, str(base), "/")
        _buildah("config", "--env", "PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", working)
        _buildah("commit", "-q", working, "docker.io/library/python:3.11-slim-bookworm")
        _buildah("rm", working)
        context.mkdir()
        for name in ("src", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
            place = SOURCE / name
            (shutil.copytree if place.is_dir() else shutil.copy)(place, context / name)
        recipe = [
            sys.executable,
            "-m",
            "poundlock",
            "deploy",
            "image",
            "/src[rest,s3]",
            "-o",
            str(context / "Dockerfile"),
        ]
        subprocess.run(recipe, env={**os.environ, "PYTHONPATH": str(SOURCE / "src")}, check=True)
        (context / "pip.conf").write_text("[global]\ncert = /opt/certificates.pem\n")
        volumes = {
            "/etc/ssl/certs/ca-certificates.crt": "/opt/certificates.pem:ro",
            context / "pip.conf": "/etc/pip.conf:ro",
            context: "/src",
        }
        mounts = [word for here, there in volumes.items() for word in ("-v", f"{here}:{there}")]
        own = ["bud", "--isolation=chroot", "--pull=never", "--network=host", *mounts]
        _buildah(*own, "-t", IMAGE, "-f", str(context / "Dockerfile"), str(context))
        _buildah("push", "-q", IMAGE, f"oci-archive:{archive}:{IMAGE}")
        print(archive)


def _buildah(*arguments: str) -> str:
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}
    return subprocess.check_output(["buildah", *arguments], text=True, env=environment).strip()


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    built(FOLDER)
    if not (FOLDER / "image.tar").exists():
        image(FOLDER / "image.tar")
