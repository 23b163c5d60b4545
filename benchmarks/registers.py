"""Registers, memory and code size of all kernels on a GPU, read from compiled code: `python -m benchmarks.registers`.

Neither a GPU nor a driver is required: Warp compiles for any architecture. Compiled kernels stay in Warp's cache.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.pages import check_markers, write_table
from sensorium.cli.warmup import compile_for_arch, kernel_cache, kernel_modules

REGISTER_FILE = 65536
"""Registers of a multiprocessor."""
THREADS = 2048
"""Resident threads of a multiprocessor; 1536 on consumer cards, which have as many registers."""
BLOCK = 256
"""Threads of a block in Warp's launches."""
EIATTR_REGCOUNT, EIATTR_FRAME_SIZE = 0x2F, 0x11
"""Attributes of `.nv.info`: registers and stack frame of a function."""


@dataclass(frozen=True)
class Usage:
    """Resources of a kernel.

    Attributes:
        kernel: module and name.
        registers: registers of a thread.
        stack: local memory of a thread, bytes.
        shared: shared memory of a block, bytes.
        code: machine code with the functions that it calls, bytes.
    """

    kernel: str
    registers: int
    stack: int
    shared: int
    code: int

    @property
    def occupancy(self) -> float:
        """Share of a multiprocessor's threads that its registers can hold, in blocks of `BLOCK` threads."""
        per_warp = -(-self.registers * 32 // 256) * 256  # registers are allocated per warp in units of 256
        blocks = REGISTER_FILE // max(per_warp * (BLOCK // 32), 1)
        return min(blocks * BLOCK / THREADS, 1.0)


def sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Return name and content of each section of a 64-bit little-endian ELF file."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("the file is not 64-bit little-endian ELF")
    (place,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<3H", elf, 58)
    headers = [struct.unpack_from("<2I4Q", elf, place + size * k) for k in range(count)]
    texts = elf[headers[names][4] :]
    for name, kind, _, _, offset, length in headers:
        content = bytes(length) if kind == 8 else elf[offset : offset + length]  # 8: zeros, absent from the file
        yield texts[name : texts.index(b"\0", name)].decode(), content


def usage(elf: bytes, module: str) -> list[Usage]:
    """Return the resources of each kernel of a cubin. The layout is that of the CUDA toolkit's `cuobjdump -elf`."""
    found = dict(sections(elf))
    symbols, texts = found[".symtab"], found[".strtab"]
    names = {}
    for k in range(len(symbols) // 24):
        (at,) = struct.unpack_from("<I", symbols, 24 * k)
        names[k] = texts[at : texts.index(b"\0", at)].decode()
    values: dict[int, dict[str, int]] = {EIATTR_REGCOUNT: {}, EIATTR_FRAME_SIZE: {}}
    info, at = found.get(".nv.info", b""), 0
    while at < len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == 4:  # a value of `size` bytes follows; other forms keep theirs in place of the size
            if attribute in values:
                symbol, value = struct.unpack_from("<II", info, at)
                values[attribute][names[symbol]] = value
            at += size
    code = {name[6:]: len(content) for name, content in found.items() if name.startswith(".text.")}
    stacks = values[EIATTR_FRAME_SIZE]
    helpers = [name for name in values[EIATTR_REGCOUNT] if not name.endswith("_cuda_kernel_forward")]
    # A called function adds its frame; the deepest one bounds the stack from below where calls are nested
    called = max((stacks.get(name, 0) for name in helpers), default=0)
    helped = sum(code.get(name, 0) for name in helpers)
    return [
        Usage(
            _label(module, name),
            max([registers, *(values[EIATTR_REGCOUNT][helper] for helper in helpers)]),
            stacks.get(name, 0) + called,
            len(found.get(f".nv.shared.{name}", b"")),
            code[name] + helped,
        )
        for name, registers in values[EIATTR_REGCOUNT].items()
        if name not in helpers
    ]


def _label(module: str, name: str) -> str:
    """Return module and name of a kernel, without repeating a name that is part of the module's."""
    name = re.sub(r"^.*_locals__|_[0-9a-f]{8}$", "", name.removesuffix("_cuda_kernel_forward"))
    return module if name in module.split(".") else f"{module}.{name}"


def measured(words: Sequence[str], arch: int) -> list[Usage]:
    """Compile the kernels whose module contains one of the words, or all, and return their resources, worst first."""
    modules = [each for each in kernel_modules()[0] if not words or any(word in each.name for word in words)]
    compile_for_arch(modules, arch)
    folder, rows = kernel_cache(), list[Usage]()
    for module in modules:
        name = module.get_module_identifier()
        rows += usage((folder / name / f"{name}.sm{arch}.cubin").read_bytes(), module.name.removeprefix("sensorium."))
    return sorted(rows, key=lambda row: (-row.registers, -row.stack, row.kernel))


HEADINGS = ("registers", "stack per thread, B", "shared, B", "code, kB", "occupancy")


def cells(row: Usage) -> tuple[str, ...]:
    """Return the texts of a line."""
    return (
        row.kernel, f"{row.registers}", f"{row.stack:,}", f"{row.shared:,}", f"{row.code / 1e3:.0f}",
        f"{row.occupancy:.0%}",
    )  # fmt: skip


def markdown(rows: Sequence[Usage]) -> str:
    """Return a table for the documentation."""
    lines = [
        ("kernel", *HEADINGS),
        ("---",) * (1 + len(HEADINGS)),
        *((f"`{name}`", *rest) for name, *rest in map(cells, rows)),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser("python -m benchmarks.registers", description=__doc__)
    parser.add_argument("words", nargs="*", help="only kernels whose module contains one of these words")
    parser.add_argument("--arch", type=int, default=90, help="compute capability without its point (default: 90)")
    parser.add_argument("--above", type=int, default=0, metavar="N", help="print only kernels with more registers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the table between the markers of this file"
    )
    options = parser.parse_args(arguments)
    if options.markdown is not None:
        check_markers(options.markdown, "registers")
    rows = measured(options.words, options.arch)
    if not rows:
        print(f"no module of kernels contains {options.words}", file=sys.stderr)
        return 2
    table = Table("kernel", title=f"sm_{options.arch}: {len(rows)} kernels", title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    shown = [row for row in rows if row.registers > options.above]
    for row in shown:
        table.add_row(*cells(row))
    Console(highlight=False).print(table)
    print(
        f"{sum(row.registers == 255 for row in rows)} at 255 registers, {sum(row.registers > 128 for row in rows)} "
        f"above 128, {sum(row.stack > 0 for row in rows)} with a stack"
    )
    if options.json is not None:
        figures = {"arch": options.arch, "kernels": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if options.markdown is not None:
        write_table(options.markdown, "registers", markdown(shown))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
