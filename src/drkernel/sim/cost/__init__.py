"""The cost model: modelled device time of kernel launches and ATen operators, on one footing.

``launch.py`` models a Triton launch from exact counts, ``operators.py`` an ATen operator from its shapes, and
``timeline.py`` puts both on one device queue and keeps what is resident in L2. Every result is *modelled*.
"""
