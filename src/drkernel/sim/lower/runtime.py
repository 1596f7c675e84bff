"""The native helpers that kernels call for every access that is not plain, as LLVM IR, compiled once per process.

``dk_access`` decides about one element: in bounds, aligned, initialised, free of races; it records findings and marks
the 32-byte sectors touched. ``dk_load_N`` and ``dk_store_N`` do so for the lanes of a strip. Layouts of the context
and of allocation entries are given by the constants below.
"""

from __future__ import annotations

from enum import IntEnum


class Ctx(IntEnum):
    """Indices of the 64-bit words of a launch's context."""

    STATUS = 0
    STEPS = 1
    GRID_X = 2
    GRID_Y = 3
    GRID_Z = 4
    ENTRIES = 5
    N_ENTRIES = 6
    N_FINDINGS = 7
    FINDINGS = 8
    MAX_FINDINGS = 9
    ATOMIC_TABLE = 10
    LOAD_BYTES = 11
    """correction to the static count of bytes loaded"""
    STORE_BYTES = 12
    PROGRAM = 13
    ZERO = 14
    """an address that may always be read and written"""
    N_PRINTS = 15
    PRINTS = 16
    MAX_PRINTS = 17
    BLOCKS = 18
    """execution counts of the kernel's blocks"""
    ARENA = 19
    ARG_ENTRIES = 20
    ARGS = 21
    RACE_SHIFT = 22
    SIZE = 24


class Entry(IntEnum):
    """Indices of the 64-bit words of an allocation entry."""

    BASE = 0
    END = 1
    READ_MAP = 2
    WRITE_MAP = 3
    INIT = 4
    RACE = 5
    WRITABLE = 6
    SIZE = 8


class Kind(IntEnum):
    """Kinds of findings that native code records."""

    OUT_OF_BOUNDS = 0
    MISALIGNED = 1
    UNINITIALIZED = 2
    RACE_WRITE = 3
    RACE_READ = 4
    RACE_SAME_VALUE = 5
    READ_ONLY = 6
    ASSERT = 7


FINDING_WORDS = 6
"""kind, site, program, address, entry base, size"""

PRINT_WORDS = 4
"""site, program, element, value (a double)"""

ATOMIC_BUCKETS = 1 << 14


def _get(name: str, pointer: str, index: int, ty: str = "i64") -> str:
    return f"""  %{name}.p = getelementptr i64, ptr {pointer}, i64 {index}
  %{name} = load {ty}, ptr %{name}.p
"""


_FIND = f"""
define internal ptr @dk_find(ptr %ctx, i64 %addr) {{
entry:
{_get("table", "%ctx", Ctx.ENTRIES, "ptr")}{_get("n", "%ctx", Ctx.N_ENTRIES)}  br label %loop
loop:
  %lo = phi i64 [ 0, %entry ], [ %lo2, %step ]
  %hi = phi i64 [ %n, %entry ], [ %hi2, %step ]
  %more = icmp ult i64 %lo, %hi
  br i1 %more, label %step, label %done
step:
  %sum = add i64 %lo, %hi
  %mid = lshr i64 %sum, 1
  %off = mul i64 %mid, {Entry.SIZE}
  %p = getelementptr i64, ptr %table, i64 %off
  %base = load i64, ptr %p
  %le = icmp ule i64 %base, %addr
  %mid1 = add i64 %mid, 1
  %lo2 = select i1 %le, i64 %mid1, i64 %lo
  %hi2 = select i1 %le, i64 %hi, i64 %mid
  br label %loop
done:
  %none = icmp eq i64 %lo, 0
  %prev = sub i64 %lo, 1
  %at = select i1 %none, i64 0, i64 %prev
  %off3 = mul i64 %at, {Entry.SIZE}
  %p3 = getelementptr i64, ptr %table, i64 %off3
  ret ptr %p3
}}
"""

_RECORD = f"""
define internal void @dk_record(ptr %ctx, i64 %kind, i64 %site, i64 %addr, i64 %base, i64 %size) {{
{_get("n", "%ctx", Ctx.N_FINDINGS)}{_get("max", "%ctx", Ctx.MAX_FINDINGS)}  %n1 = add i64 %n, 1
  store i64 %n1, ptr %n.p
  %room = icmp ult i64 %n, %max
  br i1 %room, label %write, label %done
write:
{_get("list", "%ctx", Ctx.FINDINGS, "ptr")}{_get("pid", "%ctx", Ctx.PROGRAM)}  %off = mul i64 %n, {FINDING_WORDS}
  %p0 = getelementptr i64, ptr %list, i64 %off
  store i64 %kind, ptr %p0
  %p1 = getelementptr i64, ptr %p0, i64 1
  store i64 %site, ptr %p1
  %p2 = getelementptr i64, ptr %p0, i64 2
  store i64 %pid, ptr %p2
  %p3 = getelementptr i64, ptr %p0, i64 3
  store i64 %addr, ptr %p3
  %p4 = getelementptr i64, ptr %p0, i64 4
  store i64 %base, ptr %p4
  %p5 = getelementptr i64, ptr %p0, i64 5
  store i64 %size, ptr %p5
  br label %done
done:
  ret void
}}
define void @dk_assert(ptr %ctx, i64 %site) {{
  call void @dk_record(ptr %ctx, i64 {Kind.ASSERT}, i64 %site, i64 0, i64 0, i64 0)
  ret void
}}
"""

_ACCESS = f"""
define i1 @dk_access(ptr %ctx, ptr %known, i64 %addr, i64 %size, i64 %site, i64 %store, i64 %same) {{
start:
  %unknown = icmp eq ptr %known, null
  br i1 %unknown, label %search, label %check
search:
  %found = call ptr @dk_find(ptr %ctx, i64 %addr)
  br label %check
check:
  %entry = phi ptr [ %known, %start ], [ %found, %search ]
{_get("base", "%entry", Entry.BASE)}{_get("end", "%entry", Entry.END)}  %last = add i64 %addr, %size
  %ge = icmp uge i64 %addr, %base
  %le = icmp ule i64 %last, %end
  %nowrap = icmp ugt i64 %last, %addr
  %in0 = and i1 %ge, %le
  %in = and i1 %in0, %nowrap
  br i1 %in, label %inside, label %outside
outside:
  call void @dk_record(ptr %ctx, i64 {Kind.OUT_OF_BOUNDS}, i64 %site, i64 %addr, i64 %base, i64 %size)
  ret i1 false
inside:
  %low = sub i64 %size, 1
  %rem = and i64 %addr, %low
  %aligned = icmp eq i64 %rem, 0
  br i1 %aligned, label %mark, label %misaligned
misaligned:
  call void @dk_record(ptr %ctx, i64 {Kind.MISALIGNED}, i64 %site, i64 %addr, i64 %base, i64 %size)
  ret i1 false
mark:
  %is_store = icmp ne i64 %store, 0
  %map.index = select i1 %is_store, i64 {Entry.WRITE_MAP}, i64 {Entry.READ_MAP}
  %map.pp = getelementptr i64, ptr %entry, i64 %map.index
  %map = load ptr, ptr %map.pp
  %rel = sub i64 %addr, %base
  %sector = lshr i64 %rel, 5
  %cell = getelementptr i8, ptr %map, i64 %sector
  store i8 1, ptr %cell
{_get("init", "%entry", Entry.INIT, "ptr")}  %no_init = icmp eq ptr %init, null
  br i1 %no_init, label %race, label %init_check
init_check:
  %ip = getelementptr i8, ptr %init, i64 %rel
  br i1 %is_store, label %init_set, label %init_get
init_set:
  call void @llvm.memset.p0.i64(ptr %ip, i8 1, i64 %size, i1 false)
  br label %race
init_get:
  %first = load i8, ptr %ip
  %lastp.i = add i64 %rel, %low
  %lastp = getelementptr i8, ptr %init, i64 %lastp.i
  %final = load i8, ptr %lastp
  %both = and i8 %first, %final
  %unwritten = icmp eq i8 %both, 0
  br i1 %unwritten, label %init_bad, label %race
init_bad:
  call void @dk_record(ptr %ctx, i64 {Kind.UNINITIALIZED}, i64 %site, i64 %addr, i64 %base, i64 %size)
  br label %race
race:
{_get("shadow", "%entry", Entry.RACE, "ptr")}  %no_race = icmp eq ptr %shadow, null
  br i1 %no_race, label %ok, label %race_check
race_check:
{_get("pid", "%ctx", Ctx.PROGRAM)}{_get("shift", "%ctx", Ctx.RACE_SHIFT)}  %me64 = add i64 %pid, 1
  %me = trunc i64 %me64 to i32
  %word = lshr i64 %rel, %shift
  %word2 = mul i64 %word, 2
  %wp = getelementptr i32, ptr %shadow, i64 %word2
  %rp = getelementptr i32, ptr %wp, i64 1
  %writer = load i32, ptr %wp
  %reader = load i32, ptr %rp
  %written = icmp ne i32 %writer, 0
  %by_other = icmp ne i32 %writer, %me
  %other_wrote = and i1 %written, %by_other
  br i1 %is_store, label %race_store, label %race_load
race_load:
  %fresh = icmp eq i32 %reader, 0
  %mine = icmp eq i32 %reader, %me
  %single = or i1 %fresh, %mine
  %reader2 = select i1 %single, i32 %me, i32 -1
  store i32 %reader2, ptr %rp
  br i1 %other_wrote, label %race_read_bad, label %ok
race_store:
  store i32 %me, ptr %wp
  br i1 %other_wrote, label %race_write_bad, label %race_store2
race_write_bad:
  %is_same = icmp ne i64 %same, 0
  %wkind = select i1 %is_same, i64 {Kind.RACE_SAME_VALUE}, i64 {Kind.RACE_WRITE}
  call void @dk_record(ptr %ctx, i64 %wkind, i64 %site, i64 %addr, i64 %base, i64 %size)
  br label %ok
race_store2:
  %read = icmp ne i32 %reader, 0
  %read_other = icmp ne i32 %reader, %me
  %race_rw = and i1 %read, %read_other
  br i1 %race_rw, label %race_read_bad, label %ok
race_read_bad:
  call void @dk_record(ptr %ctx, i64 {Kind.RACE_READ}, i64 %site, i64 %addr, i64 %base, i64 %size)
  br label %ok
ok:
  ret i1 true
}}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


def _lanes(size: int, store: bool) -> str:
    """``dk_load_N`` / ``dk_store_N``: the active lanes of a strip, one by one; counts distinct sectors."""
    bits = 8 * size
    name = f"dk_{'store' if store else 'load'}_{size}"
    counter = Ctx.STORE_BYTES if store else Ctx.LOAD_BYTES
    if store:
        body = f"""  %value = load i{bits}, ptr %slot
  %probe = icmp uge i64 %addr, 4096
  %ok = call i1 @dk_access(ptr %ctx, ptr %entry, i64 %addr, i64 {size}, i64 %site, i64 1, i64 %same)
  br i1 %ok, label %move, label %next
move:
  %p = inttoptr i64 %addr to ptr
  store i{bits} %value, ptr %p
  br label %next
"""
    else:
        body = f"""  %ok = call i1 @dk_access(ptr %ctx, ptr %entry, i64 %addr, i64 {size}, i64 %site, i64 0, i64 0)
  br i1 %ok, label %move, label %next
move:
  %p = inttoptr i64 %addr to ptr
  %value = load i{bits}, ptr %p
  store i{bits} %value, ptr %slot
  br label %next
"""
    same = ""
    if store:
        # whether the store changes memory: read the old value only when it can be read
        body = body.replace(
            "  %probe = icmp uge i64 %addr, 4096\n",
            f"  %same = call i64 @dk_same_{size}(ptr %ctx, ptr %entry, i64 %addr, i{bits} %value)\n",
        )
        same = f"""
define internal i64 @dk_same_{size}(ptr %ctx, ptr %known, i64 %addr, i{bits} %value) {{
start:
  %unknown = icmp eq ptr %known, null
  br i1 %unknown, label %no, label %check
check:
{_get("base", "%known", Entry.BASE)}{_get("end", "%known", Entry.END)}{_get("shadow", "%known", Entry.RACE)}\
  %last = add i64 %addr, {size}
  %ge = icmp uge i64 %addr, %base
  %le = icmp ule i64 %last, %end
  %on = icmp ne i64 %shadow, 0
  %a = and i1 %ge, %le
  %b = and i1 %a, %on
  br i1 %b, label %compare, label %no
compare:
  %p = inttoptr i64 %addr to ptr
  %old = load i{bits}, ptr %p, align 1
  %eq = icmp eq i{bits} %old, %value
  %r = zext i1 %eq to i64
  ret i64 %r
no:
  ret i64 0
}}
"""
    return f"""{same}
define void @{name}(ptr %ctx, ptr %entry, ptr %addrs, ptr %data, i64 %n, i64 %bits, i64 %site) {{
start:
{_get("total", "%ctx", counter)}  %assumed = mul i64 %n, {size}
  br label %loop
loop:
  %k = phi i64 [ 0, %start ], [ %k1, %next ]
  %rest = phi i64 [ %bits, %start ], [ %rest1, %next ]
  %previous = phi i64 [ -1, %start ], [ %sector1, %next ]
  %count = phi i64 [ 0, %start ], [ %count1, %next ]
  %bit = and i64 %rest, 1
  %on = icmp ne i64 %bit, 0
  br i1 %on, label %active, label %next
active:
  %ap = getelementptr i64, ptr %addrs, i64 %k
  %addr = load i64, ptr %ap
  %slot = getelementptr i{bits}, ptr %data, i64 %k
  %sector = lshr i64 %addr, 5
  %changed = icmp ne i64 %sector, %previous
  %one = zext i1 %changed to i64
  %count.a = add i64 %count, %one
{body}next:
  %sector1 = phi i64 [ %previous, %loop ], [ %sector, %active ], [ %sector, %move ]
  %count1 = phi i64 [ %count, %loop ], [ %count.a, %active ], [ %count.a, %move ]
  %k1 = add i64 %k, 1
  %rest1 = lshr i64 %rest, 1
  %more = icmp ult i64 %k1, %n
  br i1 %more, label %loop, label %done
done:
  %bytes = mul i64 %count1, 32
  %delta = sub i64 %bytes, %assumed
  %sum = add i64 %total, %delta
  store i64 %sum, ptr %total.p
  ret void
}}
"""


_ATOMIC = f"""
define i1 @dk_atomic_access(ptr %ctx, ptr %entry, i64 %addr, i64 %size, i64 %site) {{
start:
  %ok = call i1 @dk_plain_access(ptr %ctx, ptr %entry, i64 %addr, i64 %size, i64 %site)
  br i1 %ok, label %count, label %bad
bad:
  ret i1 false
count:
{_get("table", "%ctx", Ctx.ATOMIC_TABLE, "ptr")}  %word = lshr i64 %addr, 2
  %mixed = mul i64 %word, -7046029254386353131
  %bucket = lshr i64 %mixed, {64 - 14}
  %cp = getelementptr i32, ptr %table, i64 %bucket
  %c = load i32, ptr %cp
  %c1 = add i32 %c, 1
  store i32 %c1, ptr %cp
  ret i1 true
}}
define internal i1 @dk_plain_access(ptr %ctx, ptr %known, i64 %addr, i64 %size, i64 %site) {{
start:
  %unknown = icmp eq ptr %known, null
  br i1 %unknown, label %search, label %check
search:
  %found = call ptr @dk_find(ptr %ctx, i64 %addr)
  br label %check
check:
  %entry = phi ptr [ %known, %start ], [ %found, %search ]
{_get("base", "%entry", Entry.BASE)}{_get("end", "%entry", Entry.END)}  %last = add i64 %addr, %size
  %ge = icmp uge i64 %addr, %base
  %le = icmp ule i64 %last, %end
  %in = and i1 %ge, %le
  br i1 %in, label %inside, label %outside
outside:
  call void @dk_record(ptr %ctx, i64 {Kind.OUT_OF_BOUNDS}, i64 %site, i64 %addr, i64 %base, i64 %size)
  ret i1 false
inside:
  %low = sub i64 %size, 1
  %rem = and i64 %addr, %low
  %aligned = icmp eq i64 %rem, 0
  br i1 %aligned, label %mark, label %misaligned
misaligned:
  call void @dk_record(ptr %ctx, i64 {Kind.MISALIGNED}, i64 %site, i64 %addr, i64 %base, i64 %size)
  ret i1 false
mark:
{_get("rmap", "%entry", Entry.READ_MAP, "ptr")}{_get("wmap", "%entry", Entry.WRITE_MAP, "ptr")}\
  %rel = sub i64 %addr, %base
  %sector = lshr i64 %rel, 5
  %rc = getelementptr i8, ptr %rmap, i64 %sector
  store i8 1, ptr %rc
  %wc = getelementptr i8, ptr %wmap, i64 %sector
  store i8 1, ptr %wc
{_get("init", "%entry", Entry.INIT, "ptr")}  %no_init = icmp eq ptr %init, null
  br i1 %no_init, label %ok, label %init_check
init_check:
  %ip = getelementptr i8, ptr %init, i64 %rel
  %first = load i8, ptr %ip
  %unwritten = icmp eq i8 %first, 0
  call void @llvm.memset.p0.i64(ptr %ip, i8 1, i64 %size, i1 false)
  br i1 %unwritten, label %init_bad, label %ok
init_bad:
  call void @dk_record(ptr %ctx, i64 {Kind.UNINITIALIZED}, i64 %site, i64 %addr, i64 %base, i64 %size)
  br label %ok
ok:
  ret i1 true
}}
"""

_PRINT = f"""
define void @dk_print(ptr %ctx, i64 %site, i64 %flat, double %value) {{
start:
{_get("n", "%ctx", Ctx.N_PRINTS)}{_get("max", "%ctx", Ctx.MAX_PRINTS)}  %n1 = add i64 %n, 1
  store i64 %n1, ptr %n.p
  %room = icmp ult i64 %n, %max
  br i1 %room, label %write, label %done
write:
{_get("list", "%ctx", Ctx.PRINTS, "ptr")}{_get("pid", "%ctx", Ctx.PROGRAM)}  %off = mul i64 %n, {PRINT_WORDS}
  %p0 = getelementptr i64, ptr %list, i64 %off
  store i64 %site, ptr %p0
  %p1 = getelementptr i64, ptr %p0, i64 1
  store i64 %pid, ptr %p1
  %p2 = getelementptr i64, ptr %p0, i64 2
  store i64 %flat, ptr %p2
  %p3 = getelementptr i64, ptr %p0, i64 3
  store double %value, ptr %p3
  br label %done
done:
  ret void
}}
"""

SYMBOLS = (
    "dk_print",
    "dk_access", "dk_atomic_access", "dk_assert",
    *(f"dk_{kind}_{size}" for kind in ("load", "store") for size in (1, 2, 4, 8)),
)  # fmt: skip


def helpers() -> str:
    """LLVM IR of all helpers."""
    lanes = "".join(_lanes(size, store) for size in (1, 2, 4, 8) for store in (False, True))
    return _FIND + _RECORD + _ACCESS + lanes + _ATOMIC + _PRINT
