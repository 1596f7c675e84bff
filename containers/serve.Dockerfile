# The grading service on simulated GPUs: no GPU needed.
#
#   docker build -f containers/serve.Dockerfile -t drkernel-serve .
#   docker run --rm -p 8765:8765 -e DRKERNEL_TOKEN -v drkernel:/data --shm-size 2g --memory 8g drkernel-serve
#
# DRKERNEL_TOKEN must be set: the service listens beyond this machine and refuses to start without one. What the
# container's own profile takes away from the sandbox, and how to give it back: docs/serve.md, Containers.
FROM python:3.12-slim

# Triton compiles its launchers with a C compiler; bubblewrap is one more way to make namespaces.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev bubblewrap \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/drkernel
COPY pyproject.toml README.md constraints.txt LICENSE ./
COPY src src
COPY executor executor
COPY recipes recipes
COPY examples examples

# A CPU build of torch is enough, and gigabytes smaller: pass the index or a folder of wheels that has one.
ARG TORCH="torch==2.13.0"
ARG PIP_EXTRA_INDEX_URL=""
RUN pip install --no-cache-dir -c constraints.txt "$TORCH" \
 && pip install --no-cache-dir -c constraints.txt ./executor ".[serve,data]"

WORKDIR /data
RUN drkernel --version
VOLUME /data
EXPOSE 8765
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/health', timeout=4)"]
ENTRYPOINT ["drkernel", "serve", "--host", "0.0.0.0", "--store", "/data/drkernel-store.sqlite"]
