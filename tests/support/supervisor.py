"""Stands in for kubectl and systemctl, as far as the scripts of examples/rolling call them; the workers are processes.

    supervisor.py kubectl get statefulset worker -o jsonpath={.spec.replicas}
    supervisor.py kubectl delete pod worker-2 --wait=true       what its controller does too: it starts the pod again
    supervisor.py kubectl wait pod/worker-2 ...
    supervisor.py systemctl restart worker@2.service
    supervisor.py start worker-2, supervisor.py stop worker-2   for the test

The folder WORKERS has a file NAME.pid for each worker that runs, and NAME.log. A worker named in BROKEN doesn't start.

House rule: only workers whose files are in the folder get signals.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

WORKER = Path(__file__).with_name("rolled_worker.py")


def start(folder: Path, name: str) -> None:
    """Start a worker; it runs on after this program."""
    if name == os.environ.get("BROKEN"):
        return
    with (folder / f"{name}.err").open("ab") as errors:
        subprocess.Popen(
            [sys.executable, str(WORKER), str(folder), name, os.environ["BOOTSTRAP"]],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
    wait_until((folder / f"{name}.pid").exists, f"{name} runs", WITHIN_S)


def stop(folder: Path, name: str) -> None:
    """End a worker, and wait for its end."""
    file = folder / f"{name}.pid"
    os.kill(int(file.read_text()), signal.SIGTERM)
    wait_until(lambda: not file.exists(), f"{name} ends", WITHIN_S)


def main(folder: Path, arguments: list[str]) -> None:
    """Do what the command line says."""
    match arguments:
        case ["kubectl", "get", "statefulset", name, "-o", "jsonpath={.spec.replicas}"]:
            print(len(list(folder.glob(f"{name}-*.log"))), end="")
        case ["kubectl", "delete", "pod", name, "--wait=true"]:
            stop(folder, name)
            start(folder, name)
        case ["kubectl", "wait", pod, "--for=condition=Ready", _timeout]:
            assert (folder / f"{pod.removeprefix('pod/')}.pid").exists()
        case ["systemctl", "restart", unit]:
            name = unit.removesuffix(".service").replace("@", "-")
            stop(folder, name)
            start(folder, name)
        case ["start", name]:
            start(folder, name)
        case ["stop", name]:
            stop(folder, name)
        case _:
            sys.exit(f"the stand-in doesn't know {arguments}")


if __name__ == "__main__":
    main(Path(os.environ["WORKERS"]), sys.argv[1:])
