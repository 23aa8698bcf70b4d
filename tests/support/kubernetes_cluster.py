"""EmbeddedKubernetes: a real cluster of one node: etcd, API server, controllers, scheduler, DNS, kubelet, containerd, pods in containers.

All of it lives in a network and a table of mounts of its own: nothing listens where others could ask, and what it mounts goes with it.
It needs root, what Debian calls containerd, runc, containernetworking-plugins and etcd-server, and Kubernetes's programs, which
`tools/kubernetes_for_tests.py` makes. The address of its service is an address of the node, so that it needs no proxy of services.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import psutil
import yaml

from poundlock.errors import TransientError
from poundlock.testing.servers import Servers, end, launch

__all__ = ["ADDRESS", "EmbeddedKubernetes", "lacking"]

PROGRAMS = Path(os.environ.get("POUNDLOCK_KUBERNETES", Path.home() / ".cache" / "poundlock" / "kubernetes"))
_BUILT = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "coredns")
_INSTALLED = ("containerd", "runc", "etcd", "openssl", "nsenter", "unshare", "ip")
_PLUGINS = Path("/usr/lib/cni")
ADDRESS = "10.244.0.1"
"""Where pods reach what runs on the node."""
_API, _DNS = "10.96.0.1", "10.96.0.10"
_NODE = "node"
_VOLUMES = 4


def lacking() -> str | None:
    """Return what this machine has not that a cluster needs, None if it has all of it."""
    if os.geteuid() != 0:
        return "root, without which containers cannot be started"
    if missing := [name for name in _INSTALLED if shutil.which(name) is None]:
        return f"the programs {', '.join(missing)}"
    if not (_PLUGINS / "bridge").exists():
        return f"the network plugins of containers in {_PLUGINS}"
    if missing := [name for name in _BUILT if not (PROGRAMS / name).exists()]:
        return f"{', '.join(missing)} in {PROGRAMS}: run tools/kubernetes_for_tests.py"
    return None


class EmbeddedKubernetes(Servers):
    """A cluster to use in a `with` block, or by `start()` and `close()`.

    Args:
        home: folder for its data and logs; it stays afterwards. None = a temporary one.
    """

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        super().__init__(home, "poundlock-kubernetes-")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._token = secrets.token_hex(16)

    def start(self) -> Self:
        """Start its servers one after the other, and wait until the node takes pods.

        Raises:
            TransientError: one of them did not come up; the text ends with what it logged last.
        """
        for folder in ("logs", "etcd", "containerd", "run", "kubelet", "cni", "manifests"):
            (self.home / folder).mkdir(parents=True, exist_ok=True)
        self._processes["holder"] = launch(
            [_program("unshare"), "--net", "--mount", "--propagation", "slave", _program("sleep"), "infinity"],
            self.home / "logs" / "holder.log",
        )
        self._wait(
            "its network", lambda: Path(f"/proc/{self._holder}/ns/net").stat() != Path("/proc/self/ns/net").stat()
        )
        self._network()
        self._files()
        self._run("etcd", self._etcd(), lambda: bool(self._answers("127.0.0.1:2379", "/health", tls=False)))
        self._run("kube-apiserver", self._api_server(), lambda: self._api("/readyz") == "ok")
        self._run("kube-controller-manager", self._controllers())
        self._run("kube-scheduler", [self._built("kube-scheduler"), *self._as("kubeconfig"), "--leader-elect=false"])
        self._run("coredns", [self._built("coredns"), "-conf", str(self.home / "Corefile")])
        self._run("containerd", [_program("containerd"), "--config", str(self.home / "containerd.toml")],
                  (self.home / "run" / "containerd.sock").exists)  # fmt: skip
        self._pause()
        self._run("kubelet", self._kubelet(), self._node_is_ready)
        self.kubectl("apply", "-f", "-", input=json.dumps(self._volumes()))
        return self

    def close(self) -> None:
        """Kill it with all its containers, and remove its folder, if that was a temporary one."""
        for name in reversed(list(self._processes)):
            if name == "holder":
                self._kill_containers()
            end(self._processes.pop(name))
        if self._temporary:
            shutil.rmtree(self.home, ignore_errors=True)

    # --- what tests do with it -----------------------------------------------------------------------------------------

    def inside(self, *command: str, **given: Any) -> subprocess.CompletedProcess[str]:
        """Run a program where the cluster's addresses are, and return what became of it."""
        return subprocess.run(self._entering(*command), capture_output=True, text=True, **given)

    def run_inside(
        self, name: str, *command: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a server where the cluster's addresses are; it ends with the cluster."""
        log = self.home / "logs" / f"{name}.log"
        process = self._processes[name] = launch(self._entering(*command), log, environment=environment)
        return process

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """Return what kubectl prints. Raises TransientError if it fails."""
        ran = self.inside(self._built("kubectl"), *self._as("kubeconfig"), *arguments, input=input)
        if ran.returncode != 0:
            raise TransientError(f"kubectl {' '.join(arguments)}: {ran.stderr.strip()}")
        return ran.stdout

    def load(self, archive: Path) -> None:
        """Give the node an image, from an OCI archive."""
        ran = self.inside(_program("ctr"), "-a", str(self.home / "run" / "containerd.sock"), "-n", "k8s.io",
                          "images", "import", str(archive))  # fmt: skip
        if ran.returncode != 0:
            raise TransientError(f"{archive} could not be imported: {ran.stderr}")

    def pids(self, pod: str, namespace: str, word: str) -> list[int]:
        """Return the processes of a pod whose command has a word in it."""
        uid = json.loads(self.kubectl("get", "pod", pod, "-n", namespace, "-o", "json"))["metadata"]["uid"]
        return [
            int(process.name)
            for process in Path("/proc").iterdir()
            if process.name.isdigit() and uid in _read(process / "cgroup") and word in _read(process / "cmdline")
        ]

    # --- its parts -----------------------------------------------------------------------------------------------------

    @property
    def _holder(self) -> int:
        return self._processes["holder"].pid

    def _entering(self, *command: str) -> list[str]:
        return [_program("nsenter"), f"--target={self._holder}", "--net", "--mount", "--wd=.", *command]

    def _run(self, name: str, command: list[str], answers: Callable[[], bool] = lambda: True) -> None:
        process = self.run_inside(name, *command)
        self._wait(name, lambda: process.poll() is None and answers(), lambda: process.poll() is not None)

    def _wait(self, what: str, answers: Callable[[], bool], ended: Callable[[], bool] = lambda: False) -> None:
        limit = time.monotonic() + 300
        while not answers():
            if ended() or time.monotonic() > limit:
                log = self.home / "logs" / f"{what}.log"
                raise TransientError(f"{what} did not come up: {_read(log)[-1500:]}")
            time.sleep(0.2)

    def _network(self) -> None:
        for words in (
            "link set lo up",
            f"addr add {_API}/32 dev lo",
            f"addr add {_DNS}/32 dev lo",
            "link add cni0 type bridge",
            f"addr add {ADDRESS}/24 dev cni0",
            "link set cni0 up",
            f"route add default via {ADDRESS} dev cni0",
        ):
            self._checked(_program("ip"), *words.split())
        self._checked(_program("mount"), "--make-rshared", "/")
        self._checked(_program("sysctl"), "-q", "-w", "net.ipv4.ip_forward=1")

    def _checked(self, *command: str) -> None:
        ran = self.inside(*command)
        if ran.returncode != 0:
            raise TransientError(f"{' '.join(command)}: {ran.stderr.strip()}")

    def _files(self) -> None:
        home = self.home
        _openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=cluster",
                 "-keyout", f"{home}/ca.key", "-out", f"{home}/ca.pem")  # fmt: skip
        names = "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost"
        (home / "names").write_text(f"subjectAltName={names},IP:{_API},IP:127.0.0.1,IP:{ADDRESS}\n")
        _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kube-apiserver",
                 "-keyout", f"{home}/api.key", "-out", f"{home}/api.csr")  # fmt: skip
        _openssl("x509", "-req", "-in", f"{home}/api.csr", "-CA", f"{home}/ca.pem", "-CAkey", f"{home}/ca.key",
                 "-CAcreateserial", "-days", "2", "-extfile", f"{home}/names", "-out", f"{home}/api.pem")  # fmt: skip
        _openssl("genrsa", "-out", f"{home}/accounts.key", "2048")
        (home / "tokens.csv").write_text(f'{self._token},admin,1,"system:masters"\n')
        ca = base64.b64encode((home / "ca.pem").read_bytes()).decode()
        cluster = {"server": f"https://{_API}:443", "certificate-authority-data": ca}
        (home / "kubeconfig").write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": cluster}],
                    "users": [{"name": "u", "user": {"token": self._token}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )
        (home / "Corefile").write_text(
            f".:53 {{\n bind {_DNS}\n errors\n kubernetes cluster.local {{\n  kubeconfig {home}/kubeconfig\n }}\n}}\n"
        )
        (home / "resolv.conf").write_text(f"nameserver {_DNS}\n")
        bridge = {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }
        bridge["ipam"]["dataDir"] = f"{home}/addresses"  # type: ignore[index]
        (home / "cni" / "10-bridge.conflist").write_text(
            json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]})
        )
        (home / "containerd.toml").write_text(
            f'version = 2\nroot = "{home}/containerd"\nstate = "{home}/run"\n'
            f'[grpc]\n  address = "{home}/run/containerd.sock"\n'
            '[plugins."io.containerd.grpc.v1.cri"]\n  sandbox_image = "localhost/pause:1"\n  restrict_oom_score_adj = true\n'
            f'  [plugins."io.containerd.grpc.v1.cri".cni]\n    bin_dir = "{_PLUGINS}"\n    conf_dir = "{home}/cni"\n'
        )
        (home / "kubelet.yaml").write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "kubelet.config.k8s.io/v1beta1",
                    "kind": "KubeletConfiguration",
                    "containerRuntimeEndpoint": f"unix://{home}/run/containerd.sock",
                    "cgroupDriver": "cgroupfs",
                    "failCgroupV1": False,
                    "failSwapOn": False,
                    "cgroupRoot": "/",
                    "cgroupsPerQOS": True,
                    "enforceNodeAllocatable": [],
                    "clusterDNS": [_DNS],
                    "clusterDomain": "cluster.local",
                    "resolvConf": f"{home}/resolv.conf",
                    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
                    "authorization": {"mode": "AlwaysAllow"},
                    "staticPodPath": f"{home}/manifests",
                    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
                    "imageGCHighThresholdPercent": 100,
                    "localStorageCapacityIsolation": False,
                }
            )
        )

    def _etcd(self) -> list[str]:
        urls = "http://127.0.0.1:2379"
        return [_program("etcd"), "--data-dir", str(self.home / "etcd"), "--listen-client-urls", urls,
                "--advertise-client-urls", urls, "--listen-peer-urls", "http://127.0.0.1:2380"]  # fmt: skip

    def _api_server(self) -> list[str]:
        home = self.home
        return [
            self._built("kube-apiserver"),
            "--etcd-servers=http://127.0.0.1:2379",
            "--secure-port=443",
            f"--advertise-address={ADDRESS}",
            "--service-cluster-ip-range=10.96.0.0/24",
            f"--tls-cert-file={home}/api.pem",
            f"--tls-private-key-file={home}/api.key",
            f"--token-auth-file={home}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={home}/accounts.key",
            f"--service-account-signing-key-file={home}/accounts.key",
            "--kubelet-preferred-address-types=InternalIP",
            "--feature-gates=WatchList=false",  # the etcd of Debian's does not know what it needs
        ]

    def _controllers(self) -> list[str]:
        return [
            self._built("kube-controller-manager"),
            *self._as("kubeconfig"),
            "--leader-elect=false",
            "--use-service-account-credentials=false",
            f"--service-account-private-key-file={self.home}/accounts.key",
            f"--root-ca-file={self.home}/ca.pem",
            "--node-monitor-grace-period=5m",
        ]

    def _kubelet(self) -> list[str]:
        return [
            self._built("kubelet"),
            *self._as("kubeconfig"),
            f"--config={self.home}/kubelet.yaml",
            f"--root-dir={self.home}/kubelet",
            f"--hostname-override={_NODE}",
            f"--node-ip={ADDRESS}",
        ]

    def _pause(self) -> None:
        """Make the image of the process that holds a pod together, of which a registry would have one."""
        source = Path(__file__).with_name("pause.c")
        image = self.home / "pause"
        (image / "blobs").mkdir(parents=True)
        subprocess.run(["gcc", "-static", "-Os", "-o", str(image / "pause"), str(source)], check=True)
        subprocess.run(["tar", "-C", str(image), "-cf", str(image / "layer.tar"), "pause"], check=True)
        digest = subprocess.check_output(["sha256sum", str(image / "layer.tar")], text=True).split()[0]
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": ["/pause"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
        (image / "config.json").write_text(json.dumps(config))
        manifest = [{"Config": "config.json", "RepoTags": ["localhost/pause:1"], "Layers": ["layer.tar"]}]
        (image / "manifest.json").write_text(json.dumps(manifest))
        archive = self.home / "pause.tar"
        files = ["config.json", "manifest.json", "layer.tar"]
        subprocess.run(["tar", "-C", str(image), "-cf", str(archive), *files], check=True)
        self.load(archive)

    def _volumes(self) -> dict[str, Any]:
        """Return volumes on the node for those who claim one: local ones, whose group Kubernetes sets as it does on a network's."""
        standard = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": "folders",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "kubernetes.io/no-provisioner",
        }
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [_NODE]}
        items: list[dict[str, Any]] = [standard]
        for number in range(_VOLUMES):
            folder = self.home / "volumes" / str(number)
            folder.mkdir(parents=True)
            spec = {
                "capacity": {"storage": "20Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "folders",
                "local": {"path": str(folder)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            }
            items.append(
                {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"folder-{number}"}, "spec": spec}
            )
        return {"apiVersion": "v1", "kind": "List", "items": items}

    def _node_is_ready(self) -> bool:
        try:
            node = json.loads(self.kubectl("get", "node", _NODE, "-o", "json"))
        except TransientError:
            return False
        return any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])

    def _api(self, path: str) -> str:
        return self._answers(f"{_API}:443", path, tls=True)

    def _answers(self, place: str, path: str, *, tls: bool) -> str:
        scheme = "https" if tls else "http"
        token = ["-H", f"Authorization: Bearer {self._token}", "--cacert", str(self.home / "ca.pem")] if tls else []
        return self.inside(_program("curl"), "-sf", "-m", "5", *token, f"{scheme}://{place}{path}").stdout

    def _kill_containers(self) -> None:
        """Kill what runs in containers of this cluster: no server waits for them."""
        mine = f"{self.home}/run/containerd.sock"
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or [""]
            if "containerd-shim" in words[0] and mine in words:
                for each in [*process.children(recursive=True), process]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        each.kill()

    def _as(self, name: str) -> list[str]:
        return [f"--kubeconfig={self.home / name}"]

    def _built(self, name: str) -> str:
        return str(PROGRAMS / name)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise TransientError(f"{name} is not installed")
    return found


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
