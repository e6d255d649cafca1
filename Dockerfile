# One broker. A stage of its own installs the packages: the image holds no build tools, no cache and no sources.
ARG PYTHON_IMAGE=python:3.11-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY protocol protocol
COPY explain explain
COPY broker broker
COPY client client
COPY pipeline pipeline
RUN python -m venv --without-pip /opt/barnabas \
    && pip --python /opt/barnabas/bin/python install --no-cache-dir '.[cluster,http,init]' \
    && find /opt/barnabas \( -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' \) -delete

FROM ${PYTHON_IMAGE}
# The user has a number below, so that Kubernetes can see that it is not root.
RUN useradd --system --create-home --uid 1001 barnabas \
    && mkdir /data && chown barnabas /data
COPY --from=build /opt/barnabas /opt/barnabas
ENV PATH=/opt/barnabas/bin:$PATH PYTHONUNBUFFERED=1
USER 1001
VOLUME /data
EXPOSE 9092
STOPSIGNAL SIGTERM
ENTRYPOINT ["broker", "--host", "0.0.0.0", "--data-dir", "/data"]
# Both ports serve everyone who can reach the container: publish them in networks that you trust, or see docs/security.md.
CMD ["--port", "9092", "--http-host", "0.0.0.0", "--http-port", "9308", "--http-insecure"]
