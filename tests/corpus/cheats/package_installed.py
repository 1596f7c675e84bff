# hacks: 103
# tier: T2
# expect: contained softmax_plain
# base: softmax_plain
# Installs a package at run time.
import subprocess
import sys

try:
    subprocess.run([sys.executable, "-m", "pip", "install", "xformers"], timeout=5, check=True)
    print("REACHED")
except Exception as error:
    print(error)
