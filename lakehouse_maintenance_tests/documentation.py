"""The documentation as tests read it: its blocks, links, headings and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = (
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
)
PROGRAM = "lakehouse-maintenance"

_FENCE = re.compile(r"^( *)```(\w*)\s*$")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_EXIT = re.compile(r"\s+# exit (\d+)\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block. `section`: the heading of second level above it; `line`: of its fence, from 1."""

    language: str
    text: str
    section: str
    line: int


@dataclass(frozen=True)
class Command:
    """A command as written, the exit code that stands behind it (0 where none does), and the output below it."""

    text: str
    code: int
    output: str = ""

    @property
    def argv(self) -> list[str]:
        """Without the program, for its own commands."""
        words = shlex.split(self.text, comments=True)
        return words[1:] if words[:1] == [PROGRAM] else words


def read(page: Path) -> tuple[str, list[Block]]:
    """The page's prose, without its blocks, and the blocks in order."""
    prose: list[str] = []
    blocks: list[Block] = []
    opened: tuple[str, str, int] | None = None
    inside: list[str] = []
    section = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is not None and fence and not fence[2]:
            indent, language, start = opened
            text = "\n".join(one.removeprefix(indent) for one in inside)
            blocks.append(Block(language, text, section, start))
            opened = None
        elif opened is not None:
            inside.append(line)
        elif fence:
            opened, inside = (fence[1], fence[2], number), []
        else:
            prose.append(line)
            section = line.removeprefix("## ") if line.startswith("## ") else section
    assert opened is None, f"{page.name}: the block of line {opened} never ends"
    return "\n".join(prose), blocks


def links(page: Path) -> list[str]:
    """Targets of links and pictures, those inside the repository alone."""
    prose, _ = read(page)
    return [target for target in _LINK.findall(prose) if "://" not in target and not target.startswith("mailto:")]


def anchors(page: Path) -> set[str]:
    """What headings can be linked by: lower case, no punctuation, hyphens for spaces."""
    prose, _ = read(page)
    headings = re.findall(r"^#+ +(.+?)\s*$", prose, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(block: Block) -> Iterator[Command]:
    """Of a `sh` block, one a line; a backslash at its end goes on with the next."""
    for line in _joined(block.text):
        if line.strip() and not line.lstrip().startswith("#"):
            yield _command(line.strip(), "")


def samples(block: Block) -> Iterator[Command]:
    """Of a block that shows a terminal: what stands behind `$`, with what is printed below."""
    command, output = "", list[str]()
    for line in _joined(block.text):
        if line.startswith("$ "):
            if command:
                yield _command(command, "\n".join(output))
            command, output = line.removeprefix("$ "), []
        elif command:
            output.append(line)
    if command:
        yield _command(command, "\n".join(output))


def _command(text: str, output: str) -> Command:
    code = _EXIT.search(text)
    return Command(_EXIT.sub("", text), int(code[1]) if code else 0, output)


def _joined(text: str) -> list[str]:
    return re.sub(r"\\\n *", "", text).splitlines()


# What differs from call to call, and is therefore not compared.
_VARIES = (
    (re.compile(r"sha256:[0-9a-f]+…?"), "sha256:#"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "#"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)"), "#"),
    (re.compile(r"\b\d{8}-\d{6}-\d{3}-[0-9a-f]{8}\b"), "#"),
    (re.compile(r"(?<= )[0-9a-f]{8}(?= )"), "#"),
    (re.compile(r"\b\d{15,}\b"), "#"),
    (re.compile(r"\b\d+(\.\d+)? (bytes|KB|MB)\b"), "# bytes"),
    (re.compile(r"\b\d+\.\d+\.\d+\b"), "#"),
    (re.compile(r"\bunder a second\b|\b\d+ ?s(econds?)?\b"), "#"),
    (re.compile(r"─+"), "─"),
    (re.compile(r"-{3,}"), "-"),
    (re.compile(r"[ \t]+"), " "),
)


def looks_like(shown: str, real: str) -> bool:
    """Whether the documentation's text is the real one, but for what varies; `…` stands for anything."""
    pattern = ".*?".join(re.escape(part) for part in _plain(shown).split("…"))
    return re.fullmatch(pattern, _plain(real), flags=re.DOTALL) is not None


def _plain(text: str) -> str:
    for varying, instead in _VARIES:
        text = varying.sub(instead, text)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())
