"""The native helper that sorts programs by how much each did, as LLVM IR.

A launch is as long as its longest programs, not as its mean ones. After every program ``dk_sort`` weighs how often it
entered each block, and adds these counts to those of its class. Classes are a quarter of an octave wide, so the
programs of one are alike to 25%.
"""

from __future__ import annotations

from drkernel.sim.executor.lower.races import word
from drkernel.sim.executor.lower.runtime import CLASSES, Ctx

_MANTISSA_LEFT = 50
"""bits of a double below two bits of its mantissa"""
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
