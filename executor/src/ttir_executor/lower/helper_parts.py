"""Pieces of LLVM IR that several native helpers share.

The helpers that look at a strip lane by lane (``dk_lanes``, ``dk_touch``) have the arguments ``%ctx``, ``%addrs``,
``%n``, ``%bits``, ``%size`` and ``%warp``, and set ``%is_store``; the address of the lane at hand is ``%addr``.
``%warp`` is the number of the warp whose lanes these are, from 1, or 0 where that does not matter (:func:`warp_of`).
"""

from ttir_executor.lower.races import word
from ttir_executor.lower.runtime import ATOMIC_BITS, SECTOR_BITS, SECTOR_BYTES, SITE_WORDS, Ctx, EntryWord

_MIX = -7046029254386353131
"""an odd number near 2**64 over the golden ratio: spreads neighbours over a table"""
_WARP_MIX = 6364136223846793005


def within(entry: str) -> str:
    """Sets ``%in``: the ``%size`` bytes at ``%addr`` lie in the allocation ``entry`` (from ``%base`` to ``%end``)."""
    return f"""{word("base", entry, EntryWord.BASE)}{word("end", entry, EntryWord.END)}  %last = add i64 %addr, %size
  %ge = icmp uge i64 %addr, %base
  %le = icmp ule i64 %last, %end
  %nowrap = icmp ugt i64 %last, %addr
  %in0 = and i1 %ge, %le
  %in = and i1 %in0, %nowrap
"""


def lanes_begin() -> str:
    """Before a loop over lanes or sectors: whose accesses they are, for the table of sectors moved lately."""
    return f"""{word("sectors", "%ctx", Ctx.SECTORS, "ptr")}{word("pid", "%ctx", Ctx.PROGRAM)}\
  %pid.high = shl i64 %pid, 43
  %stores = zext i1 %is_store to i64
  %stores.high = shl i64 %stores, 42
  %whose.both = or i64 %pid.high, %stores.high
  %warp.spread = mul i64 %warp, {_WARP_MIX}
  %whose = xor i64 %whose.both, %warp.spread
"""


def moved_lately(count: str) -> str:
    """``%count1`` is ``count``, plus one unless the program (``%whose``) moved ``%sector`` lately."""
    return f"""  %tag = xor i64 %sector, %whose
  %mixed = mul i64 %tag, {_MIX}
  %bucket = lshr i64 %mixed, {64 - SECTOR_BITS}
  %lately.p = getelementptr i64, ptr %sectors, i64 %bucket
  %lately = load i64, ptr %lately.p
  store i64 %tag, ptr %lately.p
  %changed = icmp ne i64 %lately, %tag
  %one = zext i1 %changed to i64
  %count1 = add i64 {count}, %one
"""


def next_lane(before: str) -> str:
    """The head of the loop, entered from the block ``before``: the next lane ``%k`` that is active.

    ``%count1`` counts the sectors that its program did not move lately. The loop goes on at ``next``, ends at ``done``.
    """
    return f"""loop:
  %rest = phi i64 [ %bits, %{before} ], [ %rest1, %next ]
  %count = phi i64 [ 0, %{before} ], [ %count1, %next ]
  %any = icmp ne i64 %rest, 0
  br i1 %any, label %active, label %done
active:
  %k = call i64 @llvm.cttz.i64(i64 %rest, i1 true)
  %rest.less = sub i64 %rest, 1
  %rest1 = and i64 %rest, %rest.less
  %ap = getelementptr i64, ptr %addrs, i64 %k
  %addr = load i64, ptr %ap, align 8
  %sector = lshr i64 %addr, 5
{moved_lately("%count")}"""


def count_moved(count: str) -> str:
    """Count ``count`` sectors instead of the ``%assumed`` bytes that the kernel counts."""
    return f"""  %counter.index = select i1 %is_store, i64 {Ctx.STORE_BYTES}, i64 {Ctx.LOAD_BYTES}
  %total.p = getelementptr i64, ptr %ctx, i64 %counter.index
  %total = load i64, ptr %total.p
  %bytes = mul i64 {count}, {SECTOR_BYTES}
  %delta = sub i64 %bytes, %assumed
  %sum = add i64 %total, %delta
  store i64 %sum, ptr %total.p
{word("sites", "%ctx", Ctx.SITES, "ptr")}  %site.at = mul i64 %site, {SITE_WORDS}
  %site.p = getelementptr i64, ptr %sites, i64 %site.at
  %site.bytes = load i64, ptr %site.p
  %site.sum = add i64 %site.bytes, %delta
  store i64 %site.sum, ptr %site.p
"""


def lanes_end() -> str:
    """After the loop: the sectors and lanes counted instead of those that the kernel has assumed."""
    return f"""  %assumed = mul i64 %n, %size
{count_moved("%count")}  %asking = call i64 @llvm.ctpop.i64(i64 %bits)
  %idle = sub i64 %asking, %n
  %lanes.p = getelementptr i64, ptr %site.p, i64 1
  %lanes = load i64, ptr %lanes.p
  %lanes.sum = add i64 %lanes, %idle
  store i64 %lanes.sum, ptr %lanes.p
"""


def count_atomic() -> str:
    """Count an atomic at ``%addr`` in the table by which contention is estimated."""
    return f"""{word("atomics", "%ctx", Ctx.ATOMIC_TABLE, "ptr")}  %atomic.word = lshr i64 %addr, 2
  %atomic.mixed = mul i64 %atomic.word, {_MIX}
  %atomic.bucket = lshr i64 %atomic.mixed, {64 - ATOMIC_BITS}
  %atomic.p = getelementptr i32, ptr %atomics, i64 %atomic.bucket
  %atomic.old = load i32, ptr %atomic.p
  %atomic.new = add i32 %atomic.old, 1
  store i32 %atomic.new, ptr %atomic.p
"""
