"""Checks deploy/kubernetes/ against the schemas and against the programs' flags and exit codes, and the schemas against
broken manifests."""
import copy
import functools
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

import kubernetes_schema

try:
    import yaml
except ImportError:
    yaml = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "testkit"))
from unittest_main import main  # noqa: E402  pylint: disable=wrong-import-position

FOLDER = ROOT / "deploy" / "kubernetes"
MAINS = {"ps_server": "ps_server/ps_server_main.cc", "worker": "worker/worker_main.cc",
         "evaluator": "worker/evaluator_main.cc"}


@functools.lru_cache(maxsize=None)
def parsed(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def load(name):
    return copy.deepcopy(parsed(name))


def exit_codes():
    """Returns name -> value of the exit codes in common/cli/exit_codes.h."""
    header = (ROOT / "common" / "cli" / "exit_codes.h").read_text()
    return {name: int(value) for name, value in re.findall(r"(kExit\w+) = (\d+)", header)}


def flags_of(program):
    """Returns the flags that the program may have, found in its sources."""
    sources = [ROOT / MAINS[program], *(ROOT / "common" / "cli").glob("*.cc"), *(ROOT / "worker" / "cli").glob("*.cc")]
    return {name for source in sources
            for name in re.findall(r"ABSL_FLAG\(\s*[^,]+(?:<[^>]*>)?,\s*(\w+)", source.read_text())}


@unittest.skipIf(yaml is None, "PyYAML is missing: scripts/setup.sh installs python3-yaml")
class ManifestsTest(unittest.TestCase):

    def setUp(self):
        self.files = {path.name: load(path.name) for path in sorted(FOLDER.glob("*.yaml"))}
        self.assertIn("tfjob.yaml", self.files)

    def containers(self):
        """Yields (place, pod template, container) of every container."""
        for name, documents in self.files.items():
            for document in documents:
                for pod_name, template in kubernetes_schema.pod_templates(document):
                    for container in template["spec"]["containers"]:
                        yield f"{name}: {pod_name}", template, container

    def test_all_are_valid(self):
        for name, documents in self.files.items():
            for document in documents:
                self.assertEqual(kubernetes_schema.validate(document), [], name)

    def test_without_gpus(self):
        """The edit that deploy/README.md describes gives valid manifests that use only the plain image and the CPU."""
        sed = re.search(r"^    (sed .*) deploy/kubernetes/tfjob.yaml \|$", (ROOT / "deploy" / "README.md").read_text(),
                        re.MULTILINE).group(1)
        for name in ("tfjob.yaml", "tfjob_dynamic.yaml", "statefulset.yaml"):
            edited = subprocess.run([*shlex.split(sed), str(FOLDER / name)], stdout=subprocess.PIPE, text=True,
                                    check=True).stdout
            for document in yaml.safe_load_all(edited):
                self.assertEqual(kubernetes_schema.validate(document), [], name)
            self.assertNotIn("gpu:", edited)
            self.assertNotIn("cuda", edited)

    def test_containers_with_a_gpu_never_compute_on_the_cpu(self):
        """A program that a scheduler starts again after a GPU's failure must not go on without it."""
        with_gpu = 0
        for where, _, container in self.containers():
            if "nvidia.com/gpu" not in container["resources"].get("limits", {}):
                continue
            with_gpu += 1
            self.assertTrue(any(argument == "--device=cuda" or argument.startswith("--gpus=")
                                for argument in container["command"]), where)
        self.assertEqual(with_gpu, 3)

    def test_restricted(self):
        """The pods fulfil the restricted pod security standard, which the namespace enforces, and their root file
        system is read-only."""
        for where, template, container in self.containers():
            pod, own = template["spec"], container["securityContext"]
            self.assertIs(pod["securityContext"]["runAsNonRoot"], True, where)
            self.assertGreater(pod["securityContext"]["runAsUser"], 0, where)
            self.assertEqual(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", where)
            self.assertIs(pod["automountServiceAccountToken"], False, where)
            self.assertIs(own["allowPrivilegeEscalation"], False, where)
            self.assertIs(own["readOnlyRootFilesystem"], True, where)
            self.assertEqual(own["capabilities"], {"drop": ["ALL"]}, where)
            self.assertIn("memory", container["resources"]["limits"], where)
            self.assertRegex(container["image"], r":[0-9]", where)

    def test_commands_use_existing_programs_and_flags(self):
        for where, _, container in self.containers():
            program = container["command"][0]
            self.assertIn(program, MAINS, where)
            for argument in container["command"][1:]:
                flag = re.match(r"--(\w+)=", argument)
                self.assertIsNotNone(flag, f"{where}: {argument}")
                self.assertIn(flag.group(1), flags_of(program), where)

    def test_paths_in_flags_are_mounted(self):
        for where, _, container in self.containers():
            mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
            for argument in container["command"][1:]:
                value = argument.split("=", 1)[1]
                if value.startswith("/"):
                    self.assertTrue(any(value.startswith(mount + "/") for mount in mounts), f"{where}: {argument}")

    def test_ports(self):
        """Flags, container ports, probes and the network policy name the same ports."""
        policy = next(d for d in self.files["common.yaml"] if d["kind"] == "NetworkPolicy")
        allowed = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        for where, _, container in self.containers():
            if container["command"][0] != "ps_server":
                continue
            flags = dict(a[2:].split("=", 1) for a in container["command"][1:])
            declared = {port["containerPort"] for port in container["ports"]}
            self.assertEqual(declared, {2222, int(flags["health_port"]), int(flags["metrics_port"])}, where)
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                self.assertEqual(container[probe]["grpc"]["port"], int(flags["health_port"]), where)
            # Liveness must not depend on the other tasks.
            self.assertNotIn("service", container["livenessProbe"]["grpc"], where)
            self.assertEqual(allowed, {2222, int(flags["metrics_port"])}, where)

    def test_readiness(self):
        """A task needs the names of the other tasks to restore its variables. So its pod may wait with being ready until
        they are restored only where a Service names pods that are not ready; those of TFJob's operator do not."""
        for name, documents in self.files.items():
            published = [document["spec"]["selector"] for document in documents if document["kind"] == "Service"
                         and document["spec"].get("publishNotReadyAddresses") is True]
            for document in documents:
                for where, template in kubernetes_schema.pod_templates(document):
                    container = template["spec"]["containers"][0]
                    if container["command"][0] != "ps_server":
                        continue
                    labels = template["metadata"]["labels"]
                    has_name = any(selector.items() <= labels.items() for selector in published)
                    self.assertEqual(container["readinessProbe"]["grpc"].get("service", ""),
                                     "ps.ParameterServer" if has_name else "", f"{name}: {where}")

    def test_selectors_match_pods(self):
        common = self.files["common.yaml"]
        for name, documents in self.files.items():
            pods = [t["metadata"]["labels"] for d in documents for _, t in kubernetes_schema.pod_templates(d)]
            for document in documents:
                spec = document.get("spec", {})
                if document["kind"] == "PodDisruptionBudget":
                    wanted = spec["selector"]["matchLabels"]
                elif document["kind"] == "Service":
                    wanted = spec["selector"]
                else:
                    continue
                self.assertEqual([p["app.kubernetes.io/component"] for p in pods if wanted.items() <= p.items()],
                                 ["ps"], name)
            policy = next(d for d in common if d["kind"] == "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
            for labels in pods:
                self.assertLessEqual(policy.items(), labels.items(), name)

    def test_addresses_in_flags_are_those_of_the_pods(self):
        """PS_ADDRESSES lists the host name that Kubernetes or TFJob gives to the pod of each task."""
        for name, documents in self.files.items():
            for document in documents:
                meta, spec = document["metadata"], document.get("spec", {})
                if document["kind"] == "TFJob":
                    count = spec["tfReplicaSpecs"]["PS"]["replicas"]
                    expected = [f"{meta['name']}-ps-{i}.{meta['namespace']}.svc:2222" for i in range(count)]
                elif document["kind"] == "StatefulSet":
                    expected = [f"{meta['name']}-{i}.{spec['serviceName']}.{meta['namespace']}.svc:2222"
                                for i in range(spec["replicas"])]
            for where, _, container in self.containers():
                for variable in container.get("env", []):
                    if where.startswith(name) and variable["name"] == "PS_ADDRESSES":
                        self.assertEqual(variable["value"].split(","), expected, where)

    def test_exit_codes_mean_the_same_everywhere(self):
        """TFJob's restart policy ExitCode restarts pods with codes from 128 on; the Jobs list the permanent codes."""
        codes = exit_codes()
        retried = {codes[name] for name in ("kExitStopped", "kExitPeerLost", "kExitGpuLost", "kExitJobChanged")}
        permanent = set(codes.values()) - retried - {0}
        self.assertLessEqual({codes[name] for name in ("kExitUsage", "kExitBadInput", "kExitMissingInput", "kExitInternal")},
                             permanent)
        self.assertTrue(all(1 <= code < 128 for code in permanent), permanent)
        self.assertTrue(all(code >= 128 for code in retried))
        for document in self.files["tfjob.yaml"] + self.files["tfjob_dynamic.yaml"]:
            if document["kind"] == "TFJob":
                for replica in document["spec"]["tfReplicaSpecs"].values():
                    self.assertEqual(replica["restartPolicy"], "ExitCode")
        for document in self.files["statefulset.yaml"]:
            if document["kind"] == "Job":
                rules = {rule["action"]: set(rule["onExitCodes"]["values"])
                         for rule in document["spec"]["podFailurePolicy"]["rules"] if "onExitCodes" in rule}
                evicted = {codes["kExitEvicted"]} if "FailIndex" in rules else set()
                self.assertEqual(rules.get("FailIndex", set()), evicted)
                # An evaluator is never evicted.
                self.assertEqual(rules["FailJob"], (permanent | {1}) - {codes["kExitEvicted"]})


@unittest.skipIf(yaml is None, "PyYAML is missing: scripts/setup.sh installs python3-yaml")
class BrokenManifestsTest(unittest.TestCase):
    """The validator finds each of these problems and names its place."""

    def broken(self, file, kind, change, *words):
        """Breaks the object of this kind by `change` and expects problems that contain the words."""
        document = next(d for d in load(file) if d["kind"] == kind)
        self.assertEqual(kubernetes_schema.validate(document), [])
        change(document)
        problems = "\n".join(kubernetes_schema.validate(document))
        self.assertTrue(problems, "the problem was not found")
        for word in words:
            self.assertIn(word, problems)

    @staticmethod
    def container(document):
        return kubernetes_schema.pod_templates(document)[0][1]["spec"]["containers"][0]

    def test_tfjob(self):
        def at(change):
            return lambda d: change(self.container(d))
        for change, words in [
                (lambda d: d["spec"].update(cleanPodPolicy="All"), ["TFJob.spec: unknown field 'cleanPodPolicy'"]),
                (lambda d: d["spec"]["runPolicy"].update(cleanPodPolicy=None), ["cleanPodPolicy", "None"]),
                (lambda d: d["spec"]["tfReplicaSpecs"].update(Ps={}), ["unknown field 'Ps'"]),
                (lambda d: d["spec"]["tfReplicaSpecs"]["PS"].update(replicas="2"), ["PS.replicas: expected a whole number"]),
                (lambda d: d["spec"]["tfReplicaSpecs"]["PS"].update(restartPolicy="Exitcode"), ["PS.restartPolicy"]),
                (lambda d: d["spec"]["tfReplicaSpecs"]["Worker"].pop("template"), ["Worker: template is missing"]),
                (lambda d: d.update(apiVersion="kubeflow.org/v2"), ["TFJob.apiVersion"]),
                (lambda d: d["metadata"].update(name="Shapes_1"), ["TFJob.metadata.name"]),
                (at(lambda c: c.update(name="trainer")), ["container named tensorflow"]),
                (at(lambda c: c["ports"][0].update(containerPort=2223)), ["tfjob-port, 2222"]),
                (at(lambda c: c.update(command="ps_server")), ["command: expected a list"]),
                (at(lambda c: c["command"].append("--cluster=$(NOWHERE)")), ["$(NOWHERE)", "env does not define"]),
                (at(lambda c: c["command"].append(7)), ["containers[0].command[", "expected a string, got 7"]),
                (at(lambda c: c["livenessProbe"].update(httpGet={})), ["livenessProbe: unknown field 'httpGet'"]),
                (at(lambda c: c["livenessProbe"]["grpc"].update(port="health")), ["grpc.port"]),
                (at(lambda c: c["volumeMounts"].pop(0)), ["volume 'config' is not mounted"]),
                (at(lambda c: c["volumeMounts"].append({"name": "x", "mountPath": "/x"})), ["'x' has no volume"]),
                (at(lambda c: c["volumeMounts"][0].update(mountPath="etc")), ["mountPath"]),
                (at(lambda c: c["securityContext"].update(readOnlyRootFilesystem="true")), ["expected true or false"]),
                (at(lambda c: c["resources"]["limits"].update(memory="4GB")), ["'4GB' is not a quantity"]),
                (at(lambda c: c.update(Image="x")), ["unknown field 'Image'"]),
        ]:
            self.broken("tfjob.yaml", "TFJob", change, *words)

    def test_plain_kubernetes(self):
        def env(document):
            return self.container(document)["env"][0]
        self.broken("statefulset.yaml", "StatefulSet",
                    lambda d: d["spec"]["template"]["metadata"]["labels"].pop("app.kubernetes.io/component"),
                    "the selector does not match")
        self.broken("statefulset.yaml", "StatefulSet", lambda d: d["spec"].pop("serviceName"), "serviceName is missing")
        self.broken("statefulset.yaml", "StatefulSet", lambda d: env(d).update(value="0"), "exactly one of value, valueFrom")
        self.broken("statefulset.yaml", "StatefulSet",
                    lambda d: env(d)["valueFrom"]["fieldRef"].update(fieldPath="metadata.index"), "fieldPath")
        self.broken("statefulset.yaml", "Job", lambda d: d["spec"].pop("completions"), "needs completions")
        self.broken("statefulset.yaml", "Job", lambda d: d["spec"].pop("backoffLimitPerIndex"), "FailIndex needs")
        self.broken("statefulset.yaml", "Job", lambda d: d["spec"]["template"]["spec"].pop("restartPolicy"),
                    "restartPolicy Never")
        self.broken("statefulset.yaml", "Job", lambda d: d["spec"].update(indexed=True), "unknown field 'indexed'")
        self.broken("statefulset.yaml", "PodDisruptionBudget", lambda d: d["spec"].update(maxUnavailable=1),
                    "exactly one of minAvailable, maxUnavailable")
        self.broken("statefulset.yaml", "Service", lambda d: d["spec"].update(clusterIP=None), "clusterIP")
        self.broken("common.yaml", "PersistentVolumeClaim", lambda d: d["spec"].update(accessModes=["RWX"]), "accessModes[0]")
        self.broken("common.yaml", "NetworkPolicy", lambda d: d["spec"]["ingress"][0]["ports"][0].update(port=99999),
                    "not within 1 to 65535")
        self.assertIn("unknown kind", kubernetes_schema.validate({"kind": "Pod"})[0])


if __name__ == "__main__":
    main(verbosity=2)
