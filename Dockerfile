# One broker. The wheel is built in a stage of its own: no compiler, no pip cache and no sources in what is shipped.
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY protocol protocol
COPY broker broker
COPY client client
COPY pipeline pipeline
RUN python -m venv --without-pip /opt/barnabas \
    && pip --python /opt/barnabas/bin/python install --no-cache-dir '.[cluster,http]' \
    && find /opt/barnabas -name '*.pyx' -delete -o -name '*.pxd' -delete -o -name '*.c' -delete

FROM python:3.11-slim
RUN useradd --system --create-home --uid 1001 barnabas \
    && mkdir /data && chown barnabas /data
COPY --from=build /opt/barnabas /opt/barnabas
ENV PATH=/opt/barnabas/bin:$PATH PYTHONUNBUFFERED=1
USER barnabas
VOLUME /data
EXPOSE 9092
STOPSIGNAL SIGTERM
ENTRYPOINT ["broker", "--host", "0.0.0.0", "--data-dir", "/data"]
CMD ["--port", "9092", "--http-host", "0.0.0.0", "--http-port", "9644"]
