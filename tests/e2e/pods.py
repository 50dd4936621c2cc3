"""Runs the containers of a Kubernetes manifest as processes on this machine, in the environment that a pod would have.

Three things are replaced, because this machine is not a cluster: pod addresses by loopback addresses, mounted volumes
by folders, and the ports of probes and metrics by free ports. --device=cuda is left out, because this machine need not
have a GPU. The rest of each command is used unchanged.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess

from harness import BIN, ROOT, Process, free_port

try:
    import yaml
except ImportError:
    yaml = None

MANIFESTS = ROOT / "deploy" / "kubernetes"
FREE_PORT_FLAGS = ("--health_port", "--metrics_port")


def load(name):
    """Returns kind -> list of objects of a manifest."""
    kinds = {}
    for document in yaml.safe_load_all((MANIFESTS / name).read_text()):
        kinds.setdefault(document["kind"], []).append(document)
    return kinds


def tf_config(job, replica_type, index):
    """Returns the TF_CONFIG that the training operator's controller sets in one pod of a TFJob."""
    name, namespace, spec = job["metadata"]["name"], job["metadata"]["namespace"], job["spec"]
    cluster = {kind.lower(): [f"{name}-{kind.lower()}-{i}.{namespace}.svc:2222" for i in range(replica["replicas"])]
               for kind, replica in spec["tfReplicaSpecs"].items()}
    own = replica_type.lower()
    task = {"type": own, "index": index}
    if not spec.get("enableDynamicWorker"):
        return json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})
    sparse = {"worker": {}, "ps": []}
    if own == "ps":
        sparse["ps"] = [cluster["ps"][index]]
    elif own == "worker":
        sparse = {"worker": {str(index): cluster["worker"][index]}, "ps": cluster["ps"]}
    return json.dumps({"sparseCluster": sparse, "task": task})


class Pods:
    """The pods of one job. Their volumes are subfolders of `folder`; the volume "config" holds the pipeline config."""

    def __init__(self, folder, config):
        self.folder = pathlib.Path(folder)
        self.addresses = {}
        self.processes = []
        (self.folder / "config").mkdir()
        shutil.copy(config, self.folder / "config" / "pipeline.config")

    def make_certificates(self, job):
        """Makes the certificates as deploy/README.md describes: one Secret for all ps tasks, one for all workers."""
        certificates = self.folder / "certificates"
        subprocess.run([ROOT / "scripts" / "make_certs.sh", f"--out={certificates}", f"--job={job}",
                        "--ps=*.pushpull.svc", "--workers=1", "--clones=any"], check=True, stdout=subprocess.DEVNULL)
        for role in ("ps", "worker"):
            secret = self.folder / f"pushpull-{role}-tls"
            secret.mkdir()
            shutil.copy(certificates / "ca.pem", secret)
            shutil.copy(certificates / f"{role}-0.pem", secret / "tls.pem")
            shutil.copy(certificates / f"{role}-0.key", secret / "tls.key")
            (secret / "tls.key").chmod(0o600)

    def local(self, text):
        """Returns the text with each pod's address replaced by an address of this machine, which stays the same."""
        def replace(match):
            return self.addresses.setdefault(match.group(0), f"127.0.0.1:{free_port()}")
        return re.sub(r"[a-z0-9-]+(?:\.[a-z0-9-]+)?\.pushpull\.svc:2222", replace, text)

    def volume_folder(self, pod, volume):
        if "secret" in volume:
            return self.folder / volume["secret"]["secretName"]
        if "emptyDir" in volume:
            path = self.folder / pod / volume["name"]
            path.mkdir(parents=True, exist_ok=True)
            return path
        path = self.folder / volume["name"]
        path.mkdir(exist_ok=True)
        return path

    def command(self, pod, template, environment):
        """Returns (command, environment) of the pod's only container."""
        container, = template["spec"]["containers"]
        volumes = {volume["name"]: self.volume_folder(pod, volume) for volume in template["spec"]["volumes"]}
        mounts = [(mount["mountPath"], volumes[mount["name"]]) for mount in container["volumeMounts"]]
        environment = dict(environment)
        for variable in container.get("env", []):
            if "value" in variable:
                environment[variable["name"]] = self.local(variable["value"])
        command = [str(BIN / container["command"][0])]
        for argument in container["command"][1:]:
            if argument == "--device=cuda":
                continue
            argument = re.sub(r"\$\((\w+)\)", lambda match: environment[match.group(1)], argument)
            flag, value = self.local(argument).split("=", 1)
            if flag in FREE_PORT_FLAGS:
                value = str(free_port())
            for path, folder in mounts:
                if value == path or value.startswith(path + "/"):
                    value = str(folder) + value[len(path):]
                    break
            command.append(f"{flag}={value}")
        return command, environment

    def start(self, pod, template, environment, extra=()):
        """Starts the pod's container and returns its Process. The output goes to POD.log."""
        command, own = self.command(pod, template, environment)
        inherited = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "TSAN_OPTIONS")
                     if name in os.environ}
        process = Process(self.folder / f"{pod}.log", pathlib.Path(command[0]).name, *command[1:], *extra,
                          env={**inherited, **own})
        self.processes.append(process)
        return process

    def start_replica(self, job, kind, index, extra=()):
        """Starts a pod of a TFJob with the TF_CONFIG that the controller would set."""
        environment = {"TF_CONFIG": self.local(tf_config(job, kind, index))}
        pod = f"{job['metadata']['name']}-{kind.lower()}-{index}"
        return self.start(pod, job["spec"]["tfReplicaSpecs"][kind]["template"], environment, extra)


def listening_ports(pid):
    """Returns the TCP ports on which a process and its children listen."""
    inodes, pids = set(), [pid]
    for process in pids:
        try:
            pids.extend(int(child) for task in pathlib.Path(f"/proc/{process}/task").iterdir()
                        for child in (task / "children").read_text().split())
            for descriptor in pathlib.Path(f"/proc/{process}/fd").iterdir():
                match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(descriptor))
                if match:
                    inodes.add(match.group(1))
        except OSError:
            continue
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports
