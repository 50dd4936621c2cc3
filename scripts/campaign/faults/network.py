"""A bad network between two tasks and two workers, each in a separate network namespace ("host")."""
import dataclasses
import itertools

import netns
from engine import TWO_TASKS, TrainingFault
from job import Job
from switch import SwitchedNetwork

PS = ("ps0", "ps1")
WORKERS = ("worker0", "worker1")
HOSTS = PS + WORKERS
PORT = 2222
LONGEST_S = 3.0  # longest disturbance; disturbances are both shorter and longer than a lease
MBIT_10 = 10e6 / 8


class Network(TrainingFault):
    NAME = "network"
    SHAPES = (TWO_TASKS, dataclasses.replace(TWO_TASKS, sync=False))
    INJECTIONS = 20
    NEEDS_ROOT = True

    def missing(self):
        return super().missing() or netns.missing()

    def run(self, run):
        with SwitchedNetwork(HOSTS, seed=run.rng.getrandbits(32)) as network:
            run.network = network
            super().run(run)

    def make_job(self, run, shape):
        return Job(run.folder, shape, evaluator=False,
                   addresses=[f"{run.network.address(host)}:{PORT}" for host in PS],
                   prefixes={host: run.network.enter(host) for host in HOSTS},
                   server_flags=("--insecure",), worker_flags=("--insecure", "--shared_memory=false"))

    def choose(self, rng):
        """Returns a random disturbance: its name for the table and the switch's rules."""
        one, other = rng.choice(list(itertools.permutations(HOSTS, 2)))
        everywhere = {}
        host = rng.choice(HOSTS)
        return rng.choice((
            (f"partition {min(one, other)} and {max(one, other)}",
             ({"from": one, "to": other, "cut": True}, {"from": other, "to": one, "cut": True})),
            (f"partition {min(one, other)} and {max(one, other)}",
             ({"from": one, "to": other, "cut": True}, {"from": other, "to": one, "cut": True})),
            ("one way cut", ({"from": one, "to": other, "cut": True},)),
            ("one way cut", ({"from": one, "to": other, "cut": True},)),
            ("one host cut off", ({"from": host, "cut": True}, {"to": host, "cut": True})),
            ("one host mute", ({"from": host, "cut": True},)),
            ("5 % loss", (dict(everywhere, loss=0.05),)),
            ("200 ms delay", (dict(everywhere, delay=0.2),)),
            ("reordering", (dict(everywhere, reorder=0.2),)),
            ("duplicates", (dict(everywhere, duplicate=0.2),)),
            ("10 Mbit/s", (dict(everywhere, rate=MBIT_10),)),
            ("reset in mid-chunk", ({"from": one, "to": other, "reset": 3}, {"from": other, "to": one, "reset": 3})),
            ("reset in mid-chunk", (dict(everywhere, reset=2),)),
        ))

    def inject(self, run, job):
        fault, rules = self.choose(run.rng)
        run.network.set_rules(*rules)
        if run.rng.random() < 0.1:
            host = run.rng.choice(HOSTS)
            run.network.cut(host, "down")
            job.pause(run.rng.uniform(0.2, LONGEST_S))
            run.network.heal(host, "down")
            fault = "interface down"
        elif not fault.startswith("reset"):
            job.pause(run.rng.uniform(0.2, LONGEST_S))
        else:
            job.pause(run.rng.uniform(0.1, 0.5))
        run.network.set_rules()
        return fault

    def await_recovery(self, run, job, fault):
        # Waits for two steps, because the first one may have been decided before the end of the fault.
        seconds = job.await_step(beyond=job.applied() + 1) if job.applied() + 1 < job.shape.steps else job.await_step()
        if not job.done():
            run.recovered(fault, seconds)
