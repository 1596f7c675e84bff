"""The interface between native code and the launch: the layout of a launch's context and of its tables."""

from enum import IntEnum


class Ctx(IntEnum):
    """Indices of the 64-bit words of a launch's context."""

    STATUS = 0
    STEPS = 1
    """work that the running program may still do in loops"""
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
    """log2 of the bytes that one cell of the race shadow stands for"""
    STEP_LIMIT = 23
    """what STEPS starts from in every program"""
    DEADLINE = 24
    """nanoseconds of the monotonic clock after which the launch is given up"""
    SECTORS = 25
    """the sectors that the running program asked for lately, by hash"""
    MARK = 26
    """what a data-free launch leaves in the sector maps: the number of the group of programs that runs"""
    NO_DATA = 27
    """the last place (plus 1) that steers by memory without contents"""
    ORDER_FACTOR = 28
    """place k of the grid's order is program (k * ORDER_FACTOR + ORDER_SHIFT) mod programs"""
    ORDER_SHIFT = 29
    SEGMENT = 30
    """number of the running segment: what a program does between two of its synchronising accesses"""
    FIRST_SEGMENT = 31
    """the running program's first segment"""
    ACQUIRED = 32
    """1 when the running program has acquired something"""
    SYNCS = 33
    """the log of synchronising accesses, in order"""
    N_SYNCS = 34
    MAX_SYNCS = 35
    CONFLICTS = 36
    """accesses that are a race unless a synchronisation orders them"""
    N_CONFLICTS = 37
    MAX_CONFLICTS = 38
    RECENT = 39
    """the conflicts noted lately, by hash"""
    YIELD = 40
    """called after each synchronising access, so that another program may go on; null where each runs to its end"""
    PROCESSORS = 41
    """multiprocessors of the GPU, for code that asks on which one it runs"""
    CLOCK = 42
    """what was last read from a clock"""
    SITES = 43
    """by site of the kernel: correction to the static count of bytes asked for, and of lanes that ask"""
    WEIGHTS = 44
    """what one count of each counter of BLOCKS weighs in a program's work, as doubles; null where that is not known"""
    SORTED = 45
    """the counters of BLOCKS after the last program that ended"""
    CLASSES = 46
    """by class of programs of like work: how many there are, and their sum of each counter of BLOCKS"""
    FILL = 47
    """what a masked load without ``other`` gives to its inactive lanes"""
    SIZE = 48


SITE_WORDS = 2

CLASSES = 2048
"""classes of programs: a thirty-second of an octave each"""


class Status(IntEnum):
    """How a launch ended."""

    DONE = 0
    STEPS = 1
    """a program looped for too long"""
    TIME = 2
    """the launch ran for too long"""


class EntryWord(IntEnum):
    """Indices of the 64-bit words of an allocation entry."""

    BASE = 0
    END = 1
    READ_MAP = 2
    WRITE_MAP = 3
    INIT = 4
    """a byte a byte: 1 where something was written; null when all is"""
    WRITERS = 5
    """the last segment that wrote each cell, with flags; null without race checks"""
    READERS = 6
    """a segment that read each cell since it was written, with flags"""
    DATA = 7
    """where the contents of an allocation of a data-free device are; 0 where there are none"""
    SIZE = 8


class AccessKind(IntEnum):
    """Ways to touch memory."""

    LOAD = 0
    STORE = 1
    ATOMIC = 2
    VOLATILE = 4
    """a volatile load, which may meet atomic updates"""


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
    RACE_ATOMIC = 8
    RACE_LANES = 9
    DIVISION = 10
    HINT = 11


ACQUIRE, RELEASE, LOOKS = 1, 2, 4
"""flags of a synchronising access; that which only looks orders nothing"""

SYNC_WORDS = 4
"""address, segment that it ends, first segment of its program, flags"""
CONFLICT_WORDS = 9
"""kind, site, program, address, entry base, size, earlier segment, this segment, first segment of this program"""
RECENT_BITS = 12
"""log2 of the entries of RECENT"""

FINDING_WORDS = 6
"""kind, site, program, address, entry base, size"""

PRINT_WORDS = 4
"""site, program, element, value (a double)"""

SECTOR_BYTES = 32
"""what memory moves in"""
SECTOR_BITS = 12
"""log2 of the entries of SECTORS: 128 KiB of data, about what an SM's L1 keeps for a program"""

ATOMIC_BITS = 16
"""log2 of the counters that atomics are spread over by a hash of their address"""
