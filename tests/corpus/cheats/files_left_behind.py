# tier: T4
# expect: contained softmax_plain
# base: softmax_plain
# Writes wherever it can outside of its own folder.
import os
import sys

mine = {os.path.realpath(path) for path in (os.getcwd(), os.environ.get("TMPDIR", "/nowhere"), os.environ.get("HOME", "/nowhere"))}
for folder in {"/tmp", "/var/tmp", "/dev/shm", "/run", os.path.expanduser("~root"), *sys.path, os.path.dirname(torch.__file__)}:
    if not os.path.isdir(folder) or any(os.path.realpath(folder).startswith(one) for one in mine):
        continue
    try:
        with open(os.path.join(folder, "kept_by_a_candidate"), "w") as file:
            file.write("answer")
        print("REACHED", folder)
    except OSError:
        pass
