# A worker that measures on a GPU and takes its jobs from a service (containers/serve.Dockerfile).
#
#   docker build -f containers/gpu-worker.Dockerfile -t drkernel-gpu-worker .
#   docker run --rm --gpus device=0 -e DRKERNEL_TOKEN --shm-size 8g drkernel-gpu-worker http://SERVICE:8765
#
# One container a GPU: a timing job owns its GPU. Needs an NVIDIA driver and the NVIDIA container toolkit on the host.
FROM python:3.12-slim

# Triton compiles its launchers with a C compiler; torch's own wheel brings the CUDA libraries.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*

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
