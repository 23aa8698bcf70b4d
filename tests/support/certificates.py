"""Certificates for servers of tests, made by openssl when they are asked for."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


def self_signed(folder: Path, name: str = "localhost", *, password: str | None = None) -> Pair:
    """Return a pair that signs itself, for a name and for 127.0.0.1; a later one of that name takes its place."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Pair(certificate=folder / f"{name}.pem", key=folder / f"{name}.key")
    new = Pair(certificate=folder / f"{name}.pem.new", key=folder / f"{name}.key.new")
    protection = ("-passout", f"pass:{password}") if password is not None else ("-nodes",)
    arguments = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "2", *protection,
                 "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1",
                 "-keyout", str(new.key), "-out", str(new.certificate))  # fmt: skip
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
    new.key.chmod(0o600)
    new.key.replace(made.key)
    new.certificate.replace(made.certificate)
    return made
