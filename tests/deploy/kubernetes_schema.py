"""Schemas of the Kubernetes objects in deploy/kubernetes/, for the fields used there, and a strict validator.

Unknown fields, wrong types, malformed values and missing required fields are problems, which are listed with their
paths. The schemas follow Kubernetes 1.29 and TFJob v1 (training operator 1.9).

A schema is a function check(value, path, problems) that appends its problems. The functions below make schemas.
"""
import re

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?\Z")
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?\Z")
PORT_NAME = re.compile(r"(?=.{1,15}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")


def text(pattern=None):
    def check(value, path, problems):
        if not isinstance(value, str):
            problems.append(f"{path}: expected a string, got {value!r}")
        elif pattern is not None and not re.match(pattern, value):
            problems.append(f"{path}: {value!r} is not of the form {pattern if isinstance(pattern, str) else pattern.pattern}")
    return check


def one_of(*values):
    def check(value, path, problems):
        if value not in values or isinstance(value, bool) != isinstance(values[0], bool):
            problems.append(f"{path}: expected one of {', '.join(map(str, values))}, got {value!r}")
    return check


def number(least=0, most=2**31 - 1):
    def check(value, path, problems):
        if isinstance(value, bool) or not isinstance(value, int):
            problems.append(f"{path}: expected a whole number, got {value!r}")
        elif not least <= value <= most:
            problems.append(f"{path}: {value} is not within {least} to {most}")
    return check


def flag(value, path, problems):
    if not isinstance(value, bool):
        problems.append(f"{path}: expected true or false, got {value!r}")


def quantity(value, path, problems):
    if isinstance(value, bool) or not QUANTITY.match(str(value)):
        problems.append(f"{path}: {value!r} is not a quantity")


def array(item, least=1):
    def check(value, path, problems):
        if not isinstance(value, list):
            problems.append(f"{path}: expected a list, got {value!r}")
            return
        if len(value) < least:
            problems.append(f"{path}: expected at least {least} entries, got {len(value)}")
        for i, entry in enumerate(value):
            item(entry, f"{path}[{i}]", problems)
    return check


def mapping(key, item):
    def check(value, path, problems):
        if not isinstance(value, dict):
            problems.append(f"{path}: expected an object, got {value!r}")
            return
        for name, entry in value.items():
            key(name, f"{path} (key)", problems)
            item(entry, f"{path}.{name}", problems)
    return check


def record(required=(), exactly_one=(), **fields):
    """Makes the schema of an object with these fields and no others. A trailing _ in a field's name is dropped, so that
    Python keywords can be used."""
    fields = {name.rstrip("_"): check for name, check in fields.items()}

    def check(value, path, problems):
        if not isinstance(value, dict):
            problems.append(f"{path}: expected an object, got {value!r}")
            return
        for name in value:
            if name not in fields:
                problems.append(f"{path}: unknown field {name!r}")
        for name in required:
            if name not in value:
                problems.append(f"{path}: {name} is missing")
        if exactly_one and sum(name in value for name in exactly_one) != 1:
            problems.append(f"{path}: expected exactly one of {', '.join(exactly_one)}")
        for name, field in fields.items():
            if name in value:
                field(value[name], f"{path}.{name}", problems)
    return check


PORT = number(1, 65535)
LABELS = mapping(text(LABEL_KEY), text(LABEL_VALUE))
ANNOTATIONS = mapping(text(LABEL_KEY), text())
SELECTOR = record(required=["matchLabels"], matchLabels=LABELS)
RESOURCES = mapping(text(LABEL_KEY), quantity)
GRPC_PROBE = record(
    required=["grpc"], grpc=record(required=["port"], port=PORT, service=text()), periodSeconds=number(1),
    timeoutSeconds=number(1), failureThreshold=number(1), successThreshold=number(1), initialDelaySeconds=number())
ENV = record(
    required=["name"], exactly_one=["value", "valueFrom"], name=text(r"[A-Za-z_][A-Za-z0-9_]*\Z"), value=text(),
    valueFrom=record(required=["fieldRef"], fieldRef=record(
        required=["fieldPath"],
        fieldPath=text(r"(metadata\.(name|namespace|uid|(labels|annotations)\['[^']+'\])|status\.podIP)\Z"))))
CONTAINER = record(
    required=["name", "image", "command"], name=text(NAME),
    image=text(r"[a-z0-9./:_-]+(:[A-Za-z0-9._-]+)?(@sha256:[0-9a-f]{64})?\Z"), command=array(text()), args=array(text()),
    env=array(ENV), imagePullPolicy=one_of("Always", "IfNotPresent", "Never"),
    ports=array(record(required=["containerPort"], name=text(PORT_NAME), containerPort=PORT,
                       protocol=one_of("TCP", "UDP"))),
    startupProbe=GRPC_PROBE, livenessProbe=GRPC_PROBE, readinessProbe=GRPC_PROBE,
    resources=record(requests=RESOURCES, limits=RESOURCES),
    securityContext=record(
        allowPrivilegeEscalation=flag, readOnlyRootFilesystem=flag, runAsNonRoot=flag, runAsUser=number(),
        capabilities=record(drop=array(text()), add=array(text()))),
    volumeMounts=array(record(required=["name", "mountPath"], name=text(NAME), mountPath=text(r"/[^:]*\Z"),
                              readOnly=flag, subPath=text())))
VOLUME = record(
    required=["name"], exactly_one=["emptyDir", "configMap", "secret", "persistentVolumeClaim"], name=text(NAME),
    emptyDir=record(medium=one_of("Memory", ""), sizeLimit=quantity),
    configMap=record(required=["name"], name=text(NAME), defaultMode=number(0, 0o777)),
    secret=record(required=["secretName"], secretName=text(NAME), defaultMode=number(0, 0o777), optional=flag),
    persistentVolumeClaim=record(required=["claimName"], claimName=text(NAME), readOnly=flag))
POD = record(
    required=["containers"], containers=array(CONTAINER), volumes=array(VOLUME),
    restartPolicy=one_of("Always", "OnFailure", "Never"), terminationGracePeriodSeconds=number(),
    automountServiceAccountToken=flag, enableServiceLinks=flag, nodeSelector=LABELS,
    securityContext=record(
        runAsNonRoot=flag, runAsUser=number(), runAsGroup=number(), fsGroup=number(),
        fsGroupChangePolicy=one_of("OnRootMismatch", "Always"),
        seccompProfile=record(required=["type"], type=one_of("RuntimeDefault", "Localhost"))))
TEMPLATE = record(required=["metadata", "spec"], metadata=record(required=["labels"], labels=LABELS,
                                                                 annotations=ANNOTATIONS), spec=POD)
METADATA = record(required=["name", "namespace"], name=text(NAME), namespace=text(NAME), labels=LABELS,
                  annotations=ANNOTATIONS)
ACCESS = record(
    from_=array(record(podSelector=SELECTOR, namespaceSelector=record(matchLabels=LABELS))),
    to=array(record(podSelector=SELECTOR, namespaceSelector=record(matchLabels=LABELS))),
    ports=array(record(protocol=one_of("TCP", "UDP"), port=PORT)))
REPLICA = record(required=["replicas", "restartPolicy", "template"], replicas=number(1),
                 restartPolicy=one_of("Always", "OnFailure", "Never", "ExitCode"), template=TEMPLATE)
JOB_SPEC = record(
    required=["template"], completionMode=one_of("Indexed", "NonIndexed"), completions=number(1), parallelism=number(1),
    backoffLimit=number(), backoffLimitPerIndex=number(), maxFailedIndexes=number(), activeDeadlineSeconds=number(1), ttlSecondsAfterFinished=number(), template=TEMPLATE,
    podFailurePolicy=record(required=["rules"], rules=array(record(
        required=["action"], exactly_one=["onExitCodes", "onPodConditions"],
        action=one_of("FailJob", "FailIndex", "Ignore", "Count"),
        onExitCodes=record(required=["operator", "values"], operator=one_of("In", "NotIn"), values=array(number(0, 255)),
                           containerName=text(NAME)),
        onPodConditions=array(record(required=["type", "status"], type=text(), status=one_of("True", "False")))))))


def of_kind(api_version, kind, metadata=METADATA, **fields):
    return record(required=["apiVersion", "kind", "metadata", *fields], apiVersion=one_of(api_version), kind=one_of(kind),
                  metadata=metadata, **fields)


KINDS = {
    "Namespace": of_kind("v1", "Namespace", metadata=record(required=["name"], name=text(NAME), labels=LABELS)),
    "PersistentVolumeClaim": of_kind("v1", "PersistentVolumeClaim", spec=record(
        required=["accessModes", "resources"],
        accessModes=array(one_of("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")),
        storageClassName=text(NAME), resources=record(required=["requests"], requests=RESOURCES))),
    "Service": of_kind("v1", "Service", spec=record(
        required=["ports", "selector"], clusterIP=one_of("None"), publishNotReadyAddresses=flag, selector=LABELS,
        ports=array(record(required=["port"], name=text(PORT_NAME), port=PORT, protocol=one_of("TCP", "UDP"))))),
    "StatefulSet": of_kind("apps/v1", "StatefulSet", spec=record(
        required=["serviceName", "selector", "template"], serviceName=text(NAME), replicas=number(),
        podManagementPolicy=one_of("OrderedReady", "Parallel"), selector=SELECTOR, template=TEMPLATE,
        updateStrategy=record(required=["type"], type=one_of("OnDelete", "RollingUpdate")))),
    "Job": of_kind("batch/v1", "Job", spec=JOB_SPEC),
    "PodDisruptionBudget": of_kind("policy/v1", "PodDisruptionBudget", spec=record(
        required=["selector"], exactly_one=["minAvailable", "maxUnavailable"], minAvailable=number(),
        maxUnavailable=number(), selector=SELECTOR)),
    "NetworkPolicy": of_kind("networking.k8s.io/v1", "NetworkPolicy", spec=record(
        required=["podSelector"], podSelector=SELECTOR, policyTypes=array(one_of("Ingress", "Egress")),
        ingress=array(ACCESS), egress=array(ACCESS))),
    "TFJob": of_kind("kubeflow.org/v1", "TFJob", spec=record(
        required=["tfReplicaSpecs"], successPolicy=one_of("", "AllWorkers"), enableDynamicWorker=flag,
        runPolicy=record(cleanPodPolicy=one_of("All", "Running", "None"), ttlSecondsAfterFinished=number(),
                         activeDeadlineSeconds=number(1), backoffLimit=number(), suspend=flag),
        tfReplicaSpecs=record(Chief=REPLICA, Master=REPLICA, PS=REPLICA, Worker=REPLICA, Evaluator=REPLICA))),
}


def pod_templates(document):
    """Returns (name, template) of every kind of pod that the object creates."""
    spec = document.get("spec", {})
    if document["kind"] == "TFJob":
        return [(name, replica["template"]) for name, replica in spec["tfReplicaSpecs"].items()]
    return [(document["metadata"]["name"], spec["template"])] if "template" in spec else []


def cross_check(document):
    """Returns the problems that the schemas cannot express, such as names that must agree within an object."""
    problems = []
    spec = document.get("spec", {})
    for name, template in pod_templates(document):
        pod = template["spec"]
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        mounted = set()
        for container in pod["containers"]:
            where = f"{name}.{container['name']}"
            mounts = container.get("volumeMounts", [])
            mounted |= {mount["name"] for mount in mounts}
            for mount in mounts:
                if mount["name"] not in volumes:
                    problems.append(f"{where}: volumeMount {mount['name']!r} has no volume")
            if len({mount["mountPath"] for mount in mounts}) != len(mounts):
                problems.append(f"{where}: a mountPath appears twice")
            defined = {variable["name"] for variable in container.get("env", [])}
            for argument in container["command"] + container.get("args", []):
                for variable in re.findall(r"\$\(([^)]*)\)", argument):
                    if variable not in defined:
                        problems.append(f"{where}: {argument!r} uses a variable that env does not define")
        for volume in volumes - mounted:
            problems.append(f"{name}: volume {volume!r} is not mounted")
        selector = spec.get("selector", {}).get("matchLabels", {})
        if document["kind"] != "TFJob" and not selector.items() <= template["metadata"]["labels"].items():
            problems.append(f"{name}: the selector does not match the template's labels")
        if document["kind"] == "Job" and pod.get("restartPolicy") not in ("Never", "OnFailure"):
            problems.append(f"{name}: a Job's pods need restartPolicy Never or OnFailure")
        if "podFailurePolicy" in spec and pod.get("restartPolicy") != "Never":
            problems.append(f"{name}: podFailurePolicy needs restartPolicy Never")
        if document["kind"] == "TFJob":
            main = [c for c in pod["containers"] if c["name"] == "tensorflow"]
            if len(main) != 1:
                problems.append(f"{name}: TFJob needs exactly one container named tensorflow")
            elif {"name": "tfjob-port", "containerPort": 2222} not in main[0].get("ports", []):
                problems.append(f"{name}: TFJob needs the port tfjob-port, 2222")
    actions = {rule["action"] for rule in spec.get("podFailurePolicy", {}).get("rules", [])}
    if "FailIndex" in actions and "backoffLimitPerIndex" not in spec:
        problems.append("FailIndex needs backoffLimitPerIndex")
    if "backoffLimitPerIndex" in spec and spec.get("completionMode") != "Indexed":
        problems.append("backoffLimitPerIndex needs completionMode Indexed")
    if spec.get("completionMode") == "Indexed" and "completions" not in spec:
        problems.append("an Indexed Job needs completions")
    return problems


def validate(document):
    """Returns the list of all problems of an object, each with its path."""
    if not isinstance(document, dict) or document.get("kind") not in KINDS:
        return [f"unknown kind {document.get('kind') if isinstance(document, dict) else document!r}"]
    problems = []
    KINDS[document["kind"]](document, document["kind"], problems)
    return problems or cross_check(document)
