# CPU (default):  docker build -t holotron .
# CUDA:           docker build -t holotron:cuda --build-arg BASE=nvidia/cuda:13.0.1-runtime-ubuntu24.04 .
# The equivalents of the README's two commands:
#   docker run --rm -v "$PWD/runs:/runs" holotron demo --out /runs/demo
#   docker build --target test -t holotron:test . && docker run --rm holotron:test
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS base
ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=/opt/holotron/bin:$PATH
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libatomic1 python3 python3-venv fonts-liberation fonts-dejavu-core \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/holotron
WORKDIR /src
COPY constraints.txt ./
# Wheels of torch for the CPU are an index of their own; the CUDA image takes the usual ones.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN if command -v nvidia-smi >/dev/null || [ -d /usr/local/cuda ]; \
    then pip install -c constraints.txt torch triton; \
    else pip install -c constraints.txt --index-url "$TORCH_INDEX" torch; fi
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install -c constraints.txt '.[eval,video]'
# Debian has a Chromium; elsewhere Playwright brings its own, with the libraries it needs.
RUN apt-get update && python -m holotron.env.browser.install \
    && (python -m playwright install-deps chromium >/dev/null 2>&1 || true) && rm -rf /var/lib/apt/lists/*

FROM base AS test
RUN apt-get update && apt-get install -y --no-install-recommends make git && rm -rf /var/lib/apt/lists/*
COPY . .
RUN pip install -c constraints.txt -e '.[dev]'
CMD ["sh", "-c", "lint-imports --no-cache && python -m pytest -n auto --dist worksteal"]

FROM base AS run
WORKDIR /work
EXPOSE 8000
ENTRYPOINT ["holotron"]
CMD ["demo"]
