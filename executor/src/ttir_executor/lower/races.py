"""The shadow memory that finds races, as LLVM IR: for each cell of an allocation, which program wrote it and which read
it.

A cell stands for the smallest element that a kernel may touch. Programs run one after another. What two of them do to
one cell, at least one of them writing, would happen in any order on a GPU, unless one of them released and the other
acquired in between. Updates that are all atomic do not count.

Cells hold *segments*: the part of a program between two of its synchronising accesses. A program's segments are
numbered consecutively. If the running program has not acquired anything, another program's segment in a cell is a race
at once. If it has, the pair is recorded, and ``executor/order.py`` determines afterwards whether a release and an
acquire lie between the two. Of several readers, or several programs that updated a cell atomically, one is remembered,
by a rule that depends on the order of execution; launches in other orders remember others.
"""

from ttir_executor.lower.runtime import (
    ACQUIRE,
    BY_ATOMIC,
    CONFLICT_WORDS,
    RECENT_BITS,
    SEGMENT_BITS,
    SEVERAL,
    SYNC_WORDS,
    AccessKind,
    Ctx,
    EntryWord,
    Kind,
)

RACE_READ, RACE_WRITE, RACE_ATOMIC = 1, 2, 3
"""what ``dk_race`` gives, worst last; 0 when there is no race"""


def word(name: str, pointer: str, index: int, ty: str = "i64") -> str:
    """LLVM IR: ``%name`` = word ``index`` of a table; its address is ``%name.p``."""
    return f"""  %{name}.p = getelementptr i64, ptr {pointer}, i64 {index}
  %{name} = load {ty}, ptr %{name}.p
"""


def _row(values: list[str]) -> str:
    """Stores of ``values`` into consecutive words behind ``%row``."""
    return "".join(
        f"  %row.{k} = getelementptr i64, ptr %row, i64 {k}\n  store i64 {value}, ptr %row.{k}\n"
        for k, value in enumerate(values)
    )


SYNC = f"""
define void @dk_sync(ptr %ctx, i64 %addr, i64 %flags) noinline {{
start:
{word("segment", "%ctx", Ctx.SEGMENT)}{word("first", "%ctx", Ctx.FIRST_SEGMENT)}\
{word("acquired", "%ctx", Ctx.ACQUIRED)}{word("n", "%ctx", Ctx.N_SYNCS)}\
{word("max", "%ctx", Ctx.MAX_SYNCS)}  %next = add i64 %segment, 1
  store i64 %next, ptr %segment.p
  %acquires = and i64 %flags, {ACQUIRE}
  %acquired.now = or i64 %acquired, %acquires
  store i64 %acquired.now, ptr %acquired.p
  %room = icmp ult i64 %n, %max
  br i1 %room, label %write, label %done
write:
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %n.p
{word("list", "%ctx", Ctx.SYNCS, "ptr")}  %off = mul i64 %n, {SYNC_WORDS}
  %row = getelementptr i64, ptr %list, i64 %off
{_row(["%addr", "%segment", "%first", "%flags"])}  br label %done
done:
{word("yield", "%ctx", Ctx.YIELD, "ptr")}  %alone = icmp eq ptr %yield, null
  br i1 %alone, label %back, label %turn
turn:
  call void %yield(ptr %ctx)
  br label %back
back:
  ret void
}}
"""

CONFLICT = f"""
define internal void @dk_conflict(ptr %ctx, ptr %entry, i64 %addr, i64 %size, i64 %site, i32 %race, i32 %prior, \
ptr %value) noinline {{
start:
  %none = icmp eq i32 %race, 0
  br i1 %none, label %done, label %which
which:
  %earlier32 = and i32 %prior, {SEGMENT_BITS}
  %earlier = zext i32 %earlier32 to i64
{word("first", "%ctx", Ctx.FIRST_SEGMENT)}{word("segment", "%ctx", Ctx.SEGMENT)}  %since = sub i64 %earlier, %first
  %mine.span = sub i64 %segment, %first
  %mine = icmp ule i64 %since, %mine.span
  br i1 %mine, label %done, label %values
values:
  %writes = icmp eq i32 %race, {RACE_WRITE}
  %given = icmp ne ptr %value, null
  %compare = and i1 %writes, %given
  br i1 %compare, label %look, label %note
look:
  %place = inttoptr i64 %addr to ptr
  %differ = call i32 @memcmp(ptr %place, ptr %value, i64 %size)
  %same = icmp eq i32 %differ, 0
  br i1 %same, label %done, label %note
note:
  %is_read = icmp eq i32 %race, {RACE_READ}
  %plain = select i1 %writes, i64 {Kind.RACE_WRITE}, i64 {Kind.RACE_ATOMIC}
  %kind = select i1 %is_read, i64 {Kind.RACE_READ}, i64 %plain
{word("recent", "%ctx", Ctx.RECENT, "ptr")}  %high = shl i64 %earlier, 30
  %pair = add i64 %high, %segment
  %where = shl i64 %site, 3
  %how = or i64 %where, %kind
  %spread = mul i64 %how, 6364136223846793005
  %key = xor i64 %pair, %spread
  %mixed = mul i64 %key, -7046029254386353131
  %bucket = lshr i64 %mixed, {64 - RECENT_BITS}
  %lately.p = getelementptr i64, ptr %recent, i64 %bucket
  %lately = load i64, ptr %lately.p
  %again = icmp eq i64 %lately, %key
  br i1 %again, label %done, label %fresh
fresh:
  store i64 %key, ptr %lately.p
{word("n", "%ctx", Ctx.N_CONFLICTS)}{word("max", "%ctx", Ctx.MAX_CONFLICTS)}  %n1 = add i64 %n, 1
  store i64 %n1, ptr %n.p
  %room = icmp ult i64 %n, %max
  %any = urem i64 %mixed, %max
  %at = select i1 %room, i64 %n, i64 %any
{word("base", "%entry", EntryWord.BASE)}{word("list", "%ctx", Ctx.CONFLICTS, "ptr")}{word("pid", "%ctx", Ctx.PROGRAM)}\
  %off = mul i64 %at, {CONFLICT_WORDS}
  %row = getelementptr i64, ptr %list, i64 %off
{_row(["%kind", "%site", "%pid", "%addr", "%base", "%size", "%earlier", "%segment", "%first"])}  br label %done
done:
  ret void
}}
"""

RACE = f"""
declare i32 @llvm.umax.i32(i32, i32)
declare i64 @llvm.umax.i64(i64, i64)
define internal i32 @dk_race(ptr %ctx, ptr %entry, i64 %rel, i64 %size, i64 %site, i64 %how, ptr %value) noinline {{
start:
{word("writers", "%entry", EntryWord.WRITERS, "ptr")}{word("readers", "%entry", EntryWord.READERS, "ptr")}\
{word("base", "%entry", EntryWord.BASE)}{word("segment", "%ctx", Ctx.SEGMENT)}\
{word("begun", "%ctx", Ctx.FIRST_SEGMENT)}\
{word("acquired", "%ctx", Ctx.ACQUIRED)}{word("shift", "%ctx", Ctx.RACE_SHIFT)}  %me = trunc i64 %segment to i32
  %first = trunc i64 %begun to i32
  %mine.span = sub i32 %me, %first
  %may_be_ordered = icmp ne i64 %acquired, 0
  %addr = add i64 %base, %rel
  %first_cell = lshr i64 %rel, %shift
  %span = lshr i64 %size, %shift
  %cells = call i64 @llvm.umax.i64(i64 %span, i64 1)
  %is_load = icmp eq i64 %how, {AccessKind.LOAD}
  %is_store = icmp eq i64 %how, {AccessKind.STORE}
  %is_atomic = icmp eq i64 %how, {AccessKind.ATOMIC}
  br label %cell
cell:
  %k = phi i64 [ 0, %start ], [ %k1, %update ]
  %worst = phi i32 [ 0, %start ], [ %worst1, %update ]
  %at = add i64 %first_cell, %k
  %wp = getelementptr i32, ptr %writers, i64 %at
  %rp = getelementptr i32, ptr %readers, i64 %at
  %w = load i32, ptr %wp
  %r = load i32, ptr %rp
  %w.id = and i32 %w, {SEGMENT_BITS}
  %r.id = and i32 %r, {SEGMENT_BITS}
  %w.set = icmp ne i32 %w, 0
  %r.set = icmp ne i32 %r, 0
  %w.since = sub i32 %w.id, %first
  %r.since = sub i32 %r.id, %first
  %w.old = icmp ugt i32 %w.since, %mine.span
  %r.old = icmp ugt i32 %r.since, %mine.span
  %w.several.bit = and i32 %w, {SEVERAL}
  %r.several.bit = and i32 %r, {SEVERAL}
  %w.several = icmp ne i32 %w.several.bit, 0
  %r.several = icmp ne i32 %r.several.bit, 0
  %w.alien = or i1 %w.old, %w.several
  %r.alien = or i1 %r.old, %r.several
  %w.other = and i1 %w.set, %w.alien
  %other_read = and i1 %r.set, %r.alien
  %updated = icmp slt i32 %w, 0
  %plainly = xor i1 %updated, true
  %other_updated = and i1 %w.other, %updated
  %other_stored = and i1 %w.other, %plainly
  %stored.load = select i1 %other_stored, i32 {RACE_READ}, i32 0
  %updated.load = select i1 %other_updated, i32 {RACE_ATOMIC}, i32 %stored.load
  %stored.store = select i1 %other_stored, i32 {RACE_WRITE}, i32 0
  %updated.store = select i1 %other_updated, i32 {RACE_ATOMIC}, i32 %stored.store
  %stored.atomic = select i1 %other_stored, i32 {RACE_ATOMIC}, i32 0
  %of.w0 = select i1 %is_atomic, i32 %stored.atomic, i32 %stored.load
  %of.w1 = select i1 %is_store, i32 %updated.store, i32 %of.w0
  %of.w = select i1 %is_load, i32 %updated.load, i32 %of.w1
  %read.store = select i1 %other_read, i32 {RACE_READ}, i32 0
  %read.atomic = select i1 %other_read, i32 {RACE_ATOMIC}, i32 0
  %of.r0 = select i1 %is_atomic, i32 %read.atomic, i32 0
  %of.r = select i1 %is_store, i32 %read.store, i32 %of.r0
  %of.any = call i32 @llvm.umax.i32(i32 %of.w, i32 %of.r)
  %hit = icmp ne i32 %of.any, 0
  %ask = and i1 %hit, %may_be_ordered
  br i1 %ask, label %note, label %update
note:
  call void @dk_conflict(ptr %ctx, ptr %entry, i64 %addr, i64 %size, i64 %site, i32 %of.w, i32 %w, ptr %value)
  call void @dk_conflict(ptr %ctx, ptr %entry, i64 %addr, i64 %size, i64 %site, i32 %of.r, i32 %r, ptr null)
  br label %update
update:
  %of = phi i32 [ %of.any, %cell ], [ 0, %note ]
  %at32 = trunc i64 %at to i32
  %parity = xor i32 %at32, %me
  %parity.bit = and i32 %parity, 1
  %pick_me = icmp eq i32 %parity.bit, 0
  %w.pick = select i1 %pick_me, i32 %me, i32 %w.id
  %r.pick = select i1 %pick_me, i32 %me, i32 %r.id
  %w.many = or i32 %w.pick, {SEVERAL}
  %r.many = or i32 %r.pick, {SEVERAL}
  %w.update0 = select i1 %other_updated, i32 %w.many, i32 %me
  %w.update1 = or i32 %w.update0, {BY_ATOMIC - (1 << 32)}
  %w.kept = and i1 %w.set, %plainly
  %w.mine_plain0 = xor i1 %w.old, true
  %w.mine_plain = and i1 %w.kept, %w.mine_plain0
  %w.update = select i1 %w.mine_plain, i32 %me, i32 %w.update1
  %w.new0 = select i1 %is_atomic, i32 %w.update, i32 %w
  %w.new = select i1 %is_store, i32 %me, i32 %w.new0
  %r.read = select i1 %other_read, i32 %r.many, i32 %me
  %r.new0 = select i1 %is_load, i32 %r.read, i32 %r
  %r.new = select i1 %is_store, i32 0, i32 %r.new0
  store i32 %w.new, ptr %wp
  store i32 %r.new, ptr %rp
  %worst1 = call i32 @llvm.umax.i32(i32 %worst, i32 %of)
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %cells
  br i1 %more, label %cell, label %done
done:
  ret i32 %worst1
}}
"""

_IOTA = "<" + ", ".join(f"i32 {k}" for k in range(16)) + ">"
_SPLAT16 = "<16 x i32> poison, <16 x i32> zeroinitializer"


def _splat(name: str, value: str) -> str:
    """LLVM IR: ``%name`` = sixteen times ``value``."""
    return f"""  %{name}.one = insertelement <16 x i32> poison, i32 {value}, i64 0
  %{name} = shufflevector <16 x i32> %{name}.one, {_SPLAT16}
"""


RUN = f"""
define i1 @dk_run(ptr %ctx, ptr %entry, i64 %addr, i64 %bytes, i64 %store) {{
start:
  %is_store = icmp ne i64 %store, 0
{word("base", "%entry", EntryWord.BASE)}{word("init", "%entry", EntryWord.INIT, "ptr")}\
{word("writers", "%entry", EntryWord.WRITERS, "ptr")}  %rel = sub i64 %addr, %base
  %no_init = icmp eq ptr %init, null
  br i1 %no_init, label %race, label %init_check
init_check:
  %ip = getelementptr i8, ptr %init, i64 %rel
  br i1 %is_store, label %init_set, label %init_loop
init_set:
  call void @llvm.memset.p0.i64(ptr %ip, i8 1, i64 %bytes, i1 false)
  br label %race
init_loop:
  %k = phi i64 [ 0, %init_check ], [ %k1, %init_next ]
  %cp = getelementptr i8, ptr %ip, i64 %k
  %byte = load i8, ptr %cp
  %set = icmp ne i8 %byte, 0
  br i1 %set, label %init_next, label %bad
init_next:
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %bytes
  br i1 %more, label %init_loop, label %race
race:
  %no_race = icmp eq ptr %writers, null
  br i1 %no_race, label %good, label %race_check
race_check:
{word("readers", "%entry", EntryWord.READERS, "ptr")}{word("segment", "%ctx", Ctx.SEGMENT)}\
{word("begun", "%ctx", Ctx.FIRST_SEGMENT)}{word("shift", "%ctx", Ctx.RACE_SHIFT)}  %me1 = trunc i64 %segment to i32
  %first1 = trunc i64 %begun to i32
  %range1 = sub i32 %me1, %first1
{_splat("me", "%me1")}{_splat("begin", "%first1")}{_splat("range", "%range1")}  %first = lshr i64 %rel, %shift
  %cells = lshr i64 %bytes, %shift
  %parity0 = xor <16 x i32> {_IOTA}, %me
  %parity1 = and <16 x i32> %parity0, splat (i32 1)
  %pick_me = icmp eq <16 x i32> %parity1, zeroinitializer
  br label %cell_loop
cell_loop:
  %c = phi i64 [ 0, %race_check ], [ %c1, %cell_next ]
  %at = add i64 %first, %c
  %wp = getelementptr i32, ptr %writers, i64 %at
  %rp = getelementptr i32, ptr %readers, i64 %at
  %w = load <16 x i32>, ptr %wp, align 4
  %r = load <16 x i32>, ptr %rp, align 4
  %left64 = sub i64 %cells, %c
  %left1 = trunc i64 %left64 to i32
{_splat("left", "%left1")}  %valid = icmp ult <16 x i32> {_IOTA}, %left
  %w.set = icmp ne <16 x i32> %w, zeroinitializer
  %r.set = icmp ne <16 x i32> %r, zeroinitializer
  %w.rel = sub <16 x i32> %w, %begin
  %r.rel = sub <16 x i32> %r, %begin
  %w.alien = icmp ugt <16 x i32> %w.rel, %range
  %r.alien = icmp ugt <16 x i32> %r.rel, %range
  %w.other0 = and <16 x i1> %w.set, %w.alien
  %r.other0 = and <16 x i1> %r.set, %r.alien
  %w.other = and <16 x i1> %w.other0, %valid
  %r.other = and <16 x i1> %r.other0, %valid
  %conflicts.store = or <16 x i1> %w.other, %r.other
  %conflicts = select i1 %is_store, <16 x i1> %conflicts.store, <16 x i1> %w.other
  %conflict.bits = bitcast <16 x i1> %conflicts to i16
  %conflict = icmp ne i16 %conflict.bits, 0
  br i1 %conflict, label %bad, label %cell_write
cell_write:
  br i1 %is_store, label %cell_store, label %cell_load
cell_store:
  %w.new = select <16 x i1> %valid, <16 x i32> %me, <16 x i32> %w
  store <16 x i32> %w.new, ptr %wp, align 4
  br label %cell_next
cell_load:
  %r.id = and <16 x i32> %r, splat (i32 {SEGMENT_BITS})
  %r.pick = select <16 x i1> %pick_me, <16 x i32> %me, <16 x i32> %r.id
  %r.more = or <16 x i32> %r.pick, splat (i32 {SEVERAL})
  %r.many = select <16 x i1> %r.other, <16 x i32> %r.more, <16 x i32> %me
  %r.new = select <16 x i1> %valid, <16 x i32> %r.many, <16 x i32> %r
  store <16 x i32> %r.new, ptr %rp, align 4
  br label %cell_next
cell_next:
  %c1 = add i64 %c, 16
  %again = icmp ult i64 %c1, %cells
  br i1 %again, label %cell_loop, label %good
good:
  ret i1 true
bad:
  ret i1 false
}}
"""
