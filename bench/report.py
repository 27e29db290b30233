"""What was found: lines for people, figures for machines."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.machine import description, load

ARTIFACTS = Path(__file__).parent.parent / "artifacts"


@dataclass(frozen=True, slots=True)
class Line:
    """One finding; ``reach`` is what the issues ask for, ``met`` None where they ask for nothing."""

    what: str
    measured: str
    reach: str = ""
    met: bool | None = None


@dataclass(slots=True)
class Report:
    """Everything that was found."""

    lines: list[Line] = field(default_factory=list[Line])
    figures: dict[str, object] = field(default_factory=dict[str, object])
    load_before: float = field(default_factory=load)

    def begin(self) -> None:
        """Note and print which machine this is, and what else it does."""
        self.figures["machine"] = {"description": description(), "load_before": self.load_before}
        print(f"{description()}; load {self.load_before:.1f}")

    def add_load(self) -> None:
        """How much else the machine did, at the beginning and now."""
        self.add("load of the machine, before / at the end", f"{self.load_before:.1f} / {load():.1f}")

    def show(self, name: str) -> None:
        """Print the table, and keep it under the name."""
        print(f"\n{self.table()}\n\nkept in {self.keep(name)}")

    def add(self, what: str, measured: str) -> None:
        """A finding without a mark to reach."""
        self.lines.append(Line(what, measured))

    def most(self, what: str, value: float, limit: float, form: str) -> None:
        """A finding that should be at most the limit; ``form`` is a format with a unit, such as ``{:.1f} ms``."""
        self.lines.append(Line(what, form.format(value), f"≤ {form.format(limit)}", value <= limit))

    def least(self, what: str, value: float, limit: float, form: str) -> None:
        """A finding that should be at least the limit."""
        self.lines.append(Line(what, form.format(value), f"≥ {form.format(limit)}", value >= limit))

    def table(self) -> str:
        """The lines as a plain table."""
        marks = {True: "reached", False: "MISSED", None: ""}
        rows = [
            ("", "measured", "to reach", ""),
            *((line.what, line.measured, line.reach, marks[line.met]) for line in self.lines),
        ]
        return _aligned(rows)

    def keep(self, name: str) -> Path:
        """Write ``NAME.txt`` and ``NAME.json`` into artifacts/; the folder."""
        ARTIFACTS.mkdir(exist_ok=True)
        (ARTIFACTS / f"{name}.txt").write_text(self.table() + "\n")
        (ARTIFACTS / f"{name}.json").write_text(json.dumps(self.figures, indent=1) + "\n")
        return ARTIFACTS


def _aligned(rows: Sequence[tuple[str, str, str, str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
