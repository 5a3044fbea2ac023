"""spark-submit runs the audit on a cluster, whose workers get it as a zip: the commands of docs/ask-why/audit.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

from coordinator.audit.show.summary import summary
from coordinator.audit.spark.main import main
from protocol.records.codecs import Codec
from tests.audit.audited import audited
from tests.audit.scenes import Scene, clean, compressed, static_members

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[3]
SUBMIT = Path(sys.executable).with_name("spark-submit")
PAGE = ROOT / "docs/ask-why/audit.md"


def test_submitted_to_a_cluster_it_finds_the_same(tmp_path: Path) -> None:
    """With two executors in processes of their own the audit finds the same."""
    folder = Scene().group(static_members(a=1, b=1), 1).commit(5).commit(4).write(tmp_path / "log")
    package = tmp_path / "tenure.zip"
    command = [sys.executable, "-m", "zipfile", "-c", str(package), "coordinator", "protocol", "schemas"]
    subprocess.run(command, cwd=ROOT, check=True)
    main_file = "coordinator/audit/spark/main.py"
    with zipfile.ZipFile(package) as packed:
        assert main_file in packed.namelist()
    alone = tmp_path / "main.py"
    alone.write_bytes((ROOT / main_file).read_bytes())
    done = subprocess.run(
        [SUBMIT, "--master", "local-cluster[2,1,1024]", "--conf", "spark.driver.host=127.0.0.1",
         "--conf", "spark.driver.bindAddress=127.0.0.1",
         "--py-files", package, alone, folder, "--out", tmp_path / "out"],
        cwd=tmp_path, env={**os.environ, "PYSPARK_PYTHON": sys.executable}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr[-2000:]
    found = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert found == summary(audited(folder))
    assert "commit_back" in done.stdout


def test_what_can_not_be_read_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log that can't be read is exit code 2 and one line."""
    assert main([str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert str(tmp_path) in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["--out", str(tmp_path)])


def test_executors_need_no_package_that_the_page_does_not_name(tmp_path: Path) -> None:
    """Of the packages that Tenure needs, modules that executors import take only those that the page names."""
    found = re.search(r"Each executor needs two things: Python with ([^;]+);", PAGE.read_text())
    assert found is not None
    named = set(re.findall(r"\w+", found[1]))
    program = (
        "import sys; from pathlib import Path; from coordinator.audit.audit import Options, audit\n"
        "import coordinator.audit.spark.follow, coordinator.audit.spark.job\n"
        "audit(Path(sys.argv[1]), None, Options(), lambda done: None)\n"
        "print(*{each.partition('.')[0] for each in sys.modules})"
    )
    scene = clean()
    scene.batches = [compressed(batch, Codec.ZSTD) for batch in scene.batches]
    command = [sys.executable, "-c", program, str(scene.write(tmp_path))]
    modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    distributions = packages_distributions()
    imported = {name for module in modules for name in distributions.get(module, ())}
    needed = {re.split(r"[^\w-]", each)[0] for each in requires("tenure") or () if "extra ==" not in each}
    assert imported & needed <= named
    assert "msgspec" in imported
