# A worker that measures on a GPU and takes its jobs from a service (containers/serve.Dockerfile).
#
#   docker build -f containers/gpu-worker.Dockerfile -t drkernel-gpu-worker .
#   docker run --rm --gpus device=0 -e DRKERNEL_TOKEN --shm-size 8g drkernel-gpu-worker http://SERVICE:8765
#
# One container a GPU: a timing job owns its GPU. Needs an NVIDIA driver and the NVIDIA container toolkit on the host.
# With nvcc, which CUDA C++ candidates need beside g++ and ninja, of the major version that torch's wheel is built for.
ARG CUDA="13.0.1"
FROM nvidia/cuda:${CUDA}-devel-ubuntu24.04

# Triton compiles its launchers with a C compiler and Python's headers; torch's own wheel brings the CUDA libraries.
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc g++ libc6-dev ninja-build python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/* \
 && python3 -m venv /opt/venv
# torch's own libraries come first, not the image's of another minor version
ENV PATH=/opt/venv/bin:$PATH LD_LIBRARY_PATH=""

WORKDIR /opt/drkernel
COPY pyproject.toml README.md constraints.txt LICENSE ./
COPY src src
COPY executor executor
COPY recipes recipes
COPY examples examples

ARG TORCH="torch==2.13.0"
RUN pip install --no-cache-dir -c constraints.txt "$TORCH" \
 && pip install --no-cache-dir -c constraints.txt ./executor ".[serve,data]"

WORKDIR /tmp
RUN drkernel --version
STOPSIGNAL SIGTERM
ENTRYPOINT ["drkernel", "worker", "--slots", "1", "--takes", "cuda"]
