"""Hostile archives: damaged ones, bombs, names that lead outside, links, devices, impossible sizes."""

from __future__ import annotations

import io
import random
import struct
import tarfile
import warnings
import zipfile
import zlib
from functools import cache
from pathlib import Path

from .cases import Case, Makers, Words, mutate
from .seeds import PACS, Seeds

BOMB_BYTES = 3 * 2**30
OUTSIDE = (
    "../escaped.png", "../../escaped.png", "bar/../../escaped.png", "..\\escaped.png", "C:\\escaped.png",
    "/escaped.png", "bar//../../../escaped.png", "\udcff../escaped.png", "bar\0.png", "a/" * 200 + "deep.png",
    "x" * 300 + ".png", "bar", "BAR/0.PNG", "\x1b[2J.png", "=cmd.png", "nul", "",
)  # fmt: skip
LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"


def make_damaged_zip(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a reader of a zip file with damaged bytes, in one of the methods of compression."""
    method = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    data = mutate(rewrite(rng.choice([seeds.archive, seeds.pacs]), method), rng)
    return write(seeds, folder, rng, "damaged zip", data, ".zip")


def make_hostile_zip(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a reader of a zip file made to harm."""
    kind = rng.choice(["outside", "link", "bomb", "method", "encrypted", "sizes", "nested", "repeated"])
    data = rewrite(rng.choice([seeds.archive, seeds.pacs]), zipfile.ZIP_STORED)
    if kind == "outside":
        data = add_member(data, rng.choice(OUTSIDE), b"x")
    elif kind == "link":
        data = add_member(data, "bar/link.png", rng.choice([b"/etc/passwd", b"../../..", b"link.png"]), mode=0o120777)
    elif kind == "bomb":
        data = bomb()
    elif kind == "method":
        data = patch(data, 8, struct.pack("<H", rng.choice([1, 9, 93, 99, 65535])))
    elif kind == "encrypted":
        data = patch(data, 6, struct.pack("<H", 1))
    elif kind == "sizes":
        data = patch(data, rng.choice([18, 22]), struct.pack("<I", rng.choice([0, 2**31, 2**32 - 2, 2**32 - 1])))
    elif kind == "nested":
        data = add_member(b"", "inner.zip", data)
    else:
        data = add_member(data, zipfile.ZipFile(io.BytesIO(data)).namelist()[0], b"x")
    return write(seeds, folder, rng, f"zip {kind}", data, ".zip")


def make_tar(seeds: Seeds, folder: Path, rng: random.Random) -> Case:
    """Return a fetch from a .tar file made to harm, or damaged."""
    kinds = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE]
    buffer, mode = io.BytesIO(), rng.choice(["w", "w:gz", "w:bz2", "w:xz"])
    with tarfile.open(fileobj=buffer, mode=mode, errors="surrogateescape") as archive:  # type: ignore[call-overload]
        for name in PACS:
            archive.add(seeds.world / "photo", name)
        info = tarfile.TarInfo(rng.choice(OUTSIDE).replace("\0", "") or "x")
        if rng.random() < 0.5:
            info.type, info.linkname = rng.choice(kinds), rng.choice(["/etc/passwd", "../../x", "photo"])
        if rng.random() < 0.3:
            info.pax_headers = {
                "size": rng.choice(["-1", "9" * 30, "x"]),
                "path": rng.choice(["../../x", "/x", "\0"]),
            }
        archive.addfile(info)
    data = buffer.getvalue()
    (folder / "photo.tar").write_bytes(mutate(data, rng) if rng.random() < 0.5 else data)
    return Case("tar", ("data", "fetch", "pacs", "--from", "photo.tar", "--to", "fetched"))


def write(seeds: Seeds, folder: Path, rng: random.Random, name: str, data: bytes, suffix: str) -> Case:
    """Write an archive and return a command that reads it."""
    (folder / f"photo{suffix}").write_bytes(data)
    words: list[Words] = [
        ("data", "verify", "photo.zip"),
        ("data", "describe", "."),
        ("data", "fetch", "pacs", "--from", "photo.zip", "--to", "fetched"),
        ("predict", seeds.run, "photo.zip", "-o", "p.csv"),
        ("web", "ingest", "photo.zip", "-o", "web"),
        ("evaluate", seeds.run, "--data", "photo.zip"),
    ]
    return Case(name, rng.choice(words))


@cache
def rewrite(path: Path, method: int) -> bytes:
    """Return a zip file with another method of compression."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(buffer, "w", method) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    return buffer.getvalue()


def add_member(data: bytes, name: str, content: bytes, mode: int = 0o100644) -> bytes:
    """Return a zip file with one more member."""
    buffer = io.BytesIO(data)
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "a" if data else "w") as archive:
        warnings.simplefilter("ignore")  # of a name that appears twice
        info = zipfile.ZipInfo("x")
        info.filename = name.encode(errors="replace").decode()
        info.external_attr = mode << 16
        archive.writestr(info, content)
    return buffer.getvalue()


def patch(data: bytes, offset: int, value: bytes) -> bytes:
    """Return a zip file with a field of its first member replaced; `offset` is that in the local header."""
    changed = bytearray(data)
    for start in (data.index(LOCAL) + offset, data.index(CENTRAL) + offset + 2):
        changed[start : start + len(value)] = value
    return bytes(changed)


@cache
def bomb() -> bytes:
    """Return a zip file of 3 MB with an image of 3 GB of zeros.

    A block of zeros is compressed once and repeated. The checksum at the end is wrong, which a reader can only know
    after it has read everything.
    """
    step = 2**24
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = compressor.compress(bytes(step)) + compressor.flush(zlib.Z_FULL_FLUSH)
    data = add_member(b"", "bar/0.png", block * (BOMB_BYTES // step) + compressor.flush())
    data = patch(data, 8, struct.pack("<H", zipfile.ZIP_DEFLATED))
    return patch(data, 22, struct.pack("<I", BOMB_BYTES))


ARCHIVE_MAKERS: Makers = {
    "damaged zip files": (make_damaged_zip, 4),
    "hostile zip files": (make_hostile_zip, 3),
    "tar files": (make_tar, 3),
}
