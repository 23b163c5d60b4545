"""Everything that a GPU is needed for, in one command of at most 25 minutes: `python -m benchmarks.gpu_hour`.

Correctness comes first: random words on CUDA and on the CPU bit for bit, captured steps without waits, the readings of
all kinds on both devices, and compute-sanitizer on one step of the demo rig, if it is installed. The tables of
`benchmarks.gpu` and `benchmarks.registers` follow. One JSON file holds all results, also of a run that was cut. Run
`sensorium warmup` first, because compilation counts. `--device cpu` tries the command without a GPU, at small sizes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TAIL = 4000
"""Characters of a step's output that are kept."""
ONE_STEP = """
import sensorium as sn
from sensorium.demo import model_path
from sensorium.jobs.rig import load_rig
engine = sn.MujocoWarpEngine(str(model_path()), 2, device={device!r})
scene = sn.Scene(engine, load_rig(model_path().with_suffix(".toml"))[0], capture=False)
scene.step()
for sensor in scene.sensors.values():
    sensor.read()
"""


@dataclass(frozen=True)
class Step:
    """One part of the run.

    Attributes:
        name: key in the report.
        command: the command; ``{out}`` is replaced by a file for its JSON.
        minutes: maximum duration.
        needs: program without which the step is omitted.
    """

    name: str
    command: tuple[str, ...]
    minutes: float
    needs: str = ""


def steps_of(device: str) -> list[Step]:
    """Return the steps, in order: 25 minutes together at most."""
    python, on_cpu = sys.executable, device == "cpu"
    small = ("--envs", "1", "--seconds", "0.001", "--ours-only", "--only", "imu", "stages")
    size = small if on_cpu else ("--envs", "1", "4096")
    figures = ("--device", device, *size, "--json", "{out}")
    check = ("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "3")
    step = (python, "-c", ONE_STEP.format(device=device))
    tests = ("-q", "-m", "not soak", "--maxfail=20", "-p", "no:cacheprovider", *(["--collect-only"] if on_cpu else []))
    words = ["wide_tree"] if on_cpu else []
    kinds = ("--device", device, *(["--kinds", "imu", "--steps", "2"] if on_cpu else []), "--json", "{out}")
    return [
        Step("tests", (python, "-m", "pytest", "tests/test_random.py", "tests/test_capture.py", *tests), 3.0),
        Step("kinds", (python, "-m", "tests.compare_devices", *kinds), 5.0),
        Step("step", step, 4.0),
        Step("sanitizer", (*check, *step), 3.0, needs="compute-sanitizer"),
        Step("figures", (python, "-m", "benchmarks.gpu", *figures), 8.0),
        Step(
            "registers",
            (python, "-m", "benchmarks.registers", *words, "--json", "{out}"),
            2.0,
        ),
    ]


@dataclass
class Report:
    """Results by step, written after each.

    Attributes:
        path: the JSON file.
        results: name of a step -> exit code, seconds, end of its output, and its own JSON.
    """

    path: Path
    results: dict[str, dict[str, Any]] = field(default_factory=dict)

    def run(self, step: Step) -> bool:
        """Run a step and return whether it succeeded or was omitted."""
        if step.needs and shutil.which(step.needs) is None:
            result: dict[str, Any] = {"omitted": f"{step.needs} is not installed"}
        else:
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder, "out.json")
                command = [str(out) if part == "{out}" else part for part in step.command]
                start = time.perf_counter()
                try:
                    done = subprocess.run(
                        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                        timeout=60.0 * step.minutes,
                    )  # fmt: skip
                    code, said = done.returncode, done.stdout
                except subprocess.TimeoutExpired as error:
                    code, said = 124, error.stdout or b""
                result = {"exit_code": code, "seconds": time.perf_counter() - start}
                result["output"] = said.decode(errors="replace")[-TAIL:]
                if out.exists():
                    result["figures"] = json.loads(out.read_text(encoding="utf-8"))
        self.results[step.name] = result
        self.path.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")
        return result.get("exit_code", 0) == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: 0 all steps succeeded, 1 one failed or took too long."""
    parser = argparse.ArgumentParser("python -m benchmarks.gpu_hour", description=__doc__)
    parser.add_argument("--device", default="cuda:0", help="cuda:INDEX, or cpu for a rehearsal (default: cuda:0)")
    parser.add_argument("--json", type=Path, default=Path("gpu.json"), help="file of the results (default: gpu.json)")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="only these steps")
    options = parser.parse_args(arguments)
    report, failed = Report(options.json), []
    for step in steps_of(options.device):
        if options.only and step.name not in options.only:
            continue
        print(f"{step.name} (at most {step.minutes:g} minutes) ...", flush=True)
        if not report.run(step):
            failed.append(step.name)
            print(report.results[step.name]["output"])
    print(f"The results are in {options.json}." + (f" Failed: {', '.join(failed)}." if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
