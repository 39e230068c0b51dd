package ottla.suite;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;

/**
 * Runs one Ottla with the configuration that a test gives its brokers. It keeps its port and its directories over restarts.
 *
 * The process ends when the pipe of its standard input does, so that it does not outlive this JVM.
 */
final class OttlaNode {
    private static final long STOP_MS = 40_000;
    private static final AtomicInteger COUNT = new AtomicInteger();
    private static final Set<Process> RUNNING = ConcurrentHashMap.newKeySet();
    /** Of the JVM, or of a server with a quorum. */
    private static final Set<String> OF_JAVA = Set.of("metric.reporters", "auto.include.jmx.reporter", "principal.builder.class");

    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> RUNNING.forEach(Process::destroyForcibly)));
    }

    private final int id;
    private final int port = Scratch.port();
    private final String listener;
    private final Map<String, String> settings = new HashMap<>();
    private final File log;
    private Process process;

    OttlaNode(int id, ClusterConfig config, File directory) {
        this.id = id;
        this.listener = config.brokerListenerName().value();
        StringBuilder directories = new StringBuilder();
        for (int disk = 0; disk < config.numDisksPerBroker(); disk++) {
            directories.append(disk == 0 ? "" : ",").append(new File(directory, "broker-" + id + "-" + disk));
        }
        settings.put("log.dirs", directories.toString());
        settings.put("broker.id", String.valueOf(id));
        settings.put("listeners", listener + "://localhost:" + port);
        settings.put("listener.security.protocol.map", listener + ":" + config.brokerSecurityProtocol());
        settings.put("inter.broker.listener.name", listener);
        for (String topic : List.of("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")) {
            settings.put(topic + ".replication.factor", String.valueOf(Math.min(3, config.numBrokers())));
        }
        settings.put("ottla.metadata.file", new File(directory, "metadata").getPath());
        if (config.brokerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT) {
            settings.put("sasl.enabled.mechanisms", "PLAIN");
            settings.put("sasl.mechanism.inter.broker.protocol", "PLAIN");
            settings.put("listener.name." + listener.toLowerCase() + ".plain.sasl.jaas.config", users());
        }
        settings.putAll(config.serverProperties());
        settings.putAll(config.perServerOverrideProperties().getOrDefault(id, Map.of()));
        settings.keySet().removeIf(key -> OF_JAVA.stream().anyMatch(key::endsWith));
        log = new File(System.getProperty("ottla.logs"), COUNT.incrementAndGet() + "-" + id + ".log");
    }

    private static String users() {
        String admin = JaasUtils.KAFKA_PLAIN_ADMIN;
        String password = JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD;
        return String.format(
            "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"%s\" password=\"%s\" user_%s=\"%s\" user_%s=\"%s\";",
            admin, password, admin, password, JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD
        );
    }

    int id() {
        return id;
    }

    int port() {
        return port;
    }

    String listener() {
        return listener;
    }

    Map<String, String> settings() {
        return settings;
    }

    String address() {
        return "localhost:" + port;
    }

    synchronized boolean isRunning() {
        return process != null && process.isAlive();
    }

    synchronized void start() {
        if (isRunning()) {
            return;
        }
        try {
            File file = Files.createTempFile("server", ".properties").toFile();
            Properties properties = new Properties();
            properties.putAll(settings);
            try (OutputStream written = Files.newOutputStream(file.toPath())) {
                properties.store(written, null);
            }
            log.getParentFile().mkdirs();
            List<String> command = List.of(System.getProperty("ottla.python"), "-P", System.getProperty("ottla.serve"), file.getPath());
            process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.appendTo(log)).start();
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
        RUNNING.add(process);
        OttlaCluster.await("broker " + id + " listens", () -> {
            if (!process.isAlive()) {
                throw new IllegalStateException("the broker has ended, see " + log);
            }
            try (Socket socket = new Socket()) {
                socket.connect(new InetSocketAddress("localhost", port), 500);
                return true;
            }
        });
    }

    /** Stops the broker as SIGTERM does. */
    synchronized void stop() {
        if (process == null) {
            return;
        }
        process.toHandle().destroy(); // Process.destroy closes the pipe at once, which would kill the broker
        try {
            if (!process.waitFor(STOP_MS, TimeUnit.MILLISECONDS)) {
                kill();
            }
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
        RUNNING.remove(process);
    }

    synchronized void kill() {
        if (process != null) {
            process.destroyForcibly();
            RUNNING.remove(process);
        }
    }
}
