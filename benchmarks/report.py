"""Results as a table on the terminal, as `results.json`, and as the figures of docs/benchmarks.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


def table(result: dict[str, Any]) -> str:
    """One benchmark's medians and ratios for the terminal."""
    lines = [
        "",
        result["title"],
        f"  {'median of ' + str(result['repeat']):<28} {'work s':>9} {'cpu s':>9} {'start s':>9} {'memory MB':>10}",
    ]
    for name, found in result["contenders"].items():
        lines.append(
            f"  {name:<28} {found['seconds']:>9.3f} {found['cpu_seconds']:>9.3f} {found['startup_seconds']:>9.3f}"
            f" {found['memory_mb']:>10.0f}"
        )
    lines += [f"  {_told(ratio)}" for ratio in result["ratios"]]
    if "growth" in result:
        lines.append(f"  {_growth(result['growth'])}")
    if "memory" in result:
        memory = result["memory"]
        verdict = "within" if memory["met"] else "ABOVE"
        lines.append(
            f"  memory: at most {memory['most_mb']:.0f} MB, {verdict} the limit of {memory['limit_mb']:.0f} MB"
        )
    return "\n".join(lines)


def _told(ratio: dict[str, Any]) -> str:
    text = f"{ratio['name']}: {ratio['value']:.2f} (cpu {ratio['cpu_value']:.2f})"
    if "met" not in ratio:
        return text
    target = f"at least {ratio['at_least']}" if "at_least" in ratio else f"at most {ratio['at_most']}"
    return f"{text}, target {target}: {'met' if ratio['met'] else 'MISSED'}"


def _growth(growth: dict[str, Any]) -> str:
    last = ""
    if "last_exponent" in growth:
        last = f", {growth['last_exponent']:.2f} (cpu {growth['last_cpu_exponent']:.2f}) between the two largest"
    return (
        f"{growth['name']}: grows with the power {growth['exponent']:.2f} (cpu {growth['cpu_exponent']:.2f}){last}, "
        f"target at most {growth['at_most']}: {'met' if growth['met'] else 'MISSED'}"
    )


def save(path: Path, section: str, results: dict[str, Any], about: dict[str, Any]) -> None:
    """Writes one section (`full` or `small`); the other stays as it was.

    A benchmark that was not run now keeps its figures if they come from the same machine and versions.
    """
    document = json.loads(path.read_text()) if path.exists() else {}
    before = document.get(section, {})
    kept = before.get("benchmarks", {}) if all(before.get(k) == about[k] for k in ("machine", "versions")) else {}
    document[section] = {**about, "benchmarks": {**kept, **results}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def update_page(page: Path, results: Path) -> None:
    """Writes the figures between the marks of the page."""
    head, _, rest = page.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n{figures(json.loads(results.read_text()))}{END}{tail}")


def figures(document: dict[str, Any]) -> str:
    """Markdown: of the full run where there is one, else of the small one."""
    name = "full" if "full" in document else "small"
    section = document[name]
    machine, versions = section["machine"], section["versions"]
    lines = [
        f"Measured {section['date'][:10]} on {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gb']} GB, {machine['system']}"
        + ("" if name == "full" else "; small data, which tells that the benchmarks run, not how fast anything is")
        + ". Versions: "
        + ", ".join(f"{package} {version}" for package, version in versions.items())
        + ".",
        "",
    ]
    for result in section["benchmarks"].values():
        lines += [f"### {result['title']}", "", ", ".join(_sizes(result["sizes"])) + ".", ""]
        lines += ["| | work, s | CPU, s | start-up, s | memory, MB |", "|---|--:|--:|--:|--:|"]
        for contender, found in result["contenders"].items():
            lines.append(
                f"| {contender} | {found['seconds']:.2f} | {found['cpu_seconds']:.2f} "
                f"| {found['startup_seconds']:.2f} | {found['memory_mb']:.0f} |"
            )
        lines += ["", *(f"- {_told(ratio)}" for ratio in result["ratios"])]
        if "growth" in result:
            lines.append(f"- {_growth(result['growth'])}")
        if "memory" in result:
            memory = result["memory"]
            lines.append(
                f"- memory above the idle process: at most {memory['most_mb']:.0f} MB, "
                f"limit {memory['limit_mb']:.0f} MB: {'met' if memory['met'] else 'MISSED'}"
            )
        lines.append("")
    return "\n".join(lines)


def _sizes(sizes: dict[str, Any]) -> list[str]:
    told = []
    for name, value in sizes.items():
        if name.endswith("bytes"):
            told.append(f"{name.replace('_', ' ').replace(' bytes', '')} {value / 1e6:.0f} MB".replace("bytes ", ""))
        else:
            told.append(f"{value:,} {name}" if isinstance(value, int) else f"{name} {value}")
    return told
