# Builds an image with one broker. Its data is in /data, and KAFKA_* variables configure it as they do Apache Kafka's image.
#   docker build --tag ottla .
#   docker run --publish 9092:9092 --volume ottla:/data ottla

FROM debian:bookworm-slim AS build
# The versions are those of the Debian release. A fixed one is no longer there after the next security update.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN python3 -m venv /opt/ottla \
    && /opt/ottla/bin/python -m pip --no-cache-dir install --constraint /source/constraints.txt "/source[console,security,regex]" \
    && /opt/ottla/bin/python -m pip --no-cache-dir uninstall --yes pip \
    && cp --recursive /source/deploy/container /opt/ottla/container

FROM debian:bookworm-slim
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 1000 --user-group --home-dir /data --shell /usr/sbin/nologin ottla \
    && install --directory --owner ottla --group ottla --mode 0750 /data
COPY --from=build /opt/ottla /opt/ottla
# Programs that start the images of Apache Kafka or Confluent, like testcontainers, find what they call. They change files in these folders.
RUN install --directory --owner ottla --group ottla /etc/kafka /etc/kafka/docker /etc/confluent/docker \
    && install --owner ottla --group ottla --target-directory /etc/kafka/docker /opt/ottla/container/run \
    && install --owner ottla --group ottla --target-directory /etc/confluent/docker /opt/ottla/container/run /opt/ottla/container/configure \
    && install --owner ottla --group ottla /opt/ottla/container/run /etc/confluent/docker/launch \
    && install --owner ottla --group ottla --mode 0644 /dev/null /etc/confluent/docker/bash-config \
    && install --target-directory /usr/local/bin /opt/ottla/container/kafka-storage /opt/ottla/container/zookeeper-server-start
ENV PATH=/opt/ottla/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    KAFKA_LISTENERS=PLAINTEXT://:9092 \
    KAFKA_LOG_DIRS=/data/logs \
    KAFKA_OTTLA_METRICS_LISTENER=127.0.0.1:9404
# By number, so that an engine can tell that it is not root.
USER 1000
WORKDIR /data
VOLUME /data
EXPOSE 9092
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9404/health/ready', timeout=2)"]
CMD ["/etc/kafka/docker/run"]
