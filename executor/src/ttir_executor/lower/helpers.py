"""The native helpers that kernels call for every access off the fast path, as LLVM IR, compiled once per process.

``dk_access`` handles one element: it checks bounds, alignment, initialisation and races, records findings, and marks
the 32-byte sectors touched. ``dk_lanes`` moves the active lanes of a strip. ``races.py`` keeps the race shadow and the
shadows of a whole contiguous strip. ``runtime.py`` defines the layouts of the context and the tables.
"""

from ttir_executor.lower.helper_parts import count_atomic, lanes_begin, lanes_end, next_lane, within
from ttir_executor.lower.races import CONFLICT, RACE, RACE_ATOMIC, RACE_READ, RACE_WRITE, RUN, SYNC, word
from ttir_executor.lower.races import word as _get
from ttir_executor.lower.runtime import CLASSES, FINDING_WORDS, PRINT_WORDS, AccessKind, Ctx, EntryWord, Kind
from ttir_executor.lower.touch_helpers import TOUCH_SYMBOLS, touch_helpers

_FIND = f"""
define internal ptr @dk_find(ptr %ctx, i64 %addr) noinline {{
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
  %off = mul i64 %mid, {EntryWord.SIZE}
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
  %off3 = mul i64 %at, {EntryWord.SIZE}
  %p3 = getelementptr i64, ptr %table, i64 %off3
  ret ptr %p3
}}
"""


def _row(count: int, values: list[str]) -> str:
    """Stores of ``values`` into consecutive words behind ``%row``."""
    lines = []
    for k, value in enumerate(values):
        lines.append(f"  %w{k} = getelementptr i64, ptr %row, i64 {k}\n  store {value}, ptr %w{k}\n")
    assert len(values) == count
    return "".join(lines)


def _append(counter: Ctx, limit: Ctx, table: Ctx, words: int, values: list[str]) -> str:
    """Add a row to a table of the context, counting also what no longer fits."""
    return f"""{_get("n", "%ctx", counter)}{_get("max", "%ctx", limit)}  %n1 = add i64 %n, 1
  store i64 %n1, ptr %n.p
  %room = icmp ult i64 %n, %max
  br i1 %room, label %write, label %done
write:
{_get("list", "%ctx", table, "ptr")}{_get("pid", "%ctx", Ctx.PROGRAM)}  %off = mul i64 %n, {words}
  %row = getelementptr i64, ptr %list, i64 %off
{_row(words, values)}  br label %done
done:
  ret void
"""


_RECORD = f"""
define internal void @dk_record(ptr %ctx, i64 %kind, i64 %site, i64 %addr, i64 %base, i64 %size) noinline {{
start:
{_append(Ctx.N_FINDINGS, Ctx.MAX_FINDINGS, Ctx.FINDINGS, FINDING_WORDS,
         ["i64 %kind", "i64 %site", "i64 %pid", "i64 %addr", "i64 %base", "i64 %size"])}}}
define void @dk_note(ptr %ctx, i64 %kind, i64 %site) {{
  call void @dk_record(ptr %ctx, i64 %kind, i64 %site, i64 0, i64 0, i64 0)
  ret void
}}
define void @dk_print(ptr %ctx, i64 %site, i64 %flat, i64 %value) {{
start:
{_append(Ctx.N_PRINTS, Ctx.MAX_PRINTS, Ctx.PRINTS, PRINT_WORDS,
         ["i64 %site", "i64 %pid", "i64 %flat", "i64 %value"])}}}
"""  # fmt: skip


def _report(kind: Kind) -> str:
    return f"  call void @dk_record(ptr %ctx, i64 {kind}, i64 %site, i64 %addr, i64 %base, i64 %size)\n"


_ACCESS = f"""
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i32 @memcmp(ptr, ptr, i64)
define internal i1 @dk_access(ptr %ctx, ptr %known, i64 %addr, i64 %size, i64 %site, i64 %how, ptr %value) noinline {{
start:
  %unknown = icmp eq ptr %known, null
  br i1 %unknown, label %search, label %check
search:
  %found = call ptr @dk_find(ptr %ctx, i64 %addr)
  br label %check
check:
  %entry = phi ptr [ %known, %start ], [ %found, %search ]
{within("%entry")}  br i1 %in, label %inside, label %outside
outside:
{_report(Kind.OUT_OF_BOUNDS)}  ret i1 false
inside:
  %low = sub i64 %size, 1
  %rem = and i64 %addr, %low
  %aligned = icmp eq i64 %rem, 0
  br i1 %aligned, label %mark, label %misaligned
misaligned:
{_report(Kind.MISALIGNED)}  ret i1 false
mark:
  %reads = icmp ne i64 %how, {AccessKind.STORE}
  %write.bits = and i64 %how, {AccessKind.STORE | AccessKind.ATOMIC}
  %writes = icmp ne i64 %write.bits, 0
  %rel = sub i64 %addr, %base
  %sector = lshr i64 %rel, 5
  br i1 %reads, label %mark_read, label %mark_write
mark_read:
{_get("rmap", "%entry", EntryWord.READ_MAP, "ptr")}  %rcell = getelementptr i8, ptr %rmap, i64 %sector
  store i8 1, ptr %rcell
  br i1 %writes, label %mark_write, label %marked
mark_write:
{_get("wmap", "%entry", EntryWord.WRITE_MAP, "ptr")}  %wcell = getelementptr i8, ptr %wmap, i64 %sector
  store i8 1, ptr %wcell
  br label %marked
marked:
{_get("init", "%entry", EntryWord.INIT, "ptr")}  %no_init = icmp eq ptr %init, null
  br i1 %no_init, label %race, label %init_check
init_check:
  %ip = getelementptr i8, ptr %init, i64 %rel
  %lp = getelementptr i8, ptr %ip, i64 %low
  %first = load i8, ptr %ip
  %final = load i8, ptr %lp
  %both = and i8 %first, %final
  %never = icmp eq i8 %both, 0
  %bad_init = and i1 %never, %reads
  br i1 %writes, label %init_set, label %init_test
init_set:
  call void @llvm.memset.p0.i64(ptr %ip, i8 1, i64 %size, i1 false)
  br label %init_test
init_test:
  br i1 %bad_init, label %init_bad, label %race
init_bad:
{_report(Kind.UNINITIALIZED)}  br label %race
race:
{_get("writers", "%entry", EntryWord.WRITERS, "ptr")}  %no_race = icmp eq ptr %writers, null
  br i1 %no_race, label %ok, label %race_check
race_check:
  %race.kind = call i32 @dk_race(ptr %ctx, ptr %entry, i64 %rel, i64 %size, i64 %site, i64 %how, ptr %value)
  switch i32 %race.kind, label %ok [
    i32 {RACE_READ}, label %race_read_bad
    i32 {RACE_WRITE}, label %race_write_bad
    i32 {RACE_ATOMIC}, label %race_atomic_bad
  ]
race_write_bad:
  %p = inttoptr i64 %addr to ptr
  %differ = call i32 @memcmp(ptr %p, ptr %value, i64 %size)
  %same = icmp eq i32 %differ, 0
  br i1 %same, label %race_same, label %race_differ
race_same:
{_report(Kind.RACE_SAME_VALUE)}  br label %ok
race_differ:
{_report(Kind.RACE_WRITE)}  br label %ok
race_read_bad:
{_report(Kind.RACE_READ)}  br label %ok
race_atomic_bad:
{_report(Kind.RACE_ATOMIC)}  br label %ok
ok:
  ret i1 true
}}
define i1 @dk_atomic(ptr %ctx, ptr %entry, i64 %addr, i64 %size, i64 %site) {{
start:
  %ok = call i1 @dk_access(ptr %ctx, ptr %entry, i64 %addr, i64 %size, i64 %site, i64 {AccessKind.ATOMIC}, ptr null)
  br i1 %ok, label %count, label %bad
bad:
  ret i1 false
count:
{count_atomic()}  ret i1 true
}}
"""


def _move(size: int, store: bool) -> str:
    """One lane between memory ``%p`` and its slot."""
    source, target = ("%slot", "%p") if store else ("%p", "%slot")
    name = f"{'put' if store else 'get'}{size}"
    bits = 8 * size
    return f"""{name}:
  %{name}.v = load i{bits}, ptr {source}, align 1
  store i{bits} %{name}.v, ptr {target}, align 1
  br label %next
"""


_LANES = f"""
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.ctpop.i64(i64)
define void @dk_lanes(ptr %ctx, ptr %entry, ptr %addrs, ptr %data, i64 %n, i64 %bits, i64 %site, i64 %size, i64 %how, \
i64 %warp) {{
start:
  %is_store = icmp eq i64 %how, {AccessKind.STORE}
  %low = sub i64 %size, 1
  %known = icmp ne ptr %entry, null
  br i1 %known, label %look, label %prepare
look:
{_get("e.base", "%entry", EntryWord.BASE)}{_get("e.end", "%entry", EntryWord.END)}\
{_get("e.init", "%entry", EntryWord.INIT)}\
{_get("e.writers", "%entry", EntryWord.WRITERS)}
  %map.index = select i1 %is_store, i64 {EntryWord.WRITE_MAP}, i64 {EntryWord.READ_MAP}
  %map.p = getelementptr i64, ptr %entry, i64 %map.index
  %e.map = load ptr, ptr %map.p
  %length = sub i64 %e.end, %e.base
  %fits = icmp uge i64 %length, %size
  %shadows = or i64 %e.init, %e.writers
  %no_shadows = icmp eq i64 %shadows, 0
  %e.plain = and i1 %fits, %no_shadows
  %e.limit = sub i64 %length, %size
  br label %prepare
prepare:
  %plain = phi i1 [ false, %start ], [ %e.plain, %look ]
  %base = phi i64 [ 0, %start ], [ %e.base, %look ]
  %limit = phi i64 [ 0, %start ], [ %e.limit, %look ]
  %map = phi ptr [ null, %start ], [ %e.map, %look ]
{lanes_begin()}  br label %loop
{next_lane("prepare")}  %slot.off = mul i64 %k, %size
  %slot = getelementptr i8, ptr %data, i64 %slot.off
  %p = inttoptr i64 %addr to ptr
  %rel = sub i64 %addr, %base
  %in = icmp ule i64 %rel, %limit
  %rem = and i64 %addr, %low
  %aligned = icmp eq i64 %rem, 0
  %fine0 = and i1 %in, %aligned
  %fine = and i1 %fine0, %plain
  br i1 %fine, label %mark, label %ask
mark:
  %rel.sector = lshr i64 %rel, 5
  %cell = getelementptr i8, ptr %map, i64 %rel.sector
  store i8 1, ptr %cell
  br label %move
ask:
  %ok = call i1 @dk_access(ptr %ctx, ptr %entry, i64 %addr, i64 %size, i64 %site, i64 %how, ptr %slot)
  br i1 %ok, label %move, label %next
move:
  %size.bit = shl i64 %size, 4
  %direction = and i64 %how, {AccessKind.STORE}
  %what = or i64 %size.bit, %direction
  switch i64 %what, label %next [
    i64 {16 + AccessKind.LOAD}, label %get1
    i64 {32 + AccessKind.LOAD}, label %get2
    i64 {64 + AccessKind.LOAD}, label %get4
    i64 {128 + AccessKind.LOAD}, label %get8
    i64 {16 + AccessKind.STORE}, label %put1
    i64 {32 + AccessKind.STORE}, label %put2
    i64 {64 + AccessKind.STORE}, label %put4
    i64 {128 + AccessKind.STORE}, label %put8
  ]
{"".join(_move(size, store) for store in (False, True) for size in (1, 2, 4, 8))}next:
  br label %loop
done:
{lanes_end()}  ret void
}}
"""

_CLASH = f"""
define void @dk_clash(ptr %ctx, ptr %addrs, ptr %data, i64 %bits, i64 %site, i64 %size, i64 %base) noinline {{
start:
  br label %one
one:
  %rest = phi i64 [ %bits, %start ], [ %others, %one.next ]
  %some = icmp ne i64 %rest, 0
  br i1 %some, label %first, label %done
first:
  %i = call i64 @llvm.cttz.i64(i64 %rest, i1 true)
  %less = sub i64 %rest, 1
  %others = and i64 %rest, %less
  %ip = getelementptr i64, ptr %addrs, i64 %i
  %addr = load i64, ptr %ip
  %i.off = mul i64 %i, %size
  %mine = getelementptr i8, ptr %data, i64 %i.off
  br label %two
two:
  %left = phi i64 [ %others, %first ], [ %left1, %two.next ]
  %more = icmp ne i64 %left, 0
  br i1 %more, label %second, label %one.next
second:
  %j = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %left.less = sub i64 %left, 1
  %left1 = and i64 %left, %left.less
  %jp = getelementptr i64, ptr %addrs, i64 %j
  %other = load i64, ptr %jp
  %meet = icmp eq i64 %addr, %other
  br i1 %meet, label %values, label %two.next
values:
  %j.off = mul i64 %j, %size
  %theirs = getelementptr i8, ptr %data, i64 %j.off
  %differ = call i32 @memcmp(ptr %mine, ptr %theirs, i64 %size)
  %same = icmp eq i32 %differ, 0
  br i1 %same, label %two.next, label %clash
clash:
{_report(Kind.RACE_LANES)}  br label %done
two.next:
  br label %two
one.next:
  br label %one
done:
  ret void
}}
"""
"""two lanes of a strip that store different values to one place"""

_CLOCK = f"""
declare i32 @clock_gettime(i32, ptr)
define i1 @dk_late(ptr %ctx) noinline {{
start:
  %time = alloca [2 x i64]
  %failed = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %part.p = getelementptr i64, ptr %time, i64 1
  %part = load i64, ptr %part.p
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %part
{_get("deadline", "%ctx", Ctx.DEADLINE)}  %late = icmp sgt i64 %now, %deadline
  ret i1 %late
}}
"""
"""CLOCK_MONOTONIC against the launch's deadline"""

SYMBOLS = ("dk_late", "dk_note", "dk_print", "dk_atomic", "dk_lanes", "dk_clash", "dk_run", "dk_sync", "dk_sort",
           *TOUCH_SYMBOLS)  # fmt: skip
"""what kernels call"""


def helpers() -> str:
    """LLVM IR of all helpers."""
    return _FIND + _RECORD + SYNC + CONFLICT + RACE + _ACCESS + _LANES + _CLASH + RUN + _CLOCK + SORT + touch_helpers()


# ---- sorting


_MANTISSA_LEFT = 47
"""bits of a double below five bits of its mantissa"""
_ONE = 1023 << (52 - _MANTISSA_LEFT)
"""1.0 without those bits"""

SORT = f"""
define void @dk_sort(ptr %ctx, i64 %n) noinline {{
start:
{word("weights", "%ctx", Ctx.WEIGHTS, "ptr")}  %unknown = icmp eq ptr %weights, null
  br i1 %unknown, label %return, label %begin
begin:
{word("counts", "%ctx", Ctx.BLOCKS, "ptr")}{word("before", "%ctx", Ctx.SORTED, "ptr")}\
{word("classes", "%ctx", Ctx.CLASSES, "ptr")}  br label %weigh
weigh:
  %k = phi i64 [ 0, %begin ], [ %k1, %weighed ]
  %sum = phi double [ 1.0, %begin ], [ %sum1, %weighed ]
  %more = icmp ult i64 %k, %n
  br i1 %more, label %weighed, label %class
weighed:
  %count.p = getelementptr i64, ptr %counts, i64 %k
  %count = load i64, ptr %count.p
  %old.p = getelementptr i64, ptr %before, i64 %k
  %old = load i64, ptr %old.p
  %times = sub i64 %count, %old
  %float = uitofp i64 %times to double
  %weight.p = getelementptr double, ptr %weights, i64 %k
  %weight = load double, ptr %weight.p
  %part = fmul double %float, %weight
  %sum1 = fadd double %sum, %part
  %k1 = add i64 %k, 1
  br label %weigh
class:
  %bits = bitcast double %sum to i64
  %high = lshr i64 %bits, {_MANTISSA_LEFT}
  %octaves = sub i64 %high, {_ONE}
  %fits = icmp ult i64 %octaves, {CLASSES - 1}
  %number = select i1 %fits, i64 %octaves, i64 {CLASSES - 1}
  %width = add i64 %n, 1
  %offset = mul i64 %number, %width
  %row = getelementptr i64, ptr %classes, i64 %offset
  %programs = load i64, ptr %row
  %programs1 = add i64 %programs, 1
  store i64 %programs1, ptr %row
  br label %add
add:
  %j = phi i64 [ 0, %class ], [ %j1, %added ]
  %rest = icmp ult i64 %j, %n
  br i1 %rest, label %added, label %return
added:
  %now.p = getelementptr i64, ptr %counts, i64 %j
  %now = load i64, ptr %now.p
  %then.p = getelementptr i64, ptr %before, i64 %j
  %then = load i64, ptr %then.p
  %did = sub i64 %now, %then
  store i64 %now, ptr %then.p
  %j1 = add i64 %j, 1
  %sum.p = getelementptr i64, ptr %row, i64 %j1
  %had = load i64, ptr %sum.p
  %has = add i64 %had, %did
  store i64 %has, ptr %sum.p
  br label %add
return:
  ret void
}}
"""
