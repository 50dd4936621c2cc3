"""`pushpull.connect`: what is not given comes from the environment that `pushpull worker` sets for its clones."""
from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from typing import Optional, Union

from pushpull import _library
from pushpull._end_of_run import EndOfRunCheck
from pushpull.errors import error_of
from pushpull.parameter_server import ParameterServer, PathLike

DEFAULT_ADDRESS = "127.0.0.1:2222"
_CONNECTIONS_PER_PROCESS = 1 << 32
_sessions: dict[tuple[str, int], tuple[int, int]] = {}  # by servers and clone: the session and its last process number


def _new_identity(addresses: str, clone: int) -> tuple[int, int]:
    """Returns the session and the process number for another connection of a clone.

    A clone that connects again, as in a notebook, takes the place of its earlier connection at once, because the server
    accepts the highest process number of a session.
    """
    environment = os.environ
    session, number = secrets.randbits(64) | 1, 0
    if environment.get("PUSHPULL_CLONE") == str(clone):
        session = int(environment["PUSHPULL_SESSION"])
        number = int(environment["PUSHPULL_PROCESS_NUMBER"]) * _CONNECTIONS_PER_PROCESS
    session, number = _sessions.get((addresses, clone), (session, number))
    _sessions[addresses, clone] = (session, number + 1)
    return session, number + 1


def _joined(address: Union[str, Sequence[str]]) -> str:
    """Returns the addresses as the library takes them. Raises TypeError if they are no texts."""
    if isinstance(address, str):
        return address
    if isinstance(address, Sequence) and all(isinstance(one, str) for one in address):
        return ",".join(address)
    raise TypeError(f'address={address!r}: expected a text such as "host:2222", or a list with one for each ps task')


def _precision(given: Optional[str], name: str) -> bytes:
    """Returns the precision that was given, or that of the environment. Raises ValueError if it is not known."""
    value = given if given is not None else os.environ.get(f"PUSHPULL_{name.upper()}", "")
    _library.check_precision(name, value)
    return value.encode()


def connect(address: Union[str, Sequence[str], None] = None, *, clone: Optional[int] = None,
            num_clones: Optional[int] = None, model_name: Optional[str] = None, peer_deadline_s: float = 300.0,
            gradient_precision: Optional[str] = None, weight_precision: Optional[str] = None,
            shared_memory: Optional[bool] = None, tls_ca: Optional[PathLike] = None, tls_cert: Optional[PathLike] = None,
            tls_key: Optional[PathLike] = None, insecure: Optional[bool] = None,
            check: Optional[Callable[[], None]] = None) -> ParameterServer:
    """Connects to a parameter server as one clone of its job. Blocks until it answers.

    What is not given comes from the environment that `pushpull worker` sets for the clones it starts.

    address: of ps task 0, or of all tasks in order: "host:2222" or "unix:/path"; default: 127.0.0.1:2222.
    clone, num_clones: the number of this clone, counted from 0, and how many the job has; default: 0 and 1.
    model_name: if given, the job must have it as model.external.name.
    peer_deadline_s: seconds of silence after which a server is given up; 0 means the default, 300.
    gradient_precision: how gradients are sent: "fp32" (default), "bf16", which halves the bytes, or "int8", about a
        quarter of them. What int8 loses of one contribution is added to the next, until this process ends; after a
        killed process a run ends with other bits.
    weight_precision: how weights arrive: "fp32" (default) or "bf16", half the bytes. The model computes with rounded
        weights and running statistics; the server's stay float32. Other buffers are rounded in neither direction.
    shared_memory: exchange data with servers on this machine through shared memory; default: yes.
    tls_ca, tls_cert, tls_key: PEM files for TLS.
    insecure: allow connections without TLS to other machines, because the network is trusted; default: no.
    check: called a few times a second while the clone waits; may raise.

    Raises PeerLostError if no server answers, and FailedPreconditionError if the job is another model's.
    """
    environment = os.environ
    if address is None:
        address = environment.get("PUSHPULL_PS", DEFAULT_ADDRESS)
    addresses = _joined(address)
    if clone is None:
        clone = int(environment.get("PUSHPULL_CLONE", "0"))
    if num_clones is None:
        num_clones = int(environment.get("PUSHPULL_NUM_CLONES", "1"))
    if not 0 <= clone < num_clones:
        raise ValueError(f"clone={clone} is not one of num_clones={num_clones} clones, which count from 0")

    gradients = _precision(gradient_precision, "gradient_precision")
    weights = _precision(weight_precision, "weight_precision")
    if insecure is None:
        insecure = environment.get("PUSHPULL_INSECURE") == "1"
    if shared_memory is None:
        shared_memory = environment.get("PUSHPULL_SHARED_MEMORY", "1") == "1"

    def encoded(path: Optional[PathLike]) -> Optional[bytes]:
        return None if path is None else os.fsencode(path)

    session, process_number = _new_identity(addresses, clone)
    options = _library.CloneOptions(
        ps=addresses.encode(), worker_id=clone, num_replicas=num_clones, session=session, process_number=process_number,
        peer_deadline_seconds=peer_deadline_s, gradient_precision=gradients, weight_precision=weights,
        shared_memory=shared_memory, tls_ca=encoded(tls_ca), tls_cert=encoded(tls_cert), tls_key=encoded(tls_key),
        insecure=insecure)
    ps = ParameterServer(options, check or EndOfRunCheck(addresses))
    if model_name is not None and ps.job.external_name != model_name:
        found = ps.job.external_name
        ps.close()
        raise error_of(9, f"the server at {addresses} trains " +
                       ("a model that it knows itself" if found is None else f"the external model {found!r}") +
                       f", expected the external model {model_name!r}")
    return ps
