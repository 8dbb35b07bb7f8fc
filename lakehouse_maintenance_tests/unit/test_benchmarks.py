"""The benchmarks run, with hardly any data; what they measure is judged by people, not by tests."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


IN_PROCESS = {
    "sort": 6,
    "zorder": 6,
    "tick": 6,
    "manifests": 1,
    "growth_binpack": 3,
    "growth_sort": 3,
    "growth_health": 3,
    "growth_expiry": 3,
    "growth_manifests": 3,
    "large_binpack": 1,
    "large_sort": 1,
}
"""Number of contenders by benchmark."""


@pytest.mark.long
def test_benchmarks_run_in_processes_and_tell_medians_and_ratios(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.__main__ import main

    results = tmp_path / "results.json"
    names = {
        "binpack",
        "binpack_nested",
        "health",
        "expiry",
        "evidence_local",
        "evidence_s3",
        "untracked",
        "definitions",
    }
    only = [argument for name in sorted(names) for argument in ("--only", name)]
    assert main(["--tiny", "--repeat", "1", "--work", str(tmp_path / "work"), "--results", str(results), *only]) == 0

    printed = capsys.readouterr().out
    section = json.loads(results.read_text())["small"]
    assert {"date", "machine", "versions", "benchmarks"} <= set(section)
    assert set(section["benchmarks"]) == names
    for result in section["benchmarks"].values():
        assert result["sizes"]
        assert all(found["seconds"] > 0 for found in result["contenders"].values())
        assert all(ratio["value"] > 0 for ratio in result["ratios"])
        assert result["title"] in printed
    facts = {name: found["facts"] for name, found in section["benchmarks"]["health"]["contenders"].items()}
    assert {found["data_files"] for found in facts.values()} == {200}
    assert len({found["records"] for found in facts.values()}) == 1
    expired = section["benchmarks"]["expiry"]
    assert [found["facts"]["snapshots"] for found in expired["contenders"].values()] == [10, 30, 70]
    assert expired["growth"]["name"] in printed
    assert section["benchmarks"]["binpack"]["contenders"]["ours"]["facts"]["rows"] == 20 * 500


def test_the_others_do_what_they_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, where starting costs nothing."""
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    from benchmarks import running
    from benchmarks.__main__ import main

    def run_here(contender: running.Contender) -> dict[str, object]:
        function = getattr(importlib.import_module(contender.module), contender.function)
        facts = function(**contender.arguments)()
        return {**dict.fromkeys(running.FIGURES, 1.0), "facts": facts}

    monkeypatch.setattr(running, "spawn", run_here)
    results = tmp_path / "results.json"
    only = [argument for name in IN_PROCESS for argument in ("--only", name)]
    assert main(["--tiny", "--repeat", "1", "--work", str(tmp_path / "work"), "--results", str(results), *only]) == 0

    found = json.loads(results.read_text())["small"]["benchmarks"]
    contenders = {name: one["contenders"] for name, one in found.items()}
    assert {name: len(one) for name, one in contenders.items()} == IN_PROCESS
    for name in ("sort", "zorder"):
        rows = {contenders[name][f"ours, {how}"]["facts"]["rows"] for how in ("in memory", "spilling")}
        assert rows == {20 * 500}
    assert contenders["manifests"]["ours"]["facts"]["rewritten_manifests_count"] == 20
    looked = [one["facts"]["looked"] for name, one in contenders["tick"].items() if name.startswith("ours")]
    assert looked == [0, 1, 2, 20], "a tick looks at what changed, and at nothing else"
    for name in ("large_binpack", "large_sort"):
        assert contenders[name]["ours"]["facts"]["rows"] == 2 * 100_000


def test_growth_is_told_between_the_largest_sizes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.running import Growth, _growth

    medians = {
        name: dict.fromkeys(("seconds", "cpu_seconds"), value) for name, value in zip("abc", (1, 1, 50), strict=True)
    }
    growth = _growth(Growth("g", ((1, "a"), (10, "b"), (100, "c")), at_most=1.1), medians)
    assert growth["exponent"] < 1.1 < growth["last_exponent"]
    assert growth["met"] is False


def test_figures_for_the_page_come_from_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.report import figures

    contender = dict.fromkeys(
        ("seconds", "cpu_seconds", "startup_seconds", "startup_cpu_seconds", "idle_mb", "memory_mb"), 1.0
    )
    section = {
        "date": "2026-01-02T03:04:05+00:00",
        "machine": {"processor": "a processor", "cores": 2, "memory_gb": 8.0, "system": "Linux"},
        "versions": {"python": "3.11.0"},
        "benchmarks": {
            "one": {
                "title": "One",
                "sizes": {"files": 800, "bytes": 350_000_000},
                "contenders": {"ours": contender},
                "ratios": [
                    {"name": "peer / ours", "value": 1.25, "cpu_value": 1.5, "at_least": 0.85, "met": True},
                ],
            }
        },
    }

    text = figures({"full": section, "small": {**section, "date": "2020-01-01"}})

    assert "2026-01-02" in text
    assert "2020" not in text
    assert "peer / ours: 1.25 (cpu 1.50), target at least 0.85: met" in text
    assert "800 files, 350 MB" in text
    assert "small data" in figures({"small": section})
