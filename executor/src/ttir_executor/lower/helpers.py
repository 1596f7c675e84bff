"""The native helpers that kernels call for every access off the fast path, in the language of ``native.py``, compiled
once per process.

``dk_access`` handles one element: it checks bounds, alignment, initialisation and races, records findings, and marks
the 32-byte sectors touched. ``dk_lanes`` moves the active lanes of a strip. For data-free kernels ``dk_touch`` examines
lanes one by one and moves nothing, ``dk_touch_run`` counts a run as if lane by lane, ``dk_place`` returns where the
contents of an address are, and ``dk_histogram`` counts the marks in a sector map. ``runtime.py`` defines the layouts of
the context and the tables.

**The shadow memory that finds races** tells for each cell of an allocation which program wrote it and which read it. A
cell stands for the smallest element that a kernel may touch. Programs run one after another. What two of them do to one
cell, at least one of them writing, would happen in any order on a GPU, unless one of them released and the other
acquired in between. Updates that are all atomic do not count.

Cells hold *segments*: the part of a program between two of its synchronising accesses. A program's segments are
numbered consecutively. If the running program has not acquired anything, another program's segment in a cell is a race
at once. If it has, the pair is recorded, and ``executor/order.py`` determines afterwards whether a release and an
acquire lie between the two. Of several readers, or several programs that updated a cell atomically, one is remembered,
by a rule that depends on the order of execution; launches in other orders remember others.
"""

from ttir_executor.lower import runtime
from ttir_executor.lower.native import compiled

SYMBOLS = ("dk_late", "dk_note", "dk_print", "dk_atomic", "dk_lanes", "dk_clash", "dk_run", "dk_sync", "dk_sort",
           "dk_touch", "dk_touch_run", "dk_place", "dk_histogram")  # fmt: skip
"""what kernels call"""
_MANTISSA_LEFT = 47
"""bits of a double below five bits of its mantissa"""
_CONSTANTS = {
    **vars(runtime), "MIX": -7046029254386353131, "WARP_MIX": 6364136223846793005, "RACE_READ": 1, "RACE_WRITE": 2,
    "RACE_ATOMIC": 3, "SEGMENT_BITS": (1 << 30) - 1, "SEVERAL": 1 << 30, "BY_ATOMIC": 1 << 31,
    "MANTISSA_LEFT": _MANTISSA_LEFT, "ONE": 1023 << (52 - _MANTISSA_LEFT),
}  # fmt: skip
"""MIX: an odd number near 2**64 over the golden ratio, which spreads neighbours over a table. RACE: what ``dk_race``
gives, worst last; 0 when there is no race. In a cell of the race shadow, SEGMENT_BITS: the segment; SEVERAL: other
programs did the same, and the segment is one of theirs; BY_ATOMIC: an atomic update. ONE: 1.0 without the bits that
MANTISSA_LEFT counts"""


def helpers() -> str:
    """LLVM IR of all helpers."""
    return compiled(_FINDINGS + _RACES + _LANES + _TOUCH + _LAUNCH, _CONSTANTS, SYMBOLS)


_FINDINGS = '''
def dk_find(ctx: ptr, addr) -> ptr:
    """The last allocation that begins at ``addr`` or before; the first where there is none."""
    table, low, high = ptr(ctx)[Ctx.ENTRIES], 0, ctx[Ctx.N_ENTRIES]
    while low < high:
        middle = (low + high) >> 1
        below = table[middle * EntryWord.SIZE] <= addr
        low, high = middle + 1 if below else low, high if below else middle
    return table + (0 if low == 0 else low - 1) * EntryWord.SIZE


def dk_record(ctx: ptr, kind, site, addr, base, size):
    n = ctx[Ctx.N_FINDINGS]
    ctx[Ctx.N_FINDINGS] = n + 1
    if n < ctx[Ctx.MAX_FINDINGS]:
        put(ptr(ctx)[Ctx.FINDINGS] + n * FINDING_WORDS, kind, site, ctx[Ctx.PROGRAM], addr, base, size)


def dk_note(ctx: ptr, kind, site):
    dk_record(ctx, kind, site, 0, 0, 0)


def dk_print(ctx: ptr, site, flat, value):
    n = ctx[Ctx.N_PRINTS]
    ctx[Ctx.N_PRINTS] = n + 1
    if n < ctx[Ctx.MAX_PRINTS]:
        put(ptr(ctx)[Ctx.PRINTS] + n * PRINT_WORDS, site, ctx[Ctx.PROGRAM], flat, value)


@inline
def located(ctx, entry, addr):
    """The allocation that is known, or that of an address."""
    if entry == None:
        entry = dk_find(ctx, addr)
    return entry


@inline
def within(base, end, addr, size):
    """The bytes at ``addr`` lie in an allocation."""
    last = addr + size
    return addr >= base and last <= end and last > addr


@inline
def lawful(ctx, entry, addr, size, site):
    """An access within its allocation and aligned; any other is recorded."""
    base = entry[EntryWord.BASE]
    inside, aligned = within(base, entry[EntryWord.END], addr, size), addr & (size - 1) == 0
    fine = inside and aligned
    if not fine:
        dk_record(ctx, Kind.MISALIGNED if inside else Kind.OUT_OF_BOUNDS, site, addr, base, size)
    return fine


def dk_access(ctx: ptr, known: ptr, addr, size, site, how, value: ptr) -> i1:
    entry = located(ctx, known, addr)
    if not lawful(ctx, entry, addr, size, site):
        return False
    base = entry[EntryWord.BASE]
    reads, writes = how != AccessKind.STORE, how & (AccessKind.STORE | AccessKind.ATOMIC) != 0
    rel = addr - base
    if reads:
        i8(ptr(entry)[EntryWord.READ_MAP])[rel >> 5] = 1
    if writes:
        i8(ptr(entry)[EntryWord.WRITE_MAP])[rel >> 5] = 1
    init = i8(ptr(entry)[EntryWord.INIT])
    if init != None:
        first = init + rel
        never = first[0] & first[size - 1] == 0
        if writes:
            memset(first, 1, size)
        if never and reads:
            dk_record(ctx, Kind.UNINITIALIZED, site, addr, base, size)
    if ptr(entry)[EntryWord.WRITERS] != None:
        race = dk_race(ctx, entry, rel, size, site, how, value)
        if race == RACE_WRITE:
            same = memcmp(ptr(addr), value, size) == 0
            dk_record(ctx, Kind.RACE_SAME_VALUE if same else Kind.RACE_WRITE, site, addr, base, size)
        elif race != 0:
            dk_record(ctx, Kind.RACE_READ if race == RACE_READ else Kind.RACE_ATOMIC, site, addr, base, size)
    return True


@inline
def count_atomic(ctx, addr):
    """In the table by which contention is estimated."""
    table = i32(ptr(ctx)[Ctx.ATOMIC_TABLE])
    table[((addr >> 2) * MIX) >> (64 - ATOMIC_BITS)] += 1


def dk_atomic(ctx: ptr, entry: ptr, addr, size, site) -> i1:
    allowed = dk_access(ctx, entry, addr, size, site, AccessKind.ATOMIC, None)
    if allowed:
        count_atomic(ctx, addr)
    return allowed
'''

_RACES = '''
def dk_sync(ctx: ptr, addr, flags):
    segment = ctx[Ctx.SEGMENT]
    ctx[Ctx.SEGMENT] = segment + 1
    ctx[Ctx.ACQUIRED] |= flags & ACQUIRE
    n = ctx[Ctx.N_SYNCS]
    if n < ctx[Ctx.MAX_SYNCS]:
        ctx[Ctx.N_SYNCS] = n + 1
        put(ptr(ctx)[Ctx.SYNCS] + n * SYNC_WORDS, addr, segment, ctx[Ctx.FIRST_SEGMENT], flags)
    turn = ptr(ctx)[Ctx.YIELD]
    if turn != None:
        turn(ctx)


def dk_conflict(ctx: ptr, entry: ptr, addr, size, site, race: i32, prior: i32, value: ptr):
    if race == 0:
        return
    first, segment, earlier = ctx[Ctx.FIRST_SEGMENT], ctx[Ctx.SEGMENT], i64(prior & SEGMENT_BITS)
    if earlier - first <= segment - first:
        return
    writes = race == RACE_WRITE
    if writes and value != None:
        if memcmp(ptr(addr), value, size) == 0:
            return
    kind = Kind.RACE_READ if race == RACE_READ else Kind.RACE_WRITE if writes else Kind.RACE_ATOMIC
    key = ((earlier << 30) + segment) ^ (((site << 3) | kind) * WARP_MIX)
    mixed = key * MIX
    lately = ptr(ctx)[Ctx.RECENT] + (mixed >> (64 - RECENT_BITS))
    if lately[0] == key:
        return
    lately[0] = key
    n, most = ctx[Ctx.N_CONFLICTS], ctx[Ctx.MAX_CONFLICTS]
    ctx[Ctx.N_CONFLICTS] = n + 1
    row = ptr(ctx)[Ctx.CONFLICTS] + (n if n < most else mixed % most) * CONFLICT_WORDS
    put(row, kind, site, ctx[Ctx.PROGRAM], addr, entry[EntryWord.BASE], size, earlier, segment, first)


def dk_race(ctx: ptr, entry: ptr, rel, size, site, how, value: ptr) -> i32:
    writers, readers = i32(ptr(entry)[EntryWord.WRITERS]), i32(ptr(entry)[EntryWord.READERS])
    me, first = i32(ctx[Ctx.SEGMENT]), i32(ctx[Ctx.FIRST_SEGMENT])
    acquired, addr = ctx[Ctx.ACQUIRED] != 0, entry[EntryWord.BASE] + rel
    loads, stores, updates = how == AccessKind.LOAD, how == AccessKind.STORE, how == AccessKind.ATOMIC
    shift = ctx[Ctx.RACE_SHIFT]
    at = rel >> shift
    end, worst = at + umax(size >> shift, i64(1)), i32(0)
    while at < end:
        w, r = writers[at], readers[at]
        writer, reader = w & SEGMENT_BITS, r & SEGMENT_BITS
        written, old = w != 0, writer - first > me - first
        other = written and (old or w & SEVERAL != 0)
        read = r != 0 and (reader - first > me - first or r & SEVERAL != 0)
        plain = not signed_less(w, 0)
        stored, updated = other and plain, other and not plain
        of_w = i32(RACE_ATOMIC) if updates else i32(RACE_WRITE) if stores else i32(RACE_READ)
        of_w = of_w if stored else i32(RACE_ATOMIC) if updated and (loads or stores) else i32(0)
        of_r = (i32(RACE_READ) if stores else i32(RACE_ATOMIC) if updates else i32(0)) if read else i32(0)
        found = umax(of_w, of_r)
        if found != 0 and acquired:
            dk_conflict(ctx, entry, addr, size, site, of_w, w, value)
            dk_conflict(ctx, entry, addr, size, site, of_r, r, None)
            found = i32(0)
        worst = umax(worst, found)
        mine = (i32(at) ^ me) & 1 == 0
        update = ((me if mine else writer) | SEVERAL if updated else me) | BY_ATOMIC
        update = me if written and plain and not old else update
        writers[at] = me if stores else update if updates else w
        share = (me if mine else reader) | SEVERAL if read else me
        readers[at] = 0 if stores else share if loads else r
        at += 1
    return worst


def dk_run(ctx: ptr, entry: ptr, addr, count, stores) -> i1:
    """A whole contiguous strip; False where an element may have a finding."""
    rel, writes = addr - entry[EntryWord.BASE], stores != 0
    init = i8(ptr(entry)[EntryWord.INIT])
    if init != None:
        if writes:
            memset(init + rel, 1, count)
        else:
            k = rel
            while k < rel + count:
                if init[k] == 0:
                    return False
                k += 1
    writers, readers = i32(ptr(entry)[EntryWord.WRITERS]), i32(ptr(entry)[EntryWord.READERS])
    if writers == None:
        return True
    first = i32(ctx[Ctx.FIRST_SEGMENT])
    me, begin, span = splat(i32(ctx[Ctx.SEGMENT])), splat(first), splat(i32(ctx[Ctx.SEGMENT]) - first)
    shift = ctx[Ctx.RACE_SHIFT]
    mine = (lanes() ^ me) & 1 == 0
    at, cells = rel >> shift, count >> shift
    c = 0
    while c < cells:
        wp, rp = v16(writers + (at + c)), v16(readers + (at + c))
        w, r, valid = wp[0], rp[0], lanes() < splat(i32(cells - c))
        other = w != 0 and w - begin > span and valid
        read = r != 0 and r - begin > span and valid
        if any(other or read if writes else other):
            return False
        if writes:
            wp[0] = me if valid else w
        else:
            rp[0] = ((me if mine else r & SEGMENT_BITS) | SEVERAL if read else me) if valid else r
        c += 16
    return True
'''

_LANES = '''
@inline
def whose_accesses(ctx, store, warp):
    """For the table of sectors moved lately. ``warp``: from 1, or 0 where that does not matter."""
    return (ctx[Ctx.PROGRAM] << 43 | i64(store) << 42) ^ (warp * WARP_MIX)


@inline
def moved(sectors, whose, sector):
    """1 unless the program moved the sector lately."""
    tag = sector ^ whose
    place = sectors + (tag * MIX >> (64 - SECTOR_BITS))
    lately = place[0]
    place[0] = tag
    return i64(lately != tag)


@inline
def count_bytes(ctx, store, site, delta):
    """Correct what the kernel counts; the words of the site."""
    ctx[Ctx.STORE_BYTES if store else Ctx.LOAD_BYTES] += delta
    row = ptr(ctx)[Ctx.SITES] + site * SITE_WORDS
    row[0] += delta
    return row


@inline
def count_lanes(ctx, store, bits, n, size, site, count):
    """The sectors and lanes instead of those that the kernel has assumed."""
    row = count_bytes(ctx, store, site, count * SECTOR_BYTES - n * size)
    row[1] += ctpop(bits) - n


@inline
def copy(target, source, size):
    if size == 4:
        i32(target)[0] = i32(source)[0]
    elif size == 2:
        i16(target)[0] = i16(source)[0]
    elif size == 8:
        target[0] = i64(source)[0]
    else:
        i8(target)[0] = i8(source)[0]


def dk_lanes(ctx: ptr, entry: ptr, addrs: ptr, data: ptr, n, bits, site, size, how, warp):
    store = how == AccessKind.STORE
    plain, base, limit, marks = False, 0, 0, i8(None)
    if entry != None:
        base = entry[EntryWord.BASE]
        length = entry[EntryWord.END] - base
        marks = i8(ptr(entry)[EntryWord.WRITE_MAP if store else EntryWord.READ_MAP])
        plain = length >= size and entry[EntryWord.INIT] | entry[EntryWord.WRITERS] == 0
        limit = length - size
    sectors, whose = ptr(ctx)[Ctx.SECTORS], whose_accesses(ctx, store, warp)
    rest, count = bits, 0
    while rest != 0:
        k = cttz(rest)
        rest &= rest - 1
        addr = addrs[k]
        count += moved(sectors, whose, addr >> 5)
        slot, rel = i64(i8(data) + k * size), addr - base
        if rel <= limit and addr & (size - 1) == 0 and plain:
            marks[rel >> 5] = 1
        elif not dk_access(ctx, entry, addr, size, site, how, slot):
            continue
        if store:
            copy(ptr(addr), slot, size)
        else:
            copy(slot, ptr(addr), size)
    count_lanes(ctx, store, bits, n, size, site, count)


def dk_clash(ctx: ptr, addrs: ptr, data: ptr, bits, site, size, base):
    """Two lanes of a strip that store different values to one place."""
    while bits != 0:
        k = cttz(bits)
        bits &= bits - 1
        addr, left = addrs[k], bits
        while left != 0:
            j = cttz(left)
            left &= left - 1
            if addrs[j] == addr:
                if memcmp(i8(data) + k * size, i8(data) + j * size, size) != 0:
                    dk_record(ctx, Kind.RACE_LANES, site, addr, base, size)
                    return
'''

_TOUCH = """
def dk_touch(ctx: ptr, entry: ptr, addrs: ptr, n, bits, site, size, how, warp):
    store, atomic, mark = how == AccessKind.STORE, how == AccessKind.ATOMIC, i8(ctx[Ctx.MARK])
    sectors, whose = ptr(ctx)[Ctx.SECTORS], whose_accesses(ctx, store, warp)
    rest, count = bits, 0
    while rest != 0:
        k = cttz(rest)
        rest &= rest - 1
        addr = addrs[k]
        count += moved(sectors, whose, addr >> 5)
        found = located(ctx, entry, addr)
        if lawful(ctx, found, addr, size, site):
            reads, writes = i8(ptr(found)[EntryWord.READ_MAP]), i8(ptr(found)[EntryWord.WRITE_MAP])
            sector = addr - found[EntryWord.BASE] >> 5
            (writes if store else reads)[sector] = mark
            if atomic:
                writes[sector] = mark
                count_atomic(ctx, addr)
    if not atomic:
        count_lanes(ctx, store, bits, n, size, site, count)


def dk_touch_run(ctx: ptr, entry: ptr, addr, size, site, how, warp) -> i1:
    store, mark = how == AccessKind.STORE, i8(ctx[Ctx.MARK])
    sectors, whose = ptr(ctx)[Ctx.SECTORS], whose_accesses(ctx, store, warp)
    found = located(ctx, entry, addr)
    base = found[EntryWord.BASE]
    if not within(base, found[EntryWord.END], addr, size):
        return False
    marks = i8(ptr(found)[EntryWord.WRITE_MAP if store else EntryWord.READ_MAP])
    sector, last, count = addr >> 5, addr + size - 1 >> 5, 0
    while sector <= last:
        marks[sector - (base >> 5)] = mark
        count += moved(sectors, whose, sector)
        sector += 1
    count_bytes(ctx, store, site, count * SECTOR_BYTES - size)
    return True


def dk_place(ctx: ptr, entry: ptr, addr, size, site) -> ptr:
    found = located(ctx, entry, addr)
    base = found[EntryWord.BASE]
    if within(base, found[EntryWord.END], addr, size):
        data = found[EntryWord.DATA]
        if data != 0:
            return ptr(data + (addr - base))
        if site >= 0:
            ctx[Ctx.NO_DATA] = site + 1
    zero = ptr(ctx)[Ctx.ZERO]
    zero[0] = 0
    return zero


def dk_histogram(marks: ptr, n, counts: ptr, span: ptr):
    k = 0
    while k < n:
        eight, at = i64(i8(marks) + k)[0], k
        if eight == 0x0101010101010101:
            counts[1] += 8
            span[0] = k if signed_less(span[0], 0) else span[0]
            span[1] = k + 7
            eight = 0
        while eight != 0:
            mark = eight & 255
            if mark != 0:
                counts[mark] += 1
                first = span[0]
                span[0] = at if signed_less(first, 0) else first
                span[1] = at
            eight >>= 8
            at += 1
        k += 8
"""

_LAUNCH = '''
def dk_late(ctx: ptr) -> i1:
    """Whether CLOCK_MONOTONIC is past the launch's deadline."""
    time = room(2)
    clock_gettime(1, time)
    return signed_less(ctx[Ctx.DEADLINE], time[0] * 1000000000 + time[1])


def dk_sort(ctx: ptr, n):
    """Enter the program that ended into the class of its work."""
    weights = f64(ptr(ctx)[Ctx.WEIGHTS])
    if weights == None:
        return
    counts, before = ptr(ctx)[Ctx.BLOCKS], ptr(ctx)[Ctx.SORTED]
    total, k = 1.0, 0
    while k < n:
        total += f64(counts[k] - before[k]) * weights[k]
        k += 1
    octaves = (bits(total) >> MANTISSA_LEFT) - ONE
    row = ptr(ctx)[Ctx.CLASSES] + (octaves if octaves < CLASSES - 1 else CLASSES - 1) * (n + 1)
    row[0] += 1
    j = 0
    while j < n:
        now = counts[j]
        row[j + 1] += now - before[j]
        before[j] = now
        j += 1
'''
