"""Area `memory`: what the model with its context needs, against what the machine has."""

from collections.abc import Iterator

from appliance import buildinfo
from appliance.doctor.finding import Finding, fail, note, ok, size, warn
from appliance.doctor.ground import Ground
from appliance.gguf import BadModel, read
from appliance.models import locate
from appliance.models.memory import Available, Need, available, need_of, verdict
from appliance.observe.nvml import Library, NvmlError

TIGHT = 256 << 20
"""Less than this left makes the kernel throw out the model's pages, or end a process."""


def look(ground: Ground) -> Iterator[Finding]:
    machine = available(ground.root / "proc", ground.root / "sys/fs/cgroup")
    if machine is None:
        yield note("memory.room", "the kernel does not tell how much memory there is")
        return
    try:
        need = need_of(read(locate(ground.config.model, ground.state_dir)), ground.config)
    except BadModel as error:
        yield note("memory.room", f"not known what is needed: {error}", "see `engine`")
    else:
        yield _running(need, machine) if ground.box.runs else room(need, machine)
        yield from _gpu(ground, need)
    yield _killed(ground)


def room(need: Need, machine: Available) -> Finding:
    """Before the start: does it fit?"""
    found, told = verdict(need, machine), f"{_told(need)}; {_has(machine)}"
    if found.level == "lacks":
        return fail("memory.room", told, found.text)
    if found.level == "tight":
        return warn("memory.room", told, found.text)
    return ok("memory.room", told)


def _running(need: Need, machine: Available) -> Finding:
    """The box has taken what it needs; what matters is what is left."""
    told = f"{_told(need)}, taken by the running box; {_has(machine)} still"
    if machine.available < TIGHT:
        return warn(
            "memory.room",
            told,
            "lower engine.context, or stop what else runs here: next the kernel ends a process",
        )
    return ok("memory.room", told)


def _told(need: Need) -> str:
    return (
        f"{size(need.total)} are needed: {size(need.weights)} of weights, {size(need.kv)} of cache "
        f"for {need.cells} tokens ({size(need.per_sequence)} for each of {need.sequences} "
        f"sequences), {size(need.total - need.weights - need.kv)} else (estimated)"
    )


def _has(machine: Available) -> str:
    whose = "this control group" if machine.limited else "the machine"
    return f"{whose} has {size(machine.available)} of {size(machine.total)}"


def _gpu(ground: Ground, need: Need) -> Iterator[Finding]:
    """On a GPU, weights and cache are there and not here."""
    if buildinfo.installed().backend != "cuda" or ground.config.engine.gpu_layers == 0:
        return
    try:
        library = Library()
        cards = [library.memory(gpu) for gpu in range(library.start())]
    except NvmlError:
        return  # area `gpu` says so
    total, free = (sum(column) for column in zip(*cards, strict=True)) if cards else (0, 0)
    wanted = need.weights + need.kv + need.compute
    told = f"{size(wanted)} are needed on the GPU; {size(free)} of {size(total)} are free"
    have = total if ground.box.runs else free
    if cards and wanted > have:
        yield warn(
            "memory.gpu",
            told,
            "lower engine.context or engine.gpu_layers, or stop what else uses the GPU",
        )
    elif cards:
        yield ok("memory.gpu", told)


def _killed(ground: Ground) -> Finding:
    rows = dict(line.partition(" ")[::2] for line in ground.text("proc/vmstat").splitlines())
    count = rows.get("oom_kill", "0")
    if count.isdecimal() and int(count):
        return note(
            "memory.killed",
            f"since the machine started the kernel ended {count} processes for want of memory",
            "`journalctl -k -g oom` names them",
        )
    return ok("memory.killed", "the kernel ended no process for want of memory")
