"""GPU specifications as data: what the cost model and the compiler need to know about a device.

There is one file per GPU under ``specs/`` and one per host under ``hosts/``; every value is next to the citation it
comes from. Nothing is fitted to a task. ``h100@HOST`` is an H100 in a certain host: a name, or the seconds of one small
operator there (``h100@12.5us``); without one it is in ``cloud``.
"""

import difflib
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError

from drkernel.config import Config, ConfigError, did_you_mean


class GPUSpec(Config):
    """One GPU. Units: Hz, bytes, bytes/s, FLOP/s, seconds."""

    name: str
    vendor: Literal["nvidia", "amd"]
    full_name: str = Field(description="what torch.cuda.get_device_name returns there")
    arch: int | str = Field(description="Triton target: 90 for sm_90, 'gfx942' for AMD")
    sm_count: int = Field(gt=0, description="streaming multiprocessors (compute units on AMD)")
    clock_hz: float = Field(gt=0, description="clock that vector code sustains")
    boost_clock_hz: float = Field(gt=0, description="clock of the data sheet's peaks")
    hbm_bytes: int = Field(gt=0)
    hbm_bandwidth: float = Field(gt=0)
    hbm_efficiency: float = Field(gt=0, le=1, description="share of the peak bandwidth that a large copy reaches")
    tensor_share: float = Field(gt=0, le=1, description="share of the tensor peaks that long products sustain")
    fp32_dot_share: float = Field(gt=0, le=1, description="share of fp32 at clock_hz that long products sustain")
    l2_bytes: int = Field(gt=0, description="the last level that all SMs share (Infinity Cache on MI300X)")
    l2_bandwidth: float = Field(gt=0, description="achievable, all SMs together")
    l2_latency: float = Field(gt=0, description="load-to-use latency of a hit")
    dram_latency: float = Field(gt=0, description="load-to-use latency of a miss")
    sm_bytes_per_clock: int = Field(gt=0, description="bytes one SM can take from L2 in a clock")
    smem_per_sm: int = Field(gt=0)
    max_smem_per_block: int = Field(gt=0)
    regs_per_sm: int = Field(gt=0, description="32-bit registers")
    max_threads_per_sm: int = Field(gt=0)
    max_blocks_per_sm: int = Field(gt=0)
    peak: dict[str, float] = Field(description="dense peak FLOP/s by unit (results/s for 'int' and 'sfu')")
    pcie_bandwidth: float = Field(gt=0, description="achievable, one direction")
    copy_latency: float = Field(gt=0, description="seconds of an empty copy between host and device")
    launch_overhead: float = Field(gt=0, description="host seconds of an eager operator that launches a kernel")
    kernel_launch_overhead: float = Field(gt=0, description="host seconds of a Triton launch")
    host_op_overhead: float = Field(gt=0, description="host seconds of an operator without device work")
    compiled_call_overhead: float = Field(gt=0, description="host seconds of a compiled call: guards and arguments")
    compiled_launch_overhead: float = Field(gt=0, description="host seconds of a launch by generated code")
    host: str = Field("cloud", description="name of the host that the five figures above are of")
    kernel_min: float = Field(gt=0, description="device seconds of an empty kernel in a busy stream")
    event_overhead: float = Field(
        gt=0, description="seconds between two events around a kernel, beyond the kernel's own in a busy stream"
    )
    atomic_same_address: float = Field(gt=0, description="seconds per serialised atomic on one address")
    sources: dict[str, str] = Field(description="field (or 'peak.<unit>') -> citation")

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def warp_size(self) -> int:
        """Threads that run in lockstep."""
        return 32 if self.vendor == "nvidia" else 64

    @property
    def backend(self) -> str:
        """Triton's backend name."""
        return "cuda" if self.vendor == "nvidia" else "hip"

    @property
    def capability(self) -> tuple[int, int]:
        """The device's ``torch.cuda.get_device_capability``."""
        return (self.arch // 10, self.arch % 10) if isinstance(self.arch, int) else (9, 4)

    @property
    def dram_bandwidth(self) -> float:
        """Bandwidth (bytes/s) of device memory that a large copy reaches."""
        return self.hbm_bandwidth * self.hbm_efficiency


# ---- the cards that come along, and those of the user's own


_PARTS = ("citations", "fields", "peak")
_HOST = (
    "launch_overhead", "kernel_launch_overhead", "host_op_overhead", "compiled_call_overhead",
    "compiled_launch_overhead",
)  # fmt: skip
"""the figures that belong to a host"""
_USUAL = "cloud"
_SECONDS = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?)(s|ms|us)?")
"""of a small operator, as a host is given by them"""
HOST_PATTERN = r"(0\.[5-9][0-9]*|([1-9][0-9]{0,2}|[1-4][0-9]{3})(\.[0-9]+)?|5000)us"
"""a host by its seconds, 0.5us to 5ms, as it stands behind a card's name"""
_Raw = dict[str, dict[str, Any]]
_FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""for files of ours, ten times as fast; a user's are read by the loader with the clearer messages"""


@lru_cache
def _text(name: str, folder: str = "specs") -> _Raw:
    """The raw entry of one file with its base merged in: {citations, fields, peak}."""
    text = resources.files("drkernel.sim").joinpath(f"{folder}/{name}.yaml").read_text(encoding="utf-8")
    raw = yaml.load(text, Loader=_FAST)
    return _over(_text(raw["base"], folder) if "base" in raw else {}, raw)


def _over(base: Mapping[str, Any], raw: Mapping[str, Any]) -> _Raw:
    return {part: {**base.get(part, {}), **(raw.get(part) or {})} for part in _PARTS}


def _spec(name: str, raw: _Raw) -> GPUSpec:
    own = any(figure in raw["fields"] for figure in _HOST)
    raw = _over(_text(_USUAL, "hosts"), raw)
    cited = {**raw["fields"], **{f"peak.{unit}": entry for unit, entry in raw["peak"].items()}}
    return GPUSpec(
        name=name,
        host=name if own else _USUAL,
        **{field: entry["value"] for field, entry in raw["fields"].items()},
        peak={unit: entry["value"] for unit, entry in raw["peak"].items()},
        sources={field: raw["citations"][entry["source"]] for field, entry in cited.items()},
    )


@lru_cache
def _load(name: str) -> GPUSpec:
    return _spec(name, _text(name))


@lru_cache
def _shipped(folder: str = "specs") -> tuple[str, ...]:
    entries = resources.files("drkernel.sim").joinpath(folder).iterdir()
    names = (entry.name for entry in entries if entry.name.endswith(".yaml"))
    return tuple(sorted(name.removesuffix(".yaml") for name in names if not name.startswith("_")))


def known_gpus() -> list[str]:
    """Return the names that :func:`get_spec` accepts: the built-in cards, then those that :func:`own_card` has read."""
    return [*_shipped(), *_own_cards()]


def get_spec(name: str) -> GPUSpec:
    """Return the spec of a GPU by its short name, with ``@HOST`` in that host.

    Raises :class:`ConfigError` listing the known ones.
    """
    key, _, host = name.lower().partition("@")
    spec = _load(key) if key in _shipped() else _own_cards().get(key)
    if spec is None:
        known = known_gpus()
        raise ConfigError(f"no GPU named {name!r}; there are: {', '.join(known)}{did_you_mean(key, known)}")
    return _in_host(spec, host) if host else spec


def known_hosts() -> tuple[str, ...]:
    """Return the names of the hosts that come along."""
    return _shipped("hosts")


def host_name(given: str) -> str:
    """Return a host's name, or seconds of one small operator there ("12.5us", "1.25e-5"), as a card's name takes it.

    Raises :class:`ConfigError` for anything else.
    """
    seconds, known = _SECONDS.fullmatch(given.strip().lower()), known_hosts()
    if given.lower() in known:
        return given.lower()
    if seconds is None:
        hint = did_you_mean(given, known)
        raise ConfigError(
            f"no host named {given!r}; there are: {', '.join(known)}, or the seconds of one small operator there, "
            f"such as 12.5us{hint}"
        )
    micros = float(seconds[1]) * {"us": 1.0, "ms": 1e3, "s": 1e6, None: 1e6}[seconds[2]]
    if not 0.5 <= micros <= 5e3:
        raise ConfigError(f"a small operator in {given}: between 0.5us and 5ms")
    return f"{micros:.4g}us"


def in_host(name: str, host: str | None) -> str:
    """Return the name of a card or a device with a host behind it, if one is given.

    Raises :class:`ConfigError`: no such host, or a device that has its own.
    """
    if host is not None and ("@" in name or name.startswith("cuda")):
        raise ConfigError(f"--host: {name} has a host")
    return name if host is None else f"{name}@{host_name(host)}"


@lru_cache(maxsize=256)
def _in_host(spec: GPUSpec, host: str) -> GPUSpec:
    """The card in a host: the host's figures; of one by its seconds, the usual ones in proportion."""
    host = host_name(host)
    if host == spec.host:
        return spec
    named = {} if host.endswith("us") else _text(host, "hosts")
    values = {name: entry["value"] for name, entry in named.get("fields", {}).items()}
    usual = _load(_shipped()[0])
    seconds = values["launch_overhead"] if named else float(host.removesuffix("us")) * 1e-6
    factor = seconds / usual.launch_overhead
    cited = {name: named["citations"][entry["source"]] for name, entry in named.get("fields", {}).items()}
    source = f"{host}: in proportion to the seconds of one small operator"
    return spec.model_copy(
        update={
            "name": f"{spec.name}@{host}",
            "host": host,
            **{name: values.get(name, factor * getattr(usual, name)) for name in _HOST},
            "sources": {**spec.sources, **{name: cited.get(name, source) for name in _HOST}},
        }
    )


def spec_called(full_name: str) -> GPUSpec | None:
    """Return the card of a GPU by what ``torch.cuda.get_device_name`` calls it, a built-in one first; None without one.

    A card of a similar name may be another: an H100 PCIe has 60% of an H100's bandwidth.
    """
    known = [*map(_load, _shipped()), *_own_cards().values()]
    return next((spec for spec in known if spec.full_name == full_name), None)


OWN_CARDS = "DRKERNEL_CARDS"
"""environment variable by which processes that are started from here learn of :func:`own_card`'s"""
_own: dict[str, GPUSpec] = {}


def _own_cards() -> dict[str, GPUSpec]:
    """Return all cards read here and those named in the environment (a runner's is cleared later; they stay known)."""
    for data in json.loads(os.environ.get(OWN_CARDS, "{}")).values():
        learn_card(data)
    return _own


def own_card(path: Path) -> str:
    """Read a user's own card; return the name under which this process and its children know it from now on.

    The file has ``fields`` and ``peak`` like those under ``specs/`` (a value, or ``{value: ..., source: ...}``), on top
    of a ``base``, a built-in card. The name ends in a digest of the values, so that a stored verdict of another version
    of the file is never mistaken for this one's.

    Raises :class:`ConfigError`, which names the file and the field.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the card {path}: {error}") from None
    try:
        spec = _spec(_stem(path), _checked(raw, path))
        _check(spec)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'card'}: {one['msg']}" for one in error.errors())
        raise ConfigError(f"{path}: {wrong}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    values = spec.model_dump_json(exclude={"name", "sources"})
    name = f"{spec.name}-{hashlib.sha256(values.encode()).hexdigest()[:8]}"
    cards = {**_own_cards(), name: spec.model_copy(update={"name": name})}
    os.environ[OWN_CARDS] = json.dumps({key: card.model_dump(mode="json") for key, card in cards.items()})
    return name


def card_data(name: str) -> dict[str, Any] | None:
    """What :func:`learn_card` takes, of an own card; None for any other name."""
    card = _own_cards().get(name.lower().partition("@")[0])
    return None if card is None else card.model_dump(mode="json")


def learn_card(data: dict[str, Any] | None) -> None:
    """Know an own card that another process has read."""
    if data is not None and data["name"] not in _own:
        _own[data["name"]] = GPUSpec.model_validate(data)


def _stem(path: Path) -> str:
    name = path.stem.lower()
    if not re.fullmatch(r"[a-z0-9][a-z0-9_]{0,31}", name):
        raise ConfigError("the file's name is the card's: letters, digits and underscores, at most 32")
    return name


def _checked(raw: Any, path: Path) -> _Raw:
    """The file's entries over its base's, each with a value and a source."""
    if not isinstance(raw, dict):
        raise ConfigError("a card is a mapping with 'base', 'fields' and 'peak'")
    unknown = sorted(set(map(str, raw)) - {"base", *_PARTS})
    if unknown:
        raise ConfigError(f"unknown key {unknown[0]!r}; a card has 'base', 'citations', 'fields' and 'peak'")
    base = raw.get("base")
    if base is not None and base not in _shipped():
        raise ConfigError(f"no base named {base!r}; there are: {', '.join(_shipped())}")
    citations = dict(raw.get("citations") or {})
    parts: _Raw = {"citations": citations, "fields": {}, "peak": {}}
    for part in ("fields", "peak"):
        given = raw.get(part) or {}
        if not isinstance(given, dict):
            raise ConfigError(f"{part}: a mapping of names to values is needed")
        for name, entry in given.items():
            parts[part][name] = _entry(f"{part}.{name}", entry, citations, path)
    fields = set(GPUSpec.model_fields) - {"name", "host", "peak", "sources"}
    stray = sorted(set(map(str, parts["fields"])) - fields)
    if stray:
        near = difflib.get_close_matches(stray[0], fields, 1)
        raise ConfigError(f"fields.{stray[0]}: no such field" + (f"; did you mean {near[0]!r}?" if near else ""))
    return _over(_text(base or "_common"), parts)


def _entry(name: str, entry: Any, citations: dict[str, str], path: Path) -> dict[str, Any]:
    """A value with its source; without one it is the file's own."""
    own = {"value": entry} if not isinstance(entry, dict) else dict(entry)
    if "value" not in own or set(own) - {"value", "source"}:
        raise ConfigError(f"{name}: give a value, or {{value: ..., source: ...}}")
    if "source" not in own:
        own["source"] = citations.setdefault(path.name, f"the user's own file {path.name}") and path.name
    elif own["source"] not in citations:
        citations[str(own["source"])] = str(own["source"])
    # YAML reads 1e12 as text: a number needs a point there
    if isinstance(own["value"], str) and re.fullmatch(r"[0-9.]+[eE][+-]?[0-9]+", own["value"]):
        own["value"] = float(own["value"])
    return own


def _check(spec: GPUSpec) -> None:
    """Raise for values that no card can have."""
    missing = sorted(set(_load("h100").peak) - set(spec.peak))
    if missing:
        raise ConfigError(f"peak.{missing[0]}: missing")
    wrong = next((unit for unit, rate in spec.peak.items() if not (rate > 0 and math.isfinite(rate))), None)
    if wrong is not None:
        raise ConfigError(f"peak.{wrong}: must be a positive number")
    if spec.max_smem_per_block > spec.smem_per_sm:
        raise ConfigError("max_smem_per_block: more than smem_per_sm")
    if spec.clock_hz > spec.boost_clock_hz:
        raise ConfigError("clock_hz: more than boost_clock_hz")
    if spec.l2_bandwidth < spec.hbm_bandwidth:
        raise ConfigError("l2_bandwidth: less than hbm_bandwidth (both are bytes a second)")
    if not 1e9 < spec.hbm_bandwidth < 1e15:
        raise ConfigError("hbm_bandwidth: not in bytes a second")
    if not 1e7 < spec.clock_hz < 1e11:
        raise ConfigError("clock_hz: not in Hz")


_own_cards()  # while the environment is that of the process that read them
