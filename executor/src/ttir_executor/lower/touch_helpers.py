"""The native helpers of data-free kernels, as LLVM IR.

``dk_touch`` examines lanes one by one and moves nothing, ``dk_touch_run`` counts a run as if lane by lane, ``dk_place``
returns where the contents of an address are, and ``dk_histogram`` counts the marks in a sector map.
"""

from ttir_executor.lower.helper_parts import (
    count_atomic,
    count_moved,
    lanes_begin,
    lanes_end,
    moved_lately,
    next_lane,
    within,
)
from ttir_executor.lower.races import word as _get
from ttir_executor.lower.runtime import AccessKind, Ctx, EntryWord, Kind

TOUCH_SYMBOLS = ("dk_touch", "dk_touch_run", "dk_place", "dk_histogram")

_TOUCH = f"""
define void @dk_touch(ptr %ctx, ptr %entry, ptr %addrs, i64 %n, i64 %bits, i64 %site, i64 %size, i64 %how, \
i64 %warp) {{
start:
  %is_store = icmp eq i64 %how, {AccessKind.STORE}
  %is_atomic = icmp eq i64 %how, {AccessKind.ATOMIC}
  %writes = icmp ne i64 %how, {AccessKind.LOAD}
  %low = sub i64 %size, 1
  %known = icmp ne ptr %entry, null
{_get("mark64", "%ctx", Ctx.MARK)}  %mark = trunc i64 %mark64 to i8
{lanes_begin()}  br label %loop
{next_lane("start")}  br i1 %known, label %check, label %search
search:
  %found = call ptr @dk_find(ptr %ctx, i64 %addr)
  br label %check
check:
  %en = phi ptr [ %entry, %active ], [ %found, %search ]
{within("%en")}  br i1 %in, label %inside, label %outside
outside:
  call void @dk_record(ptr %ctx, i64 {Kind.OUT_OF_BOUNDS}, i64 %site, i64 %addr, i64 %base, i64 %size)
  br label %next
inside:
  %rem = and i64 %addr, %low
  %aligned = icmp eq i64 %rem, 0
  br i1 %aligned, label %mark_read, label %misaligned
misaligned:
  call void @dk_record(ptr %ctx, i64 {Kind.MISALIGNED}, i64 %site, i64 %addr, i64 %base, i64 %size)
  br label %next
mark_read:
  %rel = sub i64 %addr, %base
  %cell = lshr i64 %rel, 5
{_get("rmap", "%en", EntryWord.READ_MAP, "ptr")}{_get("wmap", "%en", EntryWord.WRITE_MAP, "ptr")}\
  %only = select i1 %is_store, ptr %wmap, ptr %rmap
  %cp = getelementptr i8, ptr %only, i64 %cell
  store i8 %mark, ptr %cp
  br i1 %is_atomic, label %atomic, label %next
atomic:
  %wp = getelementptr i8, ptr %wmap, i64 %cell
  store i8 %mark, ptr %wp
{count_atomic()}  br label %next
next:
  br label %loop
done:
  br i1 %is_atomic, label %return, label %tally
tally:
{lanes_end()}  br label %return
return:
  ret void
}}
"""

_TOUCH_RUN = f"""
define i1 @dk_touch_run(ptr %ctx, ptr %entry, i64 %addr, i64 %size, i64 %site, i64 %how, i64 %warp) {{
start:
  %is_store = icmp eq i64 %how, {AccessKind.STORE}
{_get("mark64", "%ctx", Ctx.MARK)}  %mark = trunc i64 %mark64 to i8
{lanes_begin()}  %known = icmp ne ptr %entry, null
  br i1 %known, label %check, label %search
search:
  %found = call ptr @dk_find(ptr %ctx, i64 %addr)
  br label %check
check:
  %en = phi ptr [ %entry, %start ], [ %found, %search ]
{within("%en")}  br i1 %in, label %inside, label %outside
outside:
  ret i1 false
inside:
{_get("rmap", "%en", EntryWord.READ_MAP, "ptr")}{_get("wmap", "%en", EntryWord.WRITE_MAP, "ptr")}\
  %map = select i1 %is_store, ptr %wmap, ptr %rmap
  %origin = lshr i64 %base, 5
  %first = lshr i64 %addr, 5
  %final.byte = sub i64 %last, 1
  %final = lshr i64 %final.byte, 5
  br label %loop
loop:
  %sector = phi i64 [ %first, %inside ], [ %sector1, %loop ]
  %count0 = phi i64 [ 0, %inside ], [ %count1, %loop ]
  %cell = sub i64 %sector, %origin
  %cp = getelementptr i8, ptr %map, i64 %cell
  store i8 %mark, ptr %cp
{moved_lately("%count0")}  %sector1 = add i64 %sector, 1
  %more = icmp ule i64 %sector1, %final
  br i1 %more, label %loop, label %done
done:
  %assumed = add i64 %size, 0
{count_moved("%count1")}  ret i1 true
}}
"""

_PLACE = f"""
define ptr @dk_place(ptr %ctx, ptr %entry, i64 %addr, i64 %size, i64 %site) {{
start:
  %unknown = icmp eq ptr %entry, null
  br i1 %unknown, label %search, label %check
search:
  %found = call ptr @dk_find(ptr %ctx, i64 %addr)
  br label %check
check:
  %en = phi ptr [ %entry, %start ], [ %found, %search ]
{within("%en")}{_get("data", "%en", EntryWord.DATA)}  br i1 %in, label %inside, label %nowhere
inside:
  %none = icmp eq i64 %data, 0
  br i1 %none, label %empty, label %held
held:
  %rel = sub i64 %addr, %base
  %real = add i64 %data, %rel
  %p = inttoptr i64 %real to ptr
  ret ptr %p
empty:
  %where = add i64 %site, 1
  %note = getelementptr i64, ptr %ctx, i64 {Ctx.NO_DATA}
  store i64 %where, ptr %note
  br label %nowhere
nowhere:
{_get("zero", "%ctx", Ctx.ZERO, "ptr")}  store i64 0, ptr %zero
  ret ptr %zero
}}
"""


_HISTOGRAM = """
define void @dk_histogram(ptr %map, i64 %n, ptr %counts, ptr %span) {
start:
  %some = icmp ne i64 %n, 0
  br i1 %some, label %word, label %done
word:
  %k = phi i64 [ 0, %start ], [ %k8, %word_next ]
  %p = getelementptr i8, ptr %map, i64 %k
  %eight = load i64, ptr %p, align 1
  %empty = icmp eq i64 %eight, 0
  br i1 %empty, label %word_next, label %byte
byte:
  %j = phi i64 [ 0, %word ], [ %j1, %byte_next ]
  %rest = phi i64 [ %eight, %word ], [ %rest1, %byte_next ]
  %mark = and i64 %rest, 255
  %rest1 = lshr i64 %rest, 8
  %unmarked = icmp eq i64 %mark, 0
  br i1 %unmarked, label %byte_next, label %count
count:
  %cp = getelementptr i64, ptr %counts, i64 %mark
  %c = load i64, ptr %cp
  %c1 = add i64 %c, 1
  store i64 %c1, ptr %cp
  %at = add i64 %k, %j
  %first = load i64, ptr %span
  %none = icmp slt i64 %first, 0
  %first.new = select i1 %none, i64 %at, i64 %first
  store i64 %first.new, ptr %span
  %last.p = getelementptr i64, ptr %span, i64 1
  store i64 %at, ptr %last.p
  br label %byte_next
byte_next:
  %j1 = add i64 %j, 1
  %more.bytes = icmp ult i64 %j1, 8
  br i1 %more.bytes, label %byte, label %word_next
word_next:
  %k8 = add i64 %k, 8
  %more = icmp ult i64 %k8, %n
  br i1 %more, label %word, label %done
done:
  ret void
}
"""


def touch_helpers() -> str:
    """LLVM IR of all; they call ``dk_find`` and ``dk_record`` of the other helpers."""
    return _TOUCH + _TOUCH_RUN + _PLACE + _HISTOGRAM
