"""The shadows that find races, as LLVM IR: for each cell of an allocation, which program wrote it and which read it.

A cell stands for the smallest element that a kernel may touch. Programs run one after another; what two of them do to
one cell, at least one of them writing, would on a GPU happen in any order. Updates that are all atomic do not count.
"""

from __future__ import annotations

from drkernel.sim.executor.lower.runtime import SEVERAL_UPDATE, Access, Ctx, Entry

RACE_READ, RACE_WRITE, RACE_ATOMIC = 1, 2, 3
"""what ``dk_race`` gives, worst last; 0 when there is no race"""


def word(name: str, pointer: str, index: int, ty: str = "i64") -> str:
    """LLVM IR: ``%name`` = word ``index`` of a table; its address is ``%name.p``."""
    return f"""  %{name}.p = getelementptr i64, ptr {pointer}, i64 {index}
  %{name} = load {ty}, ptr %{name}.p
"""


RACE = f"""
declare i32 @llvm.umax.i32(i32, i32)
declare i64 @llvm.umax.i64(i64, i64)
define internal i32 @dk_race(ptr %ctx, ptr %entry, i64 %rel, i64 %size, i64 %how) noinline {{
start:
{word("writers", "%entry", Entry.WRITERS, "ptr")}{word("readers", "%entry", Entry.READERS, "ptr")}\
{word("pid", "%ctx", Ctx.PROGRAM)}{word("shift", "%ctx", Ctx.RACE_SHIFT)}  %me64 = add i64 %pid, 1
  %me = trunc i64 %me64 to i32
  %minus_me = sub i32 0, %me
  %first = lshr i64 %rel, %shift
  %span = lshr i64 %size, %shift
  %cells = call i64 @llvm.umax.i64(i64 %span, i64 1)
  %is_load = icmp eq i64 %how, {Access.LOAD}
  %is_store = icmp eq i64 %how, {Access.STORE}
  br label %cell
cell:
  %k = phi i64 [ 0, %start ], [ %k1, %cell ]
  %worst = phi i32 [ 0, %start ], [ %worst1, %cell ]
  %at = add i64 %first, %k
  %wp = getelementptr i32, ptr %writers, i64 %at
  %rp = getelementptr i32, ptr %readers, i64 %at
  %w = load i32, ptr %wp
  %r = load i32, ptr %rp
  %written = icmp ne i32 %w, 0
  %updated = icmp slt i32 %w, 0
  %mine = icmp eq i32 %w, %me
  %updated_by_me = icmp eq i32 %w, %minus_me
  %by_me = or i1 %mine, %updated_by_me
  %by_other = xor i1 %by_me, true
  %other_wrote = and i1 %written, %by_other
  %other_updated = and i1 %other_wrote, %updated
  %plainly = xor i1 %updated, true
  %other_stored = and i1 %other_wrote, %plainly
  %read = icmp ne i32 %r, 0
  %not_me = icmp ne i32 %r, %me
  %other_read = and i1 %read, %not_me
  %of.load0 = select i1 %other_stored, i32 {RACE_READ}, i32 0
  %of.load = select i1 %other_updated, i32 {RACE_ATOMIC}, i32 %of.load0
  %of.store0 = select i1 %other_read, i32 {RACE_READ}, i32 0
  %of.store1 = select i1 %other_stored, i32 {RACE_WRITE}, i32 %of.store0
  %of.store = select i1 %other_updated, i32 {RACE_ATOMIC}, i32 %of.store1
  %other_plain = or i1 %other_stored, %other_read
  %of.atomic = select i1 %other_plain, i32 {RACE_ATOMIC}, i32 0
  %of.write = select i1 %is_store, i32 %of.store, i32 %of.atomic
  %of = select i1 %is_load, i32 %of.load, i32 %of.write
  %updaters = select i1 %other_updated, i32 {SEVERAL_UPDATE}, i32 %minus_me
  %w.atomic = select i1 %mine, i32 %me, i32 %updaters
  %w.write = select i1 %is_store, i32 %me, i32 %w.atomic
  %w.new = select i1 %is_load, i32 %w, i32 %w.write
  %readers.new = select i1 %other_read, i32 -1, i32 %me
  %r.new = select i1 %is_load, i32 %readers.new, i32 %r
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

RUN = f"""
define i1 @dk_run(ptr %ctx, ptr %entry, i64 %addr, i64 %bytes, i64 %store) {{
start:
  %is_store = icmp ne i64 %store, 0
{word("base", "%entry", Entry.BASE)}{word("init", "%entry", Entry.INIT, "ptr")}\
{word("writers", "%entry", Entry.WRITERS, "ptr")}  %rel = sub i64 %addr, %base
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
{word("readers", "%entry", Entry.READERS, "ptr")}{word("pid", "%ctx", Ctx.PROGRAM)}\
{word("shift", "%ctx", Ctx.RACE_SHIFT)}  %me64 = add i64 %pid, 1
  %me1 = trunc i64 %me64 to i32
  %me0 = insertelement <16 x i32> poison, i32 %me1, i64 0
  %me = shufflevector <16 x i32> %me0, {_SPLAT16}
  %first = lshr i64 %rel, %shift
  %cells = lshr i64 %bytes, %shift
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
  %left0 = insertelement <16 x i32> poison, i32 %left1, i64 0
  %left = shufflevector <16 x i32> %left0, {_SPLAT16}
  %valid = icmp ult <16 x i32> {_IOTA}, %left
  %w.set = icmp ne <16 x i32> %w, zeroinitializer
  %w.alien = icmp ne <16 x i32> %w, %me
  %r.set = icmp ne <16 x i32> %r, zeroinitializer
  %r.alien = icmp ne <16 x i32> %r, %me
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
  %r.many = select <16 x i1> %r.other, <16 x i32> splat (i32 -1), <16 x i32> %me
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
